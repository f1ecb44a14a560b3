//! Logs by terms: what a damaged index leads to, and what goes on during a search.

use std::fs;
use std::path::Path;

use neve_store::{Criteria, LogAt, Options, Record, Retention, SearchError};

use crate::support::{block, every, logs, naive_logs, open, small, terms};

/// A sealed segment of twenty heights.
fn sealed(dir: &Path) -> Vec<Record> {
    let records: Vec<_> = (0..20).map(|height| block(height, 0)).collect();
    let mut opened = open(dir, Options { segment_blocks: 20, ..small() });
    records.iter().for_each(|record| opened.writer.append(record).unwrap());
    opened.writer.seal().unwrap();
    records
}

fn questions() -> Vec<Vec<Vec<u64>>> {
    let key = |height, at, place: usize| terms(height, at)[place];
    let all = (0..20).flat_map(|height| (0..6).map(move |at| (height, at)));
    let each =
        all.flat_map(|(height, at)| (0..5).map(move |place| vec![vec![key(height, at, place)]]));
    let both =
        (0..20).map(|height| vec![vec![key(height, 0, 0), key(1, 1, 0)], vec![key(height, 0, 1)]]);
    each.chain(both).chain([vec![], vec![vec![]], vec![vec![0]], vec![vec![12345]]]).collect()
}

fn assert_finds_all(dir: &Path, records: &[Record], what: &str) {
    let opened = neve_store::open(dir, small()).unwrap();
    for question in questions() {
        let found = logs(&opened.reader, 0..=19, &question);
        assert_eq!(found, naive_logs(records, &question), "{what}: {question:?}");
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

#[test]
fn a_damaged_index_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let records = sealed(dir.path());
    let path = dir.path().join("00000000000000000000.seg");
    let good = fs::read(&path).unwrap();
    let section = 584 + 32; // the second entry of the seal's section table
    assert_eq!(good[section], 2);
    let (offset, length) = (word(&good, section + 8), word(&good, section + 16));
    for at in (offset..offset + length).step_by(every()) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, &bad).unwrap();
        assert_finds_all(dir.path(), &records, &format!("byte {at}"));
    }
}

#[test]
fn without_an_index_the_records_are_asked() {
    let dir = tempfile::tempdir().unwrap();
    let records = sealed(dir.path());
    let path = dir.path().join("00000000000000000000.seg");
    let good = fs::read(&path).unwrap();
    // A section that is missing, of another kind, in another encoding, of another length.
    for (at, value) in [(524, 1), (616, 77), (616 + 4, 1), (616 + 16, 8)] {
        let mut other = good.clone();
        other[at] = value;
        let crc = crc32fast::hash(&other[512..712]);
        other[712..716].copy_from_slice(&crc.to_le_bytes());
        fs::write(&path, &other).unwrap();
        let opened = neve_store::open(dir.path(), small()).unwrap();
        assert_eq!(opened.notes, Vec::<String>::new(), "the seal is believed");
        drop(opened);
        assert_finds_all(dir.path(), &records, &format!("offset {at}"));
    }
}

/// The index answers, not the records: an index that is whole and says nothing finds nothing.
#[test]
fn a_whole_index_is_used() {
    let dir = tempfile::tempdir().unwrap();
    sealed(dir.path());
    let path = dir.path().join("00000000000000000000.seg");
    let mut bytes = fs::read(&path).unwrap();
    let (offset, length) = (word(&bytes, 616 + 8), word(&bytes, 616 + 16));
    let keys = u32::from_le_bytes(bytes[offset + 4..offset + 8].try_into().unwrap()) as usize;
    bytes[offset + 8..offset + 8 + 8 * keys].fill(0);
    let crc = crc32fast::hash(&bytes[offset..offset + length]);
    bytes[616 + 24..616 + 28].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32fast::hash(&bytes[512..712]);
    bytes[712..716].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let opened = neve_store::open(dir.path(), small()).unwrap();
    let question = [vec![terms(1, 1)[0], terms(2, 2)[0]]];
    assert_eq!(logs(&opened.reader, 0..=19, &question), []);
    assert_ne!(logs(&opened.reader, 1..=1, &question), [], "one height is compared");
}

#[test]
fn search_in_progress_still_finds_evicted_and_withdrawn_logs() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), Options { segment_blocks: 8, ..small() });
    let records: Vec<_> = (0..45).map(|height| block(height, 0)).collect();
    records.iter().for_each(|record| opened.writer.append(record).unwrap());
    let question = [vec![terms(1, 1)[0], terms(2, 2)[0]]];
    let criteria = Criteria::new(question.to_vec());
    let mut looking = opened.reader.logs(0..=44, &criteria);
    let mut found: Vec<_> = looking.by_ref().take(2).map(Result::unwrap).collect();
    let retention = Retention { blocks: Some(20), ..Retention::default() };
    assert!(opened.writer.evict(&retention, 0).unwrap().segments > 1);
    opened.writer.withdraw(35).unwrap();
    (35..60).for_each(|height| {
        let next = block(height, 1);
        let parent = opened.writer.head().unwrap().1;
        opened.writer.append(&Record { parent, ..next }).unwrap();
    });
    assert!(looking.record(0).unwrap().is_some() && opened.reader.record(0).is_none());
    found.extend(looking.map(Result::unwrap));
    let found: Vec<_> = found.iter().map(|LogAt { height, index }| (*height, *index)).collect();
    assert_eq!(found, naive_logs(&records, &question));
    let gone = opened.reader.logs(0..=44, &criteria).next();
    assert_eq!(gone, Some(Err(SearchError::Unreadable { height: 0 })));
}

/// More logs than a window has, in heights that have them all at once and in some that have none.
#[test]
fn windows_join_without_a_seam() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { segment_blocks: 64, segment_bytes: 64 << 20, ..small() };
    let mut opened = open(dir.path(), options);
    let many = |height: u64, count: u64| Record {
        logs: (0..count).map(|at| [7, 8 + at % 3, 0, 0, 100 + height]).collect(),
        ..block(height, 0)
    };
    let counts = [0, 70_000, 1, 0, 60_000, 2_000, 140_000, 0, 0, 3, 131_072, 131_071, 1, 1, 5];
    let records: Vec<_> = (0..).zip(counts).map(|(height, count)| many(height, count)).collect();
    records.iter().for_each(|record| opened.writer.append(record).unwrap());
    for sealed in [false, true] {
        if sealed {
            opened.writer.seal().unwrap();
        }
        for question in [vec![vec![7]], vec![vec![8, 9], vec![7]], vec![vec![106], vec![10]]] {
            let found = logs(&opened.reader, 0..=14, &question);
            assert!(found == naive_logs(&records, &question), "{question:?}, sealed: {sealed}");
        }
    }
}
