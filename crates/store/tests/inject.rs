//! A fault at every change of the file system, one after the other: an error, a write that ends
//! in the middle, a full disk; once, or from then on. Nothing panics, readers keep what they had,
//! and the next opening gives an unbroken range of intact records.

use std::array::from_fn;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use neve_store::disk::{Disk, Op, RealDisk};
use neve_store::{Error, Opened, Options, Record, Retention, open_on, open_on_with};

use crate::support::toy::Toy;
use crate::support::{self, assert_clean, block, every, fork, injected, small};

/// Threads that share a test.
const THREADS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Operations fail with EIO.
    Error,
    /// A write ends in the middle, with EIO.
    Short,
    /// Operations fail with ENOSPC.
    NoSpace,
}

/// A disk whose operations fail from the `first`th on, `times` times.
struct Faulty {
    real: RealDisk,
    fault: Fault,
    first: usize,
    times: usize,
    done: AtomicUsize,
    /// True after a failed sync: the content of the disk is unknown then, whatever the reason.
    unsynced: AtomicBool,
}

impl Disk for Faulty {
    fn dir(&self) -> &Path {
        self.real.dir()
    }

    fn apply(&self, op: Op<'_>) -> io::Result<()> {
        let at = self.done.fetch_add(1, Ordering::Relaxed);
        if at < self.first || at - self.first >= self.times {
            return self.real.apply(op);
        }
        self.unsynced.fetch_or(matches!(op, Op::Sync { .. } | Op::SyncDir), Ordering::Relaxed);
        match (self.fault, op) {
            (Fault::Short, Op::Write { name, offset, bytes }) => {
                let half = &bytes[..bytes.len() / 2];
                self.real.apply(Op::Write { name, offset, bytes: half })?;
                Err(io::Error::from_raw_os_error(5))
            }
            (Fault::Error | Fault::Short, _) => Err(io::Error::from_raw_os_error(5)),
            (Fault::NoSpace, _) => Err(io::Error::from_raw_os_error(28)),
        }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.real.free_bytes()
    }
}

/// Does what fails for want of space again, as the server does it.
fn patiently(mut work: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    for _ in 0..2 {
        match work() {
            Err(error) if error.is_disk_full() => {}
            done => return done,
        }
    }
    work()
}

fn append(opened: &mut Opened, records: impl Iterator<Item = Record>) -> Result<(), Error> {
    let mut records = records;
    records.try_for_each(|record| patiently(|| opened.writer.append(&record)))
}

fn prepend(opened: &mut Opened, heights: std::ops::Range<u64>) -> Result<(), Error> {
    let mut history = opened.writer.history()?;
    heights.map(|height| block(height, 0)).try_for_each(|record| history.append(&record))?;
    let built = history.finish()?;
    opened.writer.prepend(built).map(drop)
}

fn repair(opened: &mut Opened, base: u64) -> Result<(), Error> {
    let Some(mut repair) = opened.writer.repair(base)? else { return Ok(()) };
    for height in repair.heights() {
        repair.keep(height)?;
    }
    let built = repair.finish()?;
    opened.writer.replace(built).map(drop)
}

/// Everything that a store does. What fails is passed over.
fn work(opened: &mut Opened) -> Vec<Error> {
    let keep = |blocks| Retention { blocks: Some(blocks), ..Retention::default() };
    let done = [
        append(opened, (100..112).map(|height| block(height, 0))),
        prepend(opened, 92..100),
        opened.writer.merge_tables().map(drop),
        append(opened, (112..140).map(|height| block(height, 0))),
        opened.writer.merge_tables().map(drop),
        opened.writer.sync(),
        repair(opened, 104),
        opened.writer.evict(&keep(40), 0).map(drop),
        opened.writer.withdraw(138),
        append(opened, std::iter::once(fork(138, 1, 0))),
        append(opened, (139..146).map(|height| block(height, 1))),
        opened.writer.restore_lost().map(drop),
        opened.writer.evict(&keep(24), 0).map(drop),
        opened.writer.sync(),
        opened.writer.seal(),
    ];
    done.into_iter().filter_map(Result::err).collect()
}

/// Packing, and changes of packed heights. Fewer steps: each is repeated for each.
fn work_of_packing(opened: &mut Opened) -> Vec<Error> {
    let done = [
        append(opened, (100..105).map(|height| block(height, 0))),
        support::pack(opened, 103).map(drop),
        repair(opened, 100),
        opened.writer.withdraw(103),
        append(opened, std::iter::once(fork(103, 1, 0))),
        opened.writer.sync(),
    ];
    done.into_iter().filter_map(Result::err).collect()
}

fn options() -> Options {
    Options { segment_blocks: 2, ..small() }
}

/// Every height of the served range is intact, and a block that was appended.
fn assert_unbroken(opened: &Opened, what: &str) {
    for height in opened.reader.range().into_iter().flatten() {
        let found = opened.reader.record(height);
        let found = found.unwrap_or_else(|| panic!("{what}: {height} is missing"));
        let known = [block(height, 0), block(height, 1)];
        let stored = known.iter().find(|block| block.hash == found.hash());
        let stored = stored.unwrap_or_else(|| panic!("{what}: {height} is nobody's"));
        for (at, part) in stored.parts.iter().enumerate() {
            assert_eq!(found.part(at).slice.as_ref(), part.bytes, "{what}: {height}");
        }
    }
}

fn open(disk: Arc<dyn Disk>, packs: bool) -> Result<Opened, Error> {
    if packs { open_on_with(disk, options(), Arc::new(Toy)) } else { open_on(disk, options()) }
}

/// A run. Returns how many operations it took, and whether anything failed.
fn run(fault: Fault, first: usize, times: usize, packs: bool) -> (usize, usize) {
    let dir = support::fresh_dir();
    let real = RealDisk::new(dir.path());
    let (done, unsynced) = Default::default();
    let disk = Arc::new(Faulty { real, fault, first, times, done, unsynced });
    let what = format!("{fault:?} at operation {first}, {times} times");
    let mut errors = Vec::new();
    let mut visible = None;
    if let Ok(mut opened) = open(Arc::clone(&disk) as _, packs) {
        errors.extend(patiently(|| opened.writer.bind(support::IDENTITY, 1)).err());
        errors.extend(if packs { work_of_packing(&mut opened) } else { work(&mut opened) });
        assert_unbroken(&opened, &what);
        visible = opened.reader.range();
    }
    // Want of space is waited out, but for a sync.
    let latched = errors.iter().any(|error| matches!(error, Error::Latched { .. }));
    let unsynced = disk.unsynced.load(Ordering::Relaxed);
    assert!(!latched || unsynced || fault != Fault::NoSpace, "{what}: {errors:?}");
    let real = Arc::new(RealDisk::new(dir.path()));
    let opened = open(real, packs).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_unbroken(&opened, &what);
    let range = opened.reader.range();
    if let Some(visible) = visible {
        let there = range
            .as_ref()
            .is_some_and(|range| range.contains(visible.start()) && range.contains(visible.end()));
        assert!(there, "{what}: {visible:?} was served, {range:?} is there");
    }
    drop(opened);
    // Without a height there may be a quarantined file alone, which is a finding.
    if range.is_some() && dir.path().join("stamp").exists() {
        assert_clean(dir.path());
    }
    (disk.done.load(Ordering::Relaxed), errors.len())
}

#[test]
fn store_survives_a_fault_at_every_operation() {
    assert!(each_fault(false) > 200);
}

#[test]
fn store_that_packs_survives_a_fault_at_every_operation() {
    assert!(each_fault(true) > 50);
}

/// Every fault at every operation. Returns the number of operations.
fn each_fault(packs: bool) -> usize {
    let (operations, errors) = run(Fault::Error, usize::MAX, 0, packs);
    assert_eq!(errors, 0);
    let shares = thread::scope(|scope| {
        let share = |at| scope.spawn(move || each_second_fault(at * every(), operations, packs));
        let threads: [_; THREADS] = from_fn(share);
        threads.map(|thread| thread.join().unwrap())
    });
    let sum = |add: fn(&(usize, usize)) -> usize| shares.iter().map(add).sum::<usize>();
    injected(sum(|(injections, _)| *injections), &format!("faults at {operations} operations"));
    let failed = sum(|(_, failed)| *failed);
    assert!(failed * every() > operations, "{failed}");
    operations
}

/// Every fault at every second operation that is due, from this one. Returns the numbers of injections and of errors.
fn each_second_fault(from: usize, operations: usize, packs: bool) -> (usize, usize) {
    let (mut failed, mut count) = (0, 0);
    for first in (from..operations).step_by(every() * THREADS) {
        for fault in [Fault::Error, Fault::Short, Fault::NoSpace] {
            for times in [1, usize::MAX] {
                // After an error nothing more is written, however often it would fail.
                if !packs || times == 1 || fault == Fault::NoSpace {
                    failed += run(fault, first, times, packs).1;
                    count += 1;
                }
            }
        }
    }
    (count, failed)
}
