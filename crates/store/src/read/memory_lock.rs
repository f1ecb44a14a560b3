//! The newest part of a store, which stays in memory.
//!
//! If a client reads through history, the kernel drops other pages: those that were read first, even if they
//! are used often. Maps are not read ahead (`memory/map.rs`), and Linux does not note which pages of such a
//! map are used (`vma_has_recency` in `include/linux/mm_inline.h`). So the newest part of the store is locked
//! (`mlock2` with `MLOCK_ONFAULT`). A page of it that was read once stays, and so do the pages around it that
//! were in memory at that time (a fault maps 64 KiB). Locking reads nothing.

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::reader::Reader;
use super::view::View;
use crate::memory::Map;

/// Bytes that are locked and released at once.
const STEP: u64 = 1 << 20;

/// The newest bytes of a store that stay in memory.
pub struct LockedTail {
    steps_max: u64,
    /// Locked steps, the newest first.
    locked: Vec<Step>,
}

/// A step of a mapped file.
struct Step {
    map: Arc<Map>,
    at: u64,
}

impl Step {
    /// Key that is equal for the same step, as long as one of the two is there.
    fn key(&self) -> (*const Map, u64) {
        (Arc::as_ptr(&self.map), self.at)
    }

    fn bytes(&self) -> Range<u64> {
        self.at * STEP..((self.at + 1) * STEP).min(self.map.len())
    }
}

impl LockedTail {
    /// The smallest bound: a step for the index of a segment, and one for its records.
    pub const BYTES_MIN: u64 = 2 * STEP;

    /// Locks nothing yet. Of `bytes` whole MiB count.
    pub fn new(bytes: u64) -> Self {
        Self { steps_max: bytes / STEP, locked: Vec::new() }
    }

    /// Number of locked bytes.
    pub fn bytes(&self) -> u64 {
        self.locked.iter().map(Step::bytes).map(|bytes| bytes.end - bytes.start).sum()
    }

    /// Locks what is newest now, and lets go of what no longer is. To be called from time to time,
    /// as it also holds on to segments that were evicted since.
    ///
    /// If the kernel refuses (`RLIMIT_MEMLOCK`), it locks half as much, and so on, from now on;
    /// the error says that it does.
    pub fn keep(&mut self, reader: &Reader) -> io::Result<()> {
        let mut refused = Ok(());
        while let Err(error) = self.lock(newest(&reader.view(), self.steps_max)) {
            // The limit may allow less, and how much the kernel does not say.
            self.steps_max /= 2;
            refused = Err(error);
        }
        refused
    }

    /// On an error nothing stays locked.
    fn lock(&mut self, wanted: Vec<Step>) -> io::Result<()> {
        if wanted.iter().map(Step::key).eq(self.locked.iter().map(Step::key)) {
            return Ok(());
        }
        let keys: HashSet<_> = wanted.iter().map(Step::key).collect();
        let (kept, gone): (Vec<_>, Vec<_>) =
            self.locked.drain(..).partition(|step| keys.contains(&step.key()));
        // Before new steps are locked: the kernel's limit counts what is locked still.
        gone.iter().for_each(|step| step.map.unlock(step.bytes()));
        let kept: HashSet<_> = kept.iter().map(Step::key).collect();
        let mut new = wanted.iter().filter(|step| !kept.contains(&step.key()));
        let locked = new.try_for_each(|step| step.map.lock(step.bytes()));
        match locked {
            Ok(()) => self.locked = wanted,
            // Also the steps that were locked before: some of `new` may be locked, and which is not
            // known.
            Err(_) => wanted.iter().for_each(|step| step.map.unlock(step.bytes())),
        }
        locked
    }
}

impl Drop for LockedTail {
    fn drop(&mut self) {
        let _ = self.lock(Vec::new()); // nothing can be refused
    }
}

/// The steps of the newest segments, as far as there is space: of each that with the newest slots of
/// its index, which every look-up of them needs, and those at its end: the newest records, behind
/// which a sealed segment has its hash table and its index of logs.
fn newest(view: &View, steps_max: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    for segment in view.segments.iter().rev().filter(|segment| !segment.is_packed()) {
        let left = steps_max.saturating_sub(steps.len() as u64);
        // A segment takes a step of its index and at least one of its records.
        if left < 2 {
            break;
        }
        let slots = (segment.map.first_end() - 1) / STEP;
        let records = segment.header.data_offset / STEP..segment.map.second_end().div_ceil(STEP);
        let records = records.rev().filter(|at| *at != slots).take(left as usize - 1);
        let all = std::iter::once(slots).chain(records);
        steps.extend(all.map(|at| Step { map: Arc::clone(&segment.map), at }));
    }
    steps
}
