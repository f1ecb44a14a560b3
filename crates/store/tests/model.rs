//! The store against a plain map, over random histories of everything a writer can do.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use neve_store::disk::RealDisk;
use neve_store::{Error, Opened, Options, Record, Retention};
use proptest::prelude::*;

use crate::support::{
    self, IDENTITY, assert_clean, assert_exactly, block, every, fork, logs, naive_logs, open, terms,
};

#[derive(Debug, Clone)]
enum Step {
    Append(u8),
    Prepend(u8),
    Seal,
    Reopen,
    Merge,
    Evict(u8),
    Withdraw(u8),
    /// Packs the ranges that end so many heights below the head.
    Pack(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1_u8..30).prop_map(Step::Append),
        2 => (1_u8..30).prop_map(Step::Prepend),
        1 => Just(Step::Seal),
        2 => Just(Step::Reopen),
        2 => Just(Step::Merge),
        2 => (1_u8..60).prop_map(Step::Evict),
        1 => (0_u8..12).prop_map(Step::Withdraw),
        2 => (0_u8..12).prop_map(Step::Pack),
    ]
}

/// A question about logs: where in the served range it begins, how many heights, and which keys.
type Question = (u64, u64, Vec<Vec<u64>>);

fn question() -> impl Strategy<Value = Question> {
    // Keys of logs that are there, at times of some that are not, and 0, which no log has.
    let key =
        (0_u64..60, 0_u64..7, 0_usize..5).prop_map(|(height, at, place)| terms(height, at)[place]);
    let keys = prop::collection::vec(key, 0..5);
    (0_u64..100, 1_u64..60, prop::collection::vec(keys, 0..4))
}

fn assert_finds(reader: &neve_store::Reader, model: &BTreeMap<u64, Record>, question: &Question) {
    let (Some(first), Some(last)) = (model.keys().next(), model.keys().last()) else { return };
    let (start, count, criteria) = question;
    let start = first + start % (last - first + 1);
    let heights = start..=last.min(&(start + count - 1)).to_owned();
    let expected = naive_logs(model.range(heights.clone()).map(|(_, record)| record), criteria);
    assert_eq!(logs(reader, heights, criteria), expected, "{question:?}");
}

fn open_bound(dir: &Path, options: Options, packs: bool) -> Opened {
    let mut opened = support::open_as(Arc::new(RealDisk::new(dir)), options, packs);
    opened.writer.bind(IDENTITY, 1).unwrap();
    opened
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60 / every().min(60) as u32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_history_reads_like_a_map(
        start in 0_u64..150,
        segment_blocks in 1_u32..20,
        packs in any::<bool>(),
        steps in prop::collection::vec(step(), 1..25),
        questions in prop::collection::vec(question(), 8),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (segment_bytes, disk_reserve_bytes) = (64 << 10, 0);
        let options = Options { segment_blocks, segment_bytes, disk_reserve_bytes, expected: None };
        let mut opened = open_bound(dir.path(), options, packs);
        let mut model: BTreeMap<u64, Record> = BTreeMap::new();
        // All of the chain that was ever known: what is prepended after an eviction is the same.
        let mut chain: BTreeMap<u64, Record> = BTreeMap::new();
        let (mut branch, mut root) = (0, 0);
        for step in steps {
            match step {
                Step::Append(count) => for _ in 0..count {
                    let record = next(&model, start, branch);
                    opened.writer.append(&record).unwrap();
                    if model.is_empty() {
                        (root, chain) = (branch, BTreeMap::new());
                    }
                    chain.insert(record.height, record.clone());
                    model.insert(record.height, record);
                },
                Step::Prepend(count) => {
                    let Some(first) = model.keys().next().copied() else { continue };
                    let mut history = opened.writer.history().unwrap();
                    for height in first.saturating_sub(count.into())..first {
                        let record = chain.entry(height).or_insert_with(|| block(height, root));
                        history.append(record).unwrap();
                        model.insert(height, record.clone());
                    }
                    let built = history.finish().unwrap();
                    let heights = first.min(count.into());
                    match opened.writer.prepend(built) {
                        Ok(published) => prop_assert_eq!(published, heights),
                        Err(error) => prop_assert!(heights == 0, "{}", error),
                    }
                }
                Step::Seal => opened.writer.seal().unwrap(),
                Step::Merge => { opened.writer.merge_tables().unwrap(); }
                Step::Pack(back) => {
                    let Some(head) = model.keys().last() else { continue };
                    let settled = head.saturating_sub(back.into());
                    let packed = support::pack(&mut opened, settled).unwrap();
                    prop_assert!(packs || packed == 0);
                }
                Step::Reopen => {
                    drop(opened);
                    opened = open_bound(dir.path(), options, packs);
                    prop_assert_eq!(&opened.notes, &Vec::<String>::new());
                }
                Step::Evict(keep) => {
                    let retention = Retention { blocks: Some(keep.into()), ..Retention::default() };
                    let evicted = opened.writer.evict(&retention, 0).unwrap();
                    for _ in 0..evicted.heights {
                        model.pop_first();
                    }
                    let surplus = model.len().saturating_sub(usize::from(keep));
                    prop_assert!(surplus < segment_blocks as usize + 1, "{} left over", surplus);
                }
                Step::Withdraw(back) => {
                    let Some(head) = model.keys().last().copied() else { continue };
                    let from = head.saturating_sub(u64::from(back));
                    opened.writer.withdraw(from).unwrap();
                    model.split_off(&from);
                    chain.split_off(&from);
                    branch += 1;
                }
            }
            let records: Vec<Record> = model.values().cloned().collect();
            assert_exactly(&opened.reader, &records);
            questions.iter().for_each(|question| assert_finds(&opened.reader, &model, question));
        }
        opened.writer.sync().unwrap();
        assert_clean(dir.path());
    }
}

/// The next block for the model's head; after a withdrawal it is of a new branch.
fn next(model: &BTreeMap<u64, Record>, start: u64, branch: u64) -> Record {
    let Some(head) = model.values().last() else { return block(start, branch) };
    let next = block(head.height + 1, branch);
    Record { parent: head.hash, ..next }
}

#[test]
fn only_the_next_linked_height_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), support::small());
    opened.writer.append(&block(7, 0)).unwrap();
    for wrong in [6, 7, 9] {
        let error = opened.writer.append(&block(wrong, 0)).unwrap_err();
        assert_eq!(error.to_string(), format!("height {wrong} was appended, 8 is next"));
    }
    let error = opened.writer.append(&fork(8, 0, 1)).unwrap_err();
    assert!(matches!(error, Error::WrongParent { height: 8, .. }), "{error}");
    assert_exactly(&opened.reader, &[block(7, 0)]);
}

#[test]
fn limits_of_the_format_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), support::small());
    let limit = neve_store::HASHES_MAX;
    let transactions = |count: u64| (0..count).map(|at| support::hash(at, 77)).collect();
    let edge = Record { transactions: transactions(limit), ..block(0, 0) };
    opened.writer.append(&edge).unwrap();
    support::assert_holds(&opened.reader, &edge);
    let over = Record { transactions: transactions(limit + 1), ..block(1, 0) };
    let text = "block 1 has a transaction count of 65535, the format allows 65534";
    assert_eq!(opened.writer.append(&over).unwrap_err().to_string(), text);
    let parts = vec![neve_store::Part::default(); neve_store::PARTS_MAX + 1];
    let error = opened.writer.append(&Record { parts, ..block(1, 0) }).unwrap_err();
    assert_eq!(error.to_string(), "block 1 has a part count of 8, the format allows 7");
    let high = Record { height: 1 << 47, ..block(0, 0) };
    let other = tempfile::tempdir().unwrap();
    let error = open(other.path(), support::small()).writer.append(&high).unwrap_err();
    assert!(error.to_string().starts_with("block 140737488355328 has a height of"), "{error}");
}

#[test]
fn a_record_larger_than_a_segment_gets_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), support::small());
    let large =
        Record { parts: vec![neve_store::Part::uncompressed(vec![b'x'; 1 << 20])], ..block(1, 0) };
    let records = [block(0, 0), large, Record { parent: block(1, 0).hash, ..block(2, 0) }];
    records.iter().for_each(|record| opened.writer.append(record).unwrap());
    assert_exactly(&opened.reader, &records);
    drop(opened);
    assert_exactly(&open(dir.path(), support::small()).reader, &records);
    assert_clean(dir.path());
}

#[test]
fn a_second_writer_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path(), support::small());
    let error = neve_store::open(dir.path(), support::small()).err().unwrap();
    let text = format!("{} is in use by another neve: its lock file is held", dir.path().display());
    assert_eq!(error.to_string(), text);
    drop(opened);
    assert!(neve_store::open(dir.path(), support::small()).is_ok());
}

#[test]
fn removed_lock_file_lets_no_second_writer_in() {
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path(), support::small());
    std::fs::remove_file(dir.path().join("lock")).unwrap();
    for attempt in ["makes the file anew", "finds the file"] {
        let error = neve_store::open(dir.path(), support::small()).err();
        assert!(matches!(error, Some(Error::Locked { .. })), "{attempt}: {error:?}");
    }
    drop(opened);
    assert!(neve_store::open(dir.path(), support::small()).is_ok());
}

#[test]
fn another_chain_is_refused_and_both_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), support::small());
    opened.writer.append(&block(0, 0)).unwrap();
    let other = neve_store::Identity { chain_id: 43114, ..IDENTITY };
    let error = opened.writer.bind(other, 1).unwrap_err().to_string();
    assert!(error.contains("chain 43112") && error.contains("chain 43114"), "{error}");
    drop(opened);
    let options = Options { expected: Some(other), ..support::small() };
    let error = neve_store::open(dir.path(), options).err().unwrap().to_string();
    assert!(error.contains("chain 43112") && error.contains("chain 43114"), "{error}");
}

#[test]
fn a_lost_stamp_comes_back_from_the_segments() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), support::small());
    opened.writer.append(&block(0, 0)).unwrap();
    drop(opened);
    std::fs::remove_file(dir.path().join("stamp")).unwrap();
    let opened = neve_store::open(dir.path(), support::small()).unwrap();
    assert_eq!(opened.writer.stamp().map(|stamp| stamp.identity), Some(IDENTITY));
    assert_exactly(&opened.reader, &[block(0, 0)]);
    assert_clean(dir.path());
}

/// Expects an unbound store: the stamp comes with `bind`.
#[test]
fn an_expected_chain_is_not_stamped_before_it_is_bound() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { expected: Some(IDENTITY), ..support::small() };
    let mut opened = neve_store::open(dir.path(), options).unwrap();
    assert_eq!(opened.writer.stamp(), None);
    let error = opened.writer.append(&block(0, 0)).unwrap_err();
    assert_eq!(error.to_string(), "the store is not bound to a chain yet");
    opened.writer.bind(IDENTITY, 0).unwrap();
    opened.writer.append(&block(0, 0)).unwrap();
    assert_clean(dir.path());
}

#[test]
fn options_out_of_range_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let refuse = |options| neve_store::open(dir.path(), options).err().unwrap().to_string();
    let none = refuse(Options { segment_blocks: 0, ..support::small() });
    assert_eq!(none, "segment_blocks is 0, allowed is 1 to 1048576");
    let tiny = refuse(Options { segment_bytes: 1, ..support::small() });
    assert_eq!(tiny, "segment_bytes is 1, allowed is 65536 to 68719476736");
}
