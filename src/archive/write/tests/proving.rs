//! Proof of an archive: forged contents with right digests, and links to a block that is known.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path as DirPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use neve_archive::{Digest, Key, Spot};
use neve_devnet::{Block, Chain, Config, Helicon, Part};
use neve_jsonrpc::Rules;
use neve_record::packed::Codec;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde_json::Value;

use super::fault_store::{Fault, FaultStore};
use super::packed_dir::{PackedDir, RANGE, write};
use super::support::{archive, pushed, run};
use crate::archive::local::relabeled::Relabeled;
use crate::archive::local::{OpenedFile, packed_files};
use crate::archive::verify::{ArchiveFinding, NeighborProof, Proving, UNPROVEN, Verified, verify};
use crate::archive::write::change::WriteOptions;
use crate::archive::write::init;
use crate::config::Anchor;

fn opened(packed: &PackedDir, file: usize) -> OpenedFile {
    let bytes = fs::read(&packed.files[file]).expect("it is there");
    OpenedFile::of(&Codec::default(), bytes).expect("it is whole")
}

/// Hash of the last block of a packed file.
fn last(packed: &PackedDir, file: usize) -> Digest {
    opened(packed, file).last().expect("it has blocks")
}

/// Proof that leads to a block.
fn up_to(height: u64, hash: Digest) -> Proving {
    Proving::new(Some(Anchor { height, hash: hash.0.into() }))
}

/// Pushes packed files and reads all of the archive.
fn checked(packed: &PackedDir, proving: Option<Proving>) -> (Verified, Vec<ArchiveFinding>) {
    checked_in(packed.path(), proving)
}

/// Pushes the packed files of a directory and reads all of the archive.
fn checked_in(dir: &DirPath, proving: Option<Proving>) -> (Verified, Vec<ArchiveFinding>) {
    run(async {
        let archive = archive(&Arc::new(FaultStore::new(Fault::None)));
        pushed(&archive, dir).await.expect("it can be pushed");
        let mut faults = Vec::new();
        let verified = verify(&archive, None, proving, |fault| faults.push(fault)).await;
        (verified.expect("it can be read"), faults)
    })
}

#[test]
fn blocks_are_proven_up_to_the_anchor_and_another_block_is_a_fault() {
    let packed = PackedDir::new(3);
    let (found, faults) = checked(&packed, Some(Proving::new(None)));
    assert_eq!((found.proven, faults), (Some((0, 11)), Vec::new()));
    let seventh = last(&packed, 1);
    let (found, faults) = checked(&packed, Some(up_to(7, seventh)));
    assert_eq!((found.proven, faults), (Some((0, 7)), Vec::new()));
    for (height, hash) in [(3, seventh), (99, seventh)] {
        let (found, faults) = checked(&packed, Some(up_to(height, hash)));
        assert_eq!((found.proven, found.findings), (None, 1));
        assert_eq!(faults[0].kind, "anchor", "{faults:?}");
    }
    assert_eq!(checked(&packed, None).0.proven, None);
}

#[test]
fn archive_without_heights_proves_none_and_says_so() {
    let chain = PackedDir::new(1).chain().into();
    run(async {
        let archive = archive(&Arc::new(FaultStore::new(Fault::None)));
        init(&archive, &WriteOptions::default(), chain).await.expect("it can be begun");
        let mut faults = Vec::new();
        let proving = Some(Proving::new(None));
        let found = verify(&archive, None, proving, |fault| faults.push(fault)).await;
        assert_eq!(found.expect("it can be read").findings, 1);
        assert_eq!(faults[0].kind, UNPROVEN);
        assert!(faults[0].detail.contains("no segment was read"), "{faults:?}");
    });
}

/// All digests and checksums are those of the forged bytes.
#[test]
fn forged_receipts_pass_a_check_of_digests_and_fail_the_proof() {
    let forged = PackedDir::forged(3, RANGE, fail_at(5));
    assert_eq!(checked(&forged, None).0.findings, 0);
    let (found, faults) = checked(&forged, Some(Proving::new(None)));
    assert_eq!((found.findings, found.proven), (1, Some((8, 11))), "{faults:?}");
    assert!(faults[0].object.contains("/segment-4-"), "{faults:?}");
    assert!(faults[0].detail.starts_with("height 5: "), "{faults:?}");
}

/// Blocks of the chain whose later headers settle receipts.
fn blocks_settled_later(count: usize) -> Vec<Block> {
    let mut chain = Chain::new(Config::test().with_helicon(Helicon::FromGenesis).chain);
    (0..count).map(|_| chain.next_block()).collect()
}

/// Height that the header of each block settles.
fn settled_heights(blocks: &[Block]) -> Vec<u64> {
    let settled = |block: Value| {
        let digits = block["settledHeight"].as_str().expect("it has one").trim_start_matches("0x");
        u64::from_str_radix(digits, 16).expect("a number")
    };
    let texts = blocks.iter().map(|block| block.answer(Part::Full, Rules::Helicon));
    texts.map(|text| settled(serde_json::from_slice(&text).expect("JSON"))).collect()
}

const SUCCEEDS: &[u8] = b"\"status\":\"0x1\"";

fn success(receipts: &[u8]) -> Option<usize> {
    receipts.windows(SUCCEEDS.len()).position(|text| text == SUCCEEDS)
}

/// Makes a transaction of a block fail.
fn fail_at(forged: u64) -> impl Fn(u64, &mut Vec<u8>) {
    move |height, receipts| {
        if height == forged {
            let at = success(receipts).expect("one succeeds");
            receipts[at + SUCCEEDS.len() - 2] = b'0';
        }
    }
}

/// Nothing commits to the receipts of the newest blocks: the writer of the archive can forge them.
#[test]
fn receipts_are_proven_up_to_the_height_that_the_anchor_settles() {
    let blocks = blocks_settled_later(12);
    let settled = settled_heights(&blocks);
    assert!(settled[11] < 11 && settled[7] < 7 && settled[7] > 0, "{settled:?}");
    let mut newest = (settled[11] + 1..12).rev();
    let newest = newest.find(|at| success(blocks[*at as usize].receipts()).is_some());
    for change in [fail_at(99), fail_at(newest.expect("transactions succeed"))] {
        let packed = PackedDir::settled_later(3, change);
        let anchors = [(7, last(&packed, 1)), (11, last(&packed, 2))];
        for (height, hash) in anchors {
            let (found, faults) = checked(&packed, Some(up_to(height, hash)));
            let proven = Some((0, settled[height as usize]));
            assert_eq!((found.proven, faults), (proven, Vec::new()), "up to {height}");
        }
        let (found, faults) = checked(&packed, Some(Proving::new(None)));
        assert_eq!((found.proven, faults), (Some((0, settled[11])), Vec::new()));
    }
}

/// The header that settles them disproves them, in a later segment.
#[test]
fn forged_receipts_that_a_later_header_settles_are_a_fault() {
    let (settled, forged) = (settled_heights(&blocks_settled_later(12)), 5);
    assert!(settled[7] < forged && settled[11] > forged, "{settled:?}");
    let packed = PackedDir::settled_later(3, fail_at(forged));
    let (found, faults) = checked(&packed, Some(Proving::new(None)));
    assert_eq!((found.findings, found.proven), (1, Some((0, settled[7]))), "{faults:?}");
    assert_eq!(faults[0].kind, "settled_receipts_root", "{faults:?}");
    let (found, _) = checked(&packed, Some(up_to(11, last(&packed, 2))));
    assert_eq!((found.findings, found.proven), (1, None));
}

/// The first headers behind a gap settle receipts below it, which are not seen again.
#[test]
fn receipts_behind_a_segment_that_fails_are_proven_from_the_first_whole_range_on() {
    let settled = settled_heights(&blocks_settled_later(24));
    let name = b"\"transactionHash\":\"0x";
    let packed = PackedDir::settled_later(6, |height, receipts| {
        let at = receipts.windows(name.len()).position(|text| text == name);
        if height == 1 {
            let digit = &mut receipts[at.expect("there are transactions") + name.len()];
            *digit = if *digit == b'1' { b'2' } else { b'1' };
        }
    });
    let (found, faults) = checked(&packed, Some(Proving::new(None)));
    let from =
        (4..24).filter(|at| *at == 4 || settled[at - 1] < 3 && settled[*at] > settled[at - 1]);
    let from = from.map(|at| settled[at] + 1).max().expect("there are some").max(4);
    let proven = Some((from, settled[23]));
    assert_eq!((found.findings, found.proven), (1, proven), "{faults:?}, {settled:?}");
}

/// A window that holds no receipts proves none.
#[test]
fn receipts_that_were_forgotten_before_a_header_settles_them_are_not_proven() {
    let packed = PackedDir::settled_later(3, fail_at(5));
    let anchor = up_to(11, last(&packed, 2)).with_window(1);
    let (found, faults) = checked(&packed, Some(anchor));
    assert_eq!((found.proven, found.findings), (None, 1), "the blocks lead to the anchor");
    assert_eq!(faults[0].kind, "unproven", "{faults:?}");
}

/// The memory has no space for the receipts of some heights only.
#[test]
fn heights_below_receipts_that_were_forgotten_are_a_finding() {
    let packed = PackedDir::settled_later(4, fail_at(99));
    let proof = |bytes: usize| checked(&packed, Some(Proving::new(None).with_window(bytes)));
    let is_partial = |(found, _): &(Verified, _)| found.proven.is_some_and(|(first, _)| first > 0);
    let partial = (4000..9000).step_by(400).map(proof).find(is_partial);
    let (found, faults) = partial.expect("a memory holds the receipts of some heights");
    let (first, _) = found.proven.expect("it is a part");
    assert_eq!((found.findings, faults[0].kind), (1, "unproven"), "{faults:?}");
    let start = format!("heights below {first} are not proven: from height ");
    assert!(faults[0].detail.starts_with(&start), "{faults:?}");
}

/// The block is in the chain, and says nothing of the receipts that are here.
#[test]
fn anchor_below_the_heights_that_were_read_is_named() {
    let packed = PackedDir::new(3);
    let dir = packed.some([1, 2]);
    for (height, why) in [
        (3, "height 3 of --archive-anchor is below 4, the first height that was read"),
        (12, "no block of the archive is that of --archive-anchor, at height 12"),
    ] {
        let (found, faults) = checked_in(dir.path(), Some(up_to(height, last(&packed, 0))));
        assert_eq!((found.proven, faults.len()), (None, 1), "{faults:?}");
        assert!(faults[0].detail.starts_with(why), "{faults:?}");
    }
}

#[test]
fn anchor_that_settles_none_of_the_heights_is_a_finding() {
    let packed = PackedDir::settled_later(2, fail_at(99));
    let second = packed.some([1]);
    let hash = Digest(opened(&packed, 1).record(4).expect("it is whole").hash.0);
    let (found, faults) = checked_in(second.path(), Some(up_to(4, hash)));
    assert_eq!((found.proven, found.findings), (None, 1), "{faults:?}");
    let ArchiveFinding { kind, detail, .. } = &faults[0];
    assert_eq!(*kind, "unproven");
    let start = "no height is proven: the header of height 4, that of --archive-anchor, settles no";
    assert!(detail.starts_with(start) && detail.ends_with("with a later block"), "{detail}");
    assert_eq!(checked_in(second.path(), None).0.findings, 0);
}

/// Each block is whole, and is the one that its index and its span name.
#[test]
fn forged_parent_link_in_a_segment_passes_a_check_of_digests_and_fails_the_proof() {
    let torn = PackedDir::torn(3, 6);
    assert_eq!(checked(&torn, None).0.findings, 0);
    let (found, faults) = checked(&torn, Some(Proving::new(None)));
    assert_eq!((found.findings, found.proven), (1, Some((8, 11))), "{faults:?}");
    assert!(faults[0].object.contains("/segment-4-"), "{faults:?}");
    assert_eq!(faults[0].kind, "settled_parent", "{faults:?}");
    assert!(faults[0].detail.starts_with("height 6: header 6 has parent "), "{faults:?}");
    let (found, _) = checked(&torn, Some(up_to(11, last(&torn, 2))));
    assert_eq!((found.findings, found.proven), (1, Some((8, 11))), "no link to the blocks below");
}

/// The file on the disk has the same forged receipts.
#[test]
fn segment_that_is_put_again_and_not_proven_is_a_fault() {
    let packed = PackedDir::forged(3, RANGE, fail_at(5));
    let store = Arc::new(FaultStore::new(Fault::None));
    run(async {
        let archive = archive(&store);
        pushed(&archive, packed.path()).await.expect("it can be pushed");
        let names = store.names().await;
        let segment = names.iter().find(|name| name.contains("/segment-4-")).expect("it is there");
        store.inner.delete(&Path::from(segment.as_str())).await.expect("it can be deleted");
        let local = packed_files(packed.path()).expect("they can be read").files;
        let (mut faults, proving) = (Vec::new(), Some(Proving::new(None)));
        let found = verify(&archive, Some(&local), proving, |fault| faults.push(fault)).await;
        let found = found.expect("it can be read");
        assert_eq!((found.repaired, found.findings), (1, 1), "{faults:?}");
        let kinds: Vec<_> = faults.iter().map(|fault| (fault.kind, fault.repaired)).collect();
        assert!(kinds[0] == ("absent", true) && !kinds[1].1, "{kinds:?}");
    });
}

/// CRC-32 of IEEE.
fn crc(bytes: &[u8]) -> [u8; 4] {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1));
    let add = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    (!bytes.iter().fold(u32::MAX, add)).to_le_bytes()
}

/// Changes a term of the log index of a packed file, and makes its checksums anew (docs/PACKED.md, "File").
fn with_another_term(mut file: Vec<u8>) -> Vec<u8> {
    let entry = 112 + 4 * 24;
    let number = |at: usize| {
        let bytes = file[at..at + 8].first_chunk().copied().expect("eight bytes");
        u64::from_le_bytes(bytes) as usize
    };
    let (offset, length) = (number(entry + 8), number(entry + 16));
    let first = offset + 1 + (4 << file[offset]);
    file[first] ^= 1;
    let of_section = crc(&file[offset..offset + length]);
    file[entry + 4..entry + 8].copy_from_slice(&of_section);
    let of_header = crc(&file[..508]);
    file[508..512].copy_from_slice(&of_header);
    file
}

/// A wrong index would hide logs from the spans, too.
#[test]
fn forged_log_index_passes_a_check_of_digests_and_fails_the_proof() {
    let packed = PackedDir::new(2);
    let forged = fs::read(&packed.files[1]).map(with_another_term).expect("it is there");
    write(&packed.files[1], forged);
    assert_eq!(checked(&packed, None).0.findings, 0);
    let (found, faults) = checked(&packed, Some(Proving::new(None)));
    assert_eq!((found.findings, found.proven), (1, Some((0, 3))), "{faults:?}");
    assert_eq!(faults[0].kind, "index", "{faults:?}");
}

/// Hashes without receipts, and terms of the index, are those of the unpacked heights.
#[test]
fn keys_of_a_packed_file_are_those_of_its_records() {
    let packed = PackedDir::of_ranges(2, 32);
    for path in &packed.files {
        let opened = OpenedFile::of(&Codec::default(), fs::read(path).expect("it is there"));
        let opened = opened.expect("it is whole");
        let keys = opened.keys().expect("they can be read");
        let terms = opened.terms().expect("they can be read");
        let (mut hashes, mut of_logs) = (Vec::new(), BTreeSet::new());
        let header = opened.header();
        for height in header.first..header.end() {
            let record = opened.record(height).expect("it can be unpacked");
            hashes.push(Key::new(&record.hash.0, Spot { height, transaction: None }));
            let transactions = (0..).zip(&record.transactions);
            let spot = |at| Spot { height, transaction: Some(at) };
            hashes.extend(transactions.map(|(at, hash)| Key::new(&hash.0, spot(at))));
            let low = |term: &u64| term & ((1 << 40) - 1);
            of_logs.extend(record.logs.iter().flatten().filter(|term| **term != 0).map(low));
        }
        assert_eq!(keys, hashes);
        assert!(!of_logs.is_empty() && terms.len() == of_logs.len());
        assert_eq!(BTreeSet::from_iter(terms), of_logs);
    }
}

/// Kind of the fault of a file that its neighbors are to prove, the lower one only if it `has_below`.
fn by_neighbors(packed: &PackedDir, file: usize, has_below: bool) -> Result<(), &'static str> {
    let below = has_below.then(|| opened(packed, file - 1));
    let (segment, above) = (opened(packed, file), opened(packed, file + 1));
    let above = (&above, u64::MAX);
    NeighborProof::default().prove(below.as_ref(), &segment, above).map_err(|(kind, _)| kind)
}

#[test]
fn segment_is_proven_if_the_proven_one_above_it_is_its_child() {
    let packed = PackedDir::new(3);
    assert_eq!([0, 1].map(|file| by_neighbors(&packed, file, false)), [Ok(()), Ok(())]);
    let forged = PackedDir::forged(3, RANGE, fail_at(5));
    assert_eq!(by_neighbors(&forged, 0, false), Ok(()), "only the header above counts");
    assert_eq!(by_neighbors(&forged, 1, false), Err("receipts_root"));
    // Blocks of another chain from height 8 on.
    let torn = PackedDir::torn(3, 8);
    assert_eq!(by_neighbors(&torn, 1, false), Err("settled_parent"));
}

#[test]
fn receipts_of_a_segment_are_proven_by_headers_above_it() {
    let (range, blocks) = (32, blocks_settled_later(96));
    let settled = settled_heights(&blocks);
    let whole = PackedDir::settled_later_of(3, range, |_, _| ());
    // Its first headers may settle receipts below it together with its own.
    let is_apart = settled.contains(&31);
    assert_eq!(by_neighbors(&whole, 1, false), if is_apart { Ok(()) } else { Err(UNPROVEN) });
    assert_eq!(by_neighbors(&whole, 1, true), Ok(()));
    assert!(settled[63] < 63, "a header of the segment above settles its last height");
    let succeeds = |at: &u64| success(blocks[*at as usize].receipts()).is_some();
    let last = (settled[63] + 1..64).rev().find(succeeds).expect("transactions succeed");
    let first = (32..64).find(succeeds).expect("transactions succeed");
    for height in [first, last] {
        let forged = PackedDir::settled_later_of(3, range, fail_at(height));
        let found = by_neighbors(&forged, 1, true);
        assert_eq!(found, Err("settled_receipts_root"), "{height}");
    }
}

/// A packed file whose directory has another hash at a height, and the number of heights that were unpacked.
fn relabeled(
    packed: &PackedDir,
    file: usize,
    other: Option<u64>,
) -> (OpenedFile, Arc<AtomicUsize>) {
    let unpacked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&unpacked);
    let change = |range| Box::new(Relabeled { range, other, unpacked: count }) as Box<_>;
    (opened(packed, file).changed(change), unpacked)
}

/// A search by hash believes the directory.
#[test]
fn hash_of_another_block_in_the_directory_is_a_fault() {
    let packed = PackedDir::new(3);
    let prove = |other| {
        let (segment, above) = (relabeled(&packed, 1, other).0, opened(&packed, 2));
        let proof = NeighborProof::default().prove(None, &segment, (&above, u64::MAX));
        proof.map_err(|(kind, _)| kind)
    };
    assert_eq!([None, Some(5)].map(prove), [Ok(()), Err("hash")]);
}

/// Blocks that are in no chain may take any time and memory.
#[test]
fn segment_that_is_not_linked_is_refused_at_its_last_height() {
    let torn = PackedDir::torn(3, 8);
    let (segment, unpacked) = relabeled(&torn, 1, None);
    let above = opened(&torn, 2);
    let proof = NeighborProof::default().prove(None, &segment, (&above, u64::MAX));
    assert_eq!(proof.map_err(|(kind, _)| kind), Err("settled_parent"));
    assert_eq!(unpacked.load(Ordering::Relaxed), 1);
}

/// Without Helicon the last block of a segment proves all of it.
#[test]
fn segment_with_the_anchor_is_linked_to_it_and_proven_if_its_header_settles_all() {
    let packed = PackedDir::new(3);
    let link = |packed: &PackedDir, height: u64, hash: Digest| {
        let anchor = Anchor { height, hash: hash.0.into() };
        NeighborProof::default().link(anchor, &opened(packed, 1)).map_err(|(kind, _)| kind)
    };
    let sixth = Digest(opened(&packed, 1).record(6).expect("it is whole").hash.0);
    assert_eq!(link(&packed, 7, last(&packed, 1)), Ok(true));
    assert_eq!(link(&packed, 6, sixth), Ok(false), "a block follows");
    assert_eq!(link(&packed, 6, last(&packed, 1)), Err("settled_parent"), "another block");
    let forged = PackedDir::forged(3, RANGE, fail_at(5));
    assert_eq!(link(&forged, 7, last(&forged, 1)), Err("receipts_root"));
    let later = PackedDir::settled_later(3, |_, _| ());
    assert_eq!(link(&later, 7, last(&later, 1)), Ok(false), "a later header settles some");
}

/// Blocks above the anchor may be of no chain.
#[test]
fn headers_above_the_anchor_settle_nothing() {
    let packed = PackedDir::settled_later_of(3, 32, |_, _| ());
    let (below, segment, above) = (opened(&packed, 0), opened(&packed, 1), opened(&packed, 2));
    let prove = |until| NeighborProof::default().prove(Some(&below), &segment, (&above, until));
    let settled = settled_heights(&blocks_settled_later(96));
    let settles = (64..96).find(|at| settled[*at as usize] >= 63).expect("a header settles it");
    assert_eq!(prove(settles).map_err(|(kind, _)| kind), Err(UNPROVEN));
    assert_eq!(prove(settles + 1), Ok(()));
}
