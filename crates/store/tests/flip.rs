//! Flip any single byte of a store: `verify` finds it, or the format says that it is never read.

use std::array::from_fn;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use neve_store::{Options, Record};

use crate::support::{
    self, Files, assert_clean, block, every, injected, open, small, terms, verify,
};

/// Threads that share a long test.
const THREADS: usize = 2;

/// A store with sealed segments, a merged table and an active segment.
fn store(dir: &Path) {
    let mut opened = open(dir, Options { segment_blocks: 2, ..small() });
    (0..19).for_each(|height| opened.writer.append(&block(height, 0)).unwrap());
    assert_eq!(opened.writer.merge_tables().unwrap(), 1);
    assert_clean(dir);
}

/// Bytes that FORMAT.md calls unused: in a segment, those behind the last record or section.
fn unused_from(path: &Path, bytes: &[u8]) -> usize {
    if path.extension().is_none_or(|extension| extension != "seg") {
        return bytes.len();
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    if bytes[512] != 0 {
        return word(544); // the seal's end of sections
    }
    let slots = bytes[4096..word(64)].chunks(64).take_while(|slot| slot.iter().any(|b| *b != 0));
    let slot = slots.last().expect("the active segment has records");
    let offset = u64::from_le_bytes(slot[..8].try_into().unwrap());
    let length = u32::from_le_bytes(slot[8..12].try_into().unwrap());
    (offset + u64::from(length)).next_multiple_of(8) as usize
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Flips every second of the bytes that are due, from this one, in a store of its own. Returns the numbers of bytes that were
/// found, and of those that are never read.
fn flip(first: usize) -> (usize, usize) {
    let dir = support::fresh_dir();
    store(dir.path());
    let (mut found, mut unused) = (0, 0);
    for path in files(dir.path()) {
        let good = fs::read(&path).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        let end = unused_from(&path, &good);
        unused += good.len() - end;
        // Of the unused bytes a few: the first, the last, and one in the middle.
        let beyond = [end, usize::midpoint(end, good.len()), good.len().wrapping_sub(1)];
        let used = (first..end).step_by(every() * THREADS);
        for at in used.chain(beyond.into_iter().filter(|at| (end..good.len()).contains(at))) {
            file.write_all_at(&[good[at] ^ (1 << (at % 8))], at as u64).unwrap();
            let findings = verify(dir.path()).findings;
            let what = format!("byte {at} of {}", path.display());
            assert_eq!(findings.is_empty(), at >= end, "{what}: {findings:?}");
            found += usize::from(!findings.is_empty());
            file.write_all_at(&[good[at]], at as u64).unwrap();
        }
    }
    assert_clean(dir.path());
    (found, unused)
}

#[test]
fn any_flipped_byte_is_found_or_unused() {
    let counts = thread::scope(|scope| {
        let threads: [_; THREADS] = from_fn(|at| scope.spawn(move || flip(at * every())));
        threads.map(|thread| thread.join().unwrap())
    });
    let found: usize = counts.iter().map(|(found, _)| found).sum();
    injected(found, "flipped bytes");
    assert!(found * every() > 10_000, "only {found} bytes were found");
    assert!(counts.iter().all(|(_, unused)| *unused > 0));
}

/// Checks opening too: every byte that is served was stored.
#[test]
fn a_flipped_byte_never_makes_opening_panic_or_serve_another_block() {
    thread::scope(|scope| {
        let threads: [_; THREADS] = from_fn(|at| scope.spawn(move || open_flipped(at * every())));
        threads.map(|thread| thread.join().unwrap())
    });
}

/// Opens a store with every second of the bytes that are due flipped, from this one.
fn open_flipped(first: usize) {
    let dir = support::fresh_dir();
    let (live, copy) = (dir.path().join("live"), dir.path().join("copy"));
    store(&live);
    let saved = Files::of(&live);
    let blocks: Vec<_> = (0..19).map(|height| block(height, 0)).collect();
    for path in files(&live) {
        let good = fs::read(&path).unwrap();
        let end = unused_from(&path, &good);
        // Headers and index byte by byte, the rest in steps.
        let steps = (0..end).filter(|at| at % 31 == 0 || (at % 3 == 0 && *at < 4352));
        for at in steps.skip(first).step_by(every() * THREADS) {
            fs::create_dir_all(&copy).unwrap();
            saved.write(&copy);
            let flipped = copy.join(path.file_name().unwrap());
            let flipped = fs::File::options().write(true).open(flipped).unwrap();
            flipped.write_all_at(&[good[at] ^ 0x41], at as u64).unwrap();
            // A damaged stamp refuses to open: that is an answer too.
            if let Ok(opened) = neve_store::open(&copy, small()) {
                let head = opened.reader.range().map(|range| *range.end());
                assert!(head.is_none_or(|head| head <= 18));
                blocks.iter().for_each(|block| assert_true_or_absent(&opened.reader, block));
            }
            fs::remove_dir_all(&copy).unwrap();
        }
    }
}

#[test]
fn copied_segment_file_can_be_verified_alone() {
    let dir = support::fresh_dir();
    store(dir.path());
    let copy = dir.path().join("somewhere-else.bin");
    fs::copy(dir.path().join("00000000000000000004.seg"), &copy).unwrap();
    let mut heard = support::Heard::default();
    let summary = neve_store::verify::segment(&copy, &mut heard).unwrap();
    assert_eq!((summary.records, summary.range), (2, Some((4, 5))));
    assert_eq!(heard.findings, []);
    let mut bytes = fs::read(&copy).unwrap();
    bytes[4096 + 128 + 100] ^= 1;
    fs::write(&copy, &bytes).unwrap();
    neve_store::verify::segment(&copy, &mut heard).unwrap();
    assert_eq!(heard.findings[0].kind, "record");
    assert_eq!(heard.findings[0].height, Some(4));
    assert_eq!(heard.findings[0].file, "somewhere-else.bin");
}

#[test]
fn a_missing_segment_and_a_foreign_one_are_findings() {
    let dir = support::fresh_dir();
    store(dir.path());
    let gone = dir.path().join("00000000000000000004.seg");
    let aside = dir.path().join("aside");
    fs::rename(&gone, &aside).unwrap();
    let kinds: Vec<_> = verify(dir.path()).findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, ["gap", "merged_table"]);
    fs::rename(&aside, &gone).unwrap();
    fs::write(dir.path().join("stamp"), stamp_of_another_chain()).unwrap();
    let findings = verify(dir.path()).findings;
    assert!(findings.iter().all(|finding| finding.kind == "identity"), "{findings:?}");
    assert_eq!(findings.len(), 10);
}

/// A merged table that speaks of other blocks at the same heights would hide those that are here.
#[test]
fn a_table_of_other_blocks_is_a_finding_and_is_removed_at_opening() {
    let dir = support::fresh_dir();
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    for (dir, branch) in [(&here, 0), (&there, 1)] {
        let mut opened = open(dir, Options { segment_blocks: 2, ..small() });
        (0..19).for_each(|height| opened.writer.append(&block(height, branch)).unwrap());
        opened.writer.merge_tables().unwrap();
    }
    let name = "00000000000000000000-00000000000000000015.idx";
    fs::copy(there.join(name), here.join(name)).unwrap();
    assert_eq!(verify(&here).findings.len(), 1);
    let opened = neve_store::open(&here, small()).unwrap();
    let blocks: Vec<_> = (0..19).map(|height| block(height, 0)).collect();
    support::assert_exactly(&opened.reader, &blocks);
    assert!(!here.join(name).exists());
}

/// The header of a table in the form of version 1, with a table of one home behind it.
fn table_of_version_1(header: &[u8]) -> Vec<u8> {
    let body = [&[1_u64, 0].map(u64::to_le_bytes).concat()[..], &[0; 16]].concat();
    let mut old = header[..80].to_vec();
    old[8..12].copy_from_slice(&1_u32.to_le_bytes());
    old[40..48].copy_from_slice(&(body.len() as u64).to_le_bytes());
    old.extend(crc32fast::hash(&body).to_le_bytes());
    old.extend(crc32fast::hash(&old).to_le_bytes());
    old.resize(4096, 0);
    [old, body].concat()
}

fn table_of_version_3(header: &[u8]) -> Vec<u8> {
    let mut new = header.to_vec();
    new[8..12].copy_from_slice(&3_u32.to_le_bytes());
    let crc = crc32fast::hash(&new[..92]);
    new[92..96].copy_from_slice(&crc.to_le_bytes());
    new
}

/// An upgrade and a downgrade: tables are derived, so one of another version is made again.
#[test]
fn table_of_another_version_is_replaced() {
    for other in [table_of_version_1, table_of_version_3] {
        let dir = support::fresh_dir();
        store(dir.path());
        let name = "00000000000000000000-00000000000000000015.idx";
        let path = dir.path().join(name);
        let good = fs::read(&path).unwrap();
        fs::write(&path, other(&good)).unwrap();
        let kinds: Vec<_> = verify(dir.path()).findings.iter().map(|found| found.kind).collect();
        assert_eq!(kinds, ["merged_table"]);
        let mut opened = open(dir.path(), Options { segment_blocks: 2, ..small() });
        assert!(!path.exists() && opened.notes.is_empty());
        let blocks: Vec<_> = (0..19).map(|height| block(height, 0)).collect();
        support::assert_exactly(&opened.reader, &blocks);
        assert_eq!(opened.writer.merge_tables().unwrap(), 1);
        assert_eq!(fs::read(&path).unwrap(), good);
        support::assert_exactly(&opened.reader, &blocks);
        drop(opened);
        assert_clean(dir.path());
    }
}

/// A table has parts of hashes, so what it finds is compared with the whole hash.
#[test]
fn hash_that_begins_like_another_one_is_not_found() {
    let dir = support::fresh_dir();
    store(dir.path());
    let opened = open(dir.path(), small());
    let one = block(9, 0);
    assert!(opened.reader.block(&one.hash).is_some());
    for byte in [0, 8, 31] {
        let changed = |hash: &neve_store::Hash| {
            let mut hash = *hash;
            hash.0[byte] ^= 1; // of the first byte no table has this bit
            hash
        };
        assert!(opened.reader.block(&changed(&one.hash)).is_none());
        assert!(opened.reader.transaction(&changed(&one.transactions[2])).is_none());
    }
}

fn stamp_of_another_chain() -> String {
    let identity = neve_store::Identity { chain_id: 1, ..support::IDENTITY };
    neve_store::Stamp { identity, rules: 0 }.to_text()
}

/// The record is not there, or its head is right: parts are `verify`'s to check, the index and
/// the hash tables must not lead astray.
fn assert_true_or_absent(reader: &neve_store::Reader, block: &Record) {
    let height = block.height;
    if let Some(found) = reader.record(height) {
        found.part(4).slice.as_ref();
        assert_eq!(found.height(), height);
    }
    if let Some(found) = reader.block(&block.hash) {
        assert_eq!((found.height(), found.hash()), (height, block.hash));
    }
    let logs = |heights| support::logs(reader, heights, &[vec![terms(2, 1)[0], terms(3, 0)[0]]]);
    if reader.record(height).is_some() {
        logs(height..=height); // whatever is found: it must not panic
    }
    for (at, hash) in block.transactions.iter().enumerate() {
        if let Some((found, position)) = reader.transaction(hash) {
            assert_eq!((found.height(), position), (height, at));
        }
    }
}
