//! Proof of an archive: forged contents with right digests, and links to a block that is known.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use neve_archive::Digest;
use neve_record::packed::Codec;

use super::fault_store::{Fault, FaultStore};
use super::packed_dir::{PackedDir, RANGE, write};
use super::support::{archive, pushed, run};
use crate::archive::local::Opened;
use crate::archive::verify::{Finding, Proving, Verified, verify};
use crate::config::Anchor;

/// Hash of the last block of a packed file.
fn last(packed: &PackedDir, file: usize) -> Digest {
    let bytes = fs::read(&packed.files[file]).expect("it is there");
    Opened::of(&Codec::default(), bytes).expect("it is whole").last().expect("it has blocks")
}

/// Proof that leads to a block.
fn up_to(height: u64, hash: Digest) -> Proving {
    Proving::new(Some(Anchor { height, hash: hash.0.into() }))
}

/// Pushes packed files and reads all of the archive.
fn checked(packed: &PackedDir, proving: Option<Proving>) -> (Verified, Vec<Finding>) {
    run(async {
        let archive = archive(&Arc::new(FaultStore::new(Fault::None)));
        pushed(&archive, packed.path()).await.expect("it can be pushed");
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

/// All digests and checksums are those of the forged bytes.
#[test]
fn forged_receipts_pass_a_check_of_digests_and_fail_the_proof() {
    let status = b"\"status\":\"0x1\"";
    let forged = PackedDir::forged(3, RANGE, |height, receipts| {
        let at = receipts.windows(status.len()).position(|text| text == status);
        if let (true, Some(at)) = (height == 5, at) {
            receipts[at + status.len() - 2] = b'0';
        }
    });
    assert_eq!(checked(&forged, None).0.findings, 0);
    let (found, faults) = checked(&forged, Some(Proving::new(None)));
    assert_eq!((found.findings, found.proven), (1, Some((8, 11))), "{faults:?}");
    assert!(faults[0].object.contains("/segment-4-"), "{faults:?}");
    assert!(faults[0].detail.starts_with("height 5: "), "{faults:?}");
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
        let opened = Opened::of(&Codec::default(), fs::read(path).expect("it is there"));
        let opened = opened.expect("it is whole");
        let (keys, terms) = opened.keys().expect("they can be read");
        let (mut hashes, mut of_logs) = (Vec::new(), BTreeSet::new());
        let header = opened.header();
        for height in header.first..header.end() {
            let record = opened.record(height).expect("it can be unpacked");
            hashes.push((record.hash.0, height, None));
            let transactions = (0..).zip(&record.transactions);
            hashes.extend(transactions.map(|(at, hash)| (hash.0, height, Some(at))));
            let low = |term: &u64| term & ((1 << 40) - 1);
            of_logs.extend(record.logs.iter().flatten().filter(|term| **term != 0).map(low));
        }
        let keys: Vec<_> =
            keys.iter().map(|key| (key.hash, key.at.height, key.at.transaction)).collect();
        assert_eq!(keys, hashes);
        assert!(!of_logs.is_empty() && terms.len() == of_logs.len());
        assert_eq!(BTreeSet::from_iter(terms), of_logs);
    }
}
