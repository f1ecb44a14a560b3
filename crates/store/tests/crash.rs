//! Every prefix of the writes of append, roll, seal, prepend, merge, evict, withdraw and pack, as a killed
//! process and as lost power leave it: the store opens, serves an unbroken range and nothing
//! false, verifies clean and goes on.
//!
//! What it guards against: a slot that outlives its record; a seal that outlives its data; a
//! dropped record that comes back behind its successor; a removal in the wrong order that tears
//! the range; a merged table that hides blocks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use neve_store::disk::RealDisk;
use neve_store::{Opened, Record, Retention};

use crate::support::crash::Image;
use crate::support::{
    self, Done, Recorder, assert_clean, assert_holds, block, every, injected, logs, naive_logs,
    open_as, small,
};

/// The store as its caller knows it after so many operations.
#[derive(Clone, Default)]
struct Known {
    ops: usize,
    records: BTreeMap<u64, Record>,
    /// Heights for which `sync` has returned.
    synced: Option<(u64, u64)>,
}

/// Drives a store through `history` and remembers every operation and what was known after it.
struct Run {
    recorder: Arc<Recorder>,
    opened: Opened,
    known: Vec<Known>,
    branch: u64,
    packs: bool,
}

impl Run {
    fn new(dir: &Path, packs: bool) -> Self {
        let recorder = Recorder::new(dir);
        let opened = recorder.open_as(options(), packs);
        let known = vec![Known { ops: recorder.len(), ..Known::default() }];
        Self { recorder, opened, known, branch: 0, packs }
    }

    fn now(&self) -> Known {
        self.known.last().unwrap().clone()
    }

    fn note(&mut self, mut known: Known) {
        known.ops = self.recorder.len();
        self.known.push(known);
    }

    fn append(&mut self, count: u64) {
        for _ in 0..count {
            let mut known = self.now();
            let head = known.records.values().last();
            let next = block(head.map_or(100, |head| head.height + 1), self.branch);
            let next = Record { parent: head.map_or(next.parent, |head| head.hash), ..next };
            self.opened.writer.append(&next).unwrap();
            known.records.insert(next.height, next);
            self.note(known);
        }
    }

    fn sync(&mut self) {
        self.opened.writer.sync().unwrap();
        let mut known = self.now();
        let heights = || known.records.keys().copied();
        known.synced = heights().next().zip(heights().last());
        self.note(known);
    }

    /// Builds so many heights below the first one, and publishes them.
    fn prepend(&mut self, count: u64) {
        let mut known = self.now();
        let first = *known.records.keys().next().unwrap();
        let mut history = self.opened.writer.history().unwrap();
        for height in first - count..first {
            history.append(&block(height, 0)).unwrap();
            self.note(known.clone()); // no reader sees anything of it yet
        }
        let built = history.finish().unwrap();
        self.note(known.clone());
        assert_eq!(self.opened.writer.prepend(built).unwrap(), count);
        known.records.extend((first - count..first).map(|height| (height, block(height, 0))));
        self.note(known);
    }

    /// Builds so many heights below the first one, and gives up.
    fn build_in_vain(&mut self, count: u64) {
        let known = self.now();
        let first = *known.records.keys().next().unwrap();
        let mut history = self.opened.writer.history().unwrap();
        (first - count..first).for_each(|height| history.append(&block(height, 0)).unwrap());
        drop(history.finish().unwrap());
        self.note(known);
    }

    fn evict(&mut self, keep: u64) {
        let retention = Retention { blocks: Some(keep), ..Retention::default() };
        let evicted = self.opened.writer.evict(&retention, 0).unwrap();
        assert!(evicted.segments > 0, "the history should evict something");
        let mut known = self.now();
        (0..evicted.heights).for_each(|_| drop(known.records.pop_first()));
        self.note(known);
    }

    fn withdraw(&mut self, from: u64) {
        self.opened.writer.withdraw(from).unwrap();
        let mut known = self.now();
        known.records.split_off(&from);
        known.synced = known.synced.map(|(first, last)| (first, last.min(from - 1)));
        self.branch += 1;
        self.note(known);
    }

    /// Packs all whole ranges of two, if this store packs.
    fn pack(&mut self) {
        let known = self.now();
        let last = *known.records.keys().last().unwrap();
        let packed = support::pack(&mut self.opened, last).unwrap();
        assert_eq!(packed > 0, self.packs, "the history should pack");
        self.note(known);
    }

    fn merge(&mut self) {
        assert!(self.opened.writer.merge_tables().unwrap() > 0, "the history should merge");
        let known = self.now();
        self.note(known);
    }
}

/// Returns the bounds of the store's content when `ops` operations were done: the content known when the
/// last call returned, and that which the running call would have made.
fn bounds(known: &[Known], ops: usize) -> (&Known, &Known) {
    let after = known.partition_point(|known| known.ops <= ops);
    let before = &known[after.saturating_sub(1)];
    (before, known.get(after).unwrap_or(before))
}

/// Opens the image in `dir` and checks it against what its caller knew. Returns 1, for a count of images.
fn check(dir: &Path, known: &[Known], ops: usize, power_lost: bool, packs: bool) -> usize {
    let opened = open_as(Arc::new(RealDisk::new(dir)), options(), packs);
    let (before, after) = bounds(known, ops);
    let range = opened.reader.range();
    for height in range.clone().into_iter().flatten() {
        let found = opened.reader.record(height).unwrap();
        let candidates = [before.records.get(&height), after.records.get(&height)];
        let record = candidates.into_iter().flatten().find(|record| record.hash == found.hash());
        assert_holds(&opened.reader, record.unwrap_or_else(|| panic!("{height} is nobody's")));
    }
    if let Some(range) = range.clone() {
        assert_finds_logs(&opened.reader, range);
    }
    // What both sides of the interrupted call hold must be there; of a powerless store only what
    // was synced.
    let must = |height: &u64| {
        let kept = after.records.contains_key(height) && before.records.contains_key(height);
        let synced = before.synced.is_some_and(|(first, last)| (first..=last).contains(height));
        kept && (!power_lost || synced)
    };
    for height in before.records.keys().filter(|height| must(height)) {
        let there = range.as_ref().is_some_and(|range| range.contains(height));
        assert!(there, "height {height} is lost, the range is {range:?}");
    }
    // Without a height there may be a quarantined file alone, which is a finding.
    if range.is_some() && dir.join("stamp").exists() {
        assert_clean(dir);
    }
    go_on(opened);
    1
}

/// The indexes find what the records have.
fn assert_finds_logs(reader: &neve_store::Reader, range: std::ops::RangeInclusive<u64>) {
    let records: Vec<Record> = range
        .clone()
        .filter_map(|height| reader.record(height))
        .map(|found| Record {
            height: found.height(),
            logs: found.terms().unwrap().collect(),
            ..Record::default()
        })
        .collect();
    for key in records.iter().flat_map(|record| record.logs.iter().flatten()).take(12) {
        let question = [vec![*key]];
        assert_eq!(logs(reader, range.clone(), &question), naive_logs(&records, &question));
    }
}

/// A store that came back takes the next heights.
fn go_on(mut opened: Opened) {
    opened.writer.bind(support::IDENTITY, 1).unwrap();
    let head = opened.writer.head();
    let mut parent = head.map(|(_, hash)| hash);
    let first = head.map_or(7, |(height, _)| height + 1);
    for height in first..first + 6 {
        let next = block(height, 99);
        let next = Record { parent: parent.unwrap_or(next.parent), ..next };
        opened.writer.append(&next).unwrap();
        assert_holds(&opened.reader, &next);
        parent = Some(next.hash);
    }
}

fn history(dir: &Path, packs: bool) -> (Vec<Done>, Vec<Known>) {
    let mut run = Run::new(dir, packs);
    run.append(3);
    run.sync();
    run.prepend(5); // not synced, and then eviction of it
    run.append(18);
    run.pack();
    run.merge(); // span 2: at least eight sealed segments by now
    run.append(3);
    run.sync();
    run.build_in_vain(3);
    run.prepend(19); // span 2: below the merged table, and merged in turn
    run.merge();
    run.append(1);
    run.pack();
    run.sync();
    run.evict(12);
    run.append(1);
    run.withdraw(121); // inside the active segment or the one before
    run.append(4);
    run.pack();
    run.withdraw(115); // across sealed segments, or into a packed one
    run.append(5);
    run.sync();
    run.evict(4);
    run.append(1);
    assert_clean(dir);
    let done = run.recorder.done.lock().unwrap().clone();
    (done, run.known)
}

/// Segments of two heights from an odd one on, of a store that did not pack, and then packs.
fn history_across_ranges(dir: &Path) -> (Vec<Done>, Vec<Known>) {
    let mut run = Run::new(dir, false);
    run.append(1);
    run.opened.writer.seal().unwrap();
    run.append(20);
    run.sync();
    run.merge();
    let Run { recorder, opened, known, branch, .. } = run;
    drop(opened);
    let opened = recorder.open_as(options(), true);
    let mut run = Run { recorder, opened, known, branch, packs: true };
    run.pack();
    assert_eq!(run.opened.reader.usage().packed_blocks, 18, "100 to 117");
    run.append(3);
    run.sync();
    run.evict(12);
    run.pack();
    assert_clean(dir);
    let done = run.recorder.done.lock().unwrap().clone();
    (done, run.known)
}

fn options() -> neve_store::Options {
    neve_store::Options { segment_blocks: 2, ..small() }
}

type History = (Vec<Done>, Vec<Known>);

fn each_kill(packs: bool, history: impl Fn(&Path) -> History) {
    let dir = support::fresh_dir();
    let (done, known) = history(&dir.path().join("live"));
    let (mut image, mut count) = (Image::new(), 0);
    for ops in 0..=done.len() {
        if ops.is_multiple_of(every()) {
            let at = dir.path().join(format!("killed-{ops}"));
            image.killed(&at);
            count += check(&at, &known, ops, false, packs);
            std::fs::remove_dir_all(&at).unwrap();
        }
        if let Some(next) = done.get(ops) {
            image.apply(next);
        }
    }
    injected(count, "kills after an operation");
}

fn each_torn_write(packs: bool) {
    let dir = support::fresh_dir();
    let (done, known) = history(&dir.path().join("live"), packs);
    let (mut image, mut count) = (Image::new(), 0);
    for (ops, next) in done.iter().enumerate() {
        if let Done::Write(name, offset, bytes) = next
            && ops.is_multiple_of(every())
        {
            for cut in [1, bytes.len() / 2, bytes.len() - 1] {
                let mut torn = image.clone();
                torn.apply(&Done::Write(name.clone(), *offset, bytes[..cut].to_vec()));
                let at = dir.path().join(format!("torn-{ops}-{cut}"));
                torn.killed(&at);
                count += check(&at, &known, ops, false, packs);
                std::fs::remove_dir_all(&at).unwrap();
            }
        }
        image.apply(next);
    }
    injected(count, "torn writes");
}

fn each_loss_of_power(packs: bool, history: impl Fn(&Path) -> History) {
    let dir = support::fresh_dir();
    let (done, known) = history(&dir.path().join("live"));
    let (mut image, mut count) = (Image::new(), 0);
    let mut state = support::from_variable("NEVE_POWER_SEED", 1);
    eprintln!("NEVE_POWER_SEED={state}");
    // The other history has most of the steps.
    let rounds = support::from_variable("NEVE_POWER_ROUNDS", if packs { 2 } else { 6 });
    for ops in 0..=done.len() {
        for round in 0..if ops.is_multiple_of(every()) { rounds } else { 0 } {
            let at = dir.path().join(format!("powerless-{ops}-{round}"));
            image.powerless(&at, |sides| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % sides
            });
            count += check(&at, &known, ops, true, packs);
            std::fs::remove_dir_all(&at).unwrap();
        }
        if let Some(next) = done.get(ops) {
            image.apply(next);
        }
    }
    injected(count, "losses of power");
}

#[test]
fn killed_after_any_operation() {
    each_kill(false, |dir| history(dir, false));
}

#[test]
fn killed_after_any_operation_of_a_store_that_packs() {
    each_kill(true, |dir| history(dir, true));
}

#[test]
fn killed_after_any_operation_while_segments_are_split() {
    each_kill(true, history_across_ranges);
}

#[test]
fn power_lost_after_any_operation_while_segments_are_split() {
    each_loss_of_power(true, history_across_ranges);
}

#[test]
fn killed_in_the_middle_of_any_write() {
    each_torn_write(false);
}

#[test]
fn killed_in_the_middle_of_any_write_of_a_store_that_packs() {
    each_torn_write(true);
}

#[test]
fn power_lost_after_any_operation() {
    each_loss_of_power(false, |dir| history(dir, false));
}

#[test]
fn power_lost_after_any_operation_of_a_store_that_packs() {
    each_loss_of_power(true, |dir| history(dir, true));
}

/// Recovery writes too: kill it after each of its own operations.
#[test]
fn killed_during_recovery() {
    let dir = support::fresh_dir();
    let (done, known) = history(&dir.path().join("live"), false);
    let (mut image, mut count, mut openings) = (Image::new(), 0, 0);
    for (ops, next) in done.iter().enumerate() {
        // A slot of garbage gives recovery something to do.
        if let Done::Write(name, offset, _) = next
            && (4096..4096 + 2 * 64).contains(offset)
            && ops.is_multiple_of(every())
        {
            let mut torn = image.clone();
            torn.apply(&Done::Write(name.clone(), *offset, vec![0xaa; 64]));
            let at = dir.path().join("recovering");
            torn.killed(&at);
            let recorder = Recorder::new(&at);
            drop(neve_store::open_on(recorder.clone(), options()).unwrap());
            let recovery = recorder.done.lock().unwrap().clone();
            assert!(!recovery.is_empty(), "{name} at {offset} left nothing to do");
            openings += 1;
            for step in &recovery {
                torn.apply(step);
                std::fs::remove_dir_all(&at).unwrap();
                torn.killed(&at);
                count += check(&at, &known, ops, false, false);
            }
            std::fs::remove_dir_all(&at).unwrap();
        }
        image.apply(next);
    }
    injected(count, &format!("kills in {openings} openings"));
}
