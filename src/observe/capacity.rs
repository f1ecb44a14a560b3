//! Space that is left: disk and memory against their bounds, and the time until the disk is full.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use neve_store::{Reader, Retention};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Newest heights from which pace and size of heights are taken.
const NEWEST: u64 = 1024;
/// Records whose lengths are read for the size of a height.
const SAMPLES: u64 = 64;
/// Stretches of heights in /health. A store with more of them shows a sum for each tier.
const STRETCHES_MAX: usize = 64;

/// Bounds of what neve may take.
#[derive(Debug, Default)]
pub(crate) struct CapacityBounds {
    pub(crate) disk: DiskBounds,
    /// Open connections of each listener. A reload replaces it.
    pub(crate) connections: AtomicUsize,
}

/// Downloads and streams of mirrors, which together are bounded.
#[derive(Debug)]
pub(crate) struct MirrorPlaces {
    /// The places that are free.
    pub(crate) free: Arc<Semaphore>,
    max: usize,
}

impl MirrorPlaces {
    /// Free places for `max`; none if neve serves no mirrors.
    pub(crate) fn new(max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(max)), max }
    }

    /// Places that are taken; `None` if neve serves no mirrors.
    pub(super) fn open(&self) -> Option<usize> {
        (self.max > 0).then(|| self.max.saturating_sub(self.free.available_permits()))
    }

    /// Their object in /health.
    pub(super) fn object(&self) -> Value {
        self.open().map_or(Value::Null, |open| json!({ "open": open, "max": self.max }))
    }
}

/// Bounds of the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskBounds {
    /// Rule by which old heights go.
    pub(crate) retention: Retention,
    /// Free bytes below which neve stores no more.
    pub(crate) reserve: u64,
}

/// Disk in use, and free space beside it.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiskUse {
    pub(super) used: u64,
    /// Heights in these bytes.
    pub(super) heights: u64,
    pub(super) free: u64,
}

/// Growth of a store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Growth {
    /// Bytes on disk of one height, once it is old.
    pub(super) height_bytes: f64,
    /// Heights a second.
    pub(super) pace: f64,
}

/// Time until the disk is full.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimeToFull {
    pub(super) seconds: f64,
    /// Bound that is reached first: `retention`, from which on old heights are deleted, or `disk`, at which
    /// neve stores no more.
    pub(super) by: &'static str,
}

impl DiskUse {
    pub(super) fn of(reader: &Reader, free: u64) -> Self {
        let heights = reader.range().map_or(0, |range| range.end() - range.start() + 1);
        Self { used: reader.usage().disk_bytes, heights, free }
    }
}

impl Growth {
    /// Growth by the newest heights; `None` as long as they do not tell.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn of(reader: &Reader) -> Option<Self> {
        let range = reader.range()?;
        let head = *range.end();
        let seconds = |height: u64| Some(reader.record(height)?.timestamp());
        let from = paced_from(&range);
        // Heights of one second would have an infinite pace.
        let passed = seconds(head)?.checked_sub(seconds(from)?).filter(|passed| *passed > 0)?;
        let usage = reader.usage();
        let height_bytes = match usage.packed_blocks {
            0 => unpacked_bytes(reader, &range)?,
            packed => usage.packed_bytes as f64 / packed as f64,
        };
        Some(Self { height_bytes, pace: (head - from) as f64 / passed as f64 })
    }
}

/// First height of those that tell the pace. Block 0 does not: its time is 0, decades before block 1.
fn paced_from(range: &RangeInclusive<u64>) -> u64 {
    range.end().saturating_sub(NEWEST).max(*range.start()).max(1)
}

/// Mean length of the newest records.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn unpacked_bytes(reader: &Reader, range: &RangeInclusive<u64>) -> Option<f64> {
    let from = range.end().saturating_sub(SAMPLES - 1).max(*range.start());
    let lengths = (from..=*range.end()).map(|height| Some(reader.record(height)?.stored_len()));
    let sum = lengths.sum::<Option<u64>>()?;
    Some(sum as f64 / (range.end() - from + 1) as f64)
}

/// Time until the store reaches one of the bounds, with `missing` heights to come at once; `None` if it
/// never does.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(super) fn time_to_full(
    bounds: DiskBounds,
    disk: DiskUse,
    growth: Growth,
    missing: u64,
) -> Option<TimeToFull> {
    let of_disk = disk.free.saturating_sub(bounds.reserve);
    let Retention { bytes, blocks, age } = bounds.retention;
    let bytes = bytes.map(|bytes| bytes.saturating_sub(disk.used) as f64);
    // By age the store has so many heights, once the oldest of them go.
    let aged = age.map(|age| age.as_secs_f64() * growth.pace);
    let heights = aged.into_iter().chain(blocks.map(|blocks| blocks as f64)).reduce(f64::min);
    let counted = heights.map(|heights| (heights - disk.heights as f64) * growth.height_bytes);
    let (room, by) = match bytes.into_iter().chain(counted).reduce(f64::min) {
        Some(room) if room <= of_disk as f64 => (room, "retention"),
        _ => (of_disk as f64, "disk"),
    };
    // Heights that are there to be fetched take this much of it at once.
    let room = (room - missing as f64 * growth.height_bytes).max(0.0);
    let seconds = room / (growth.height_bytes * growth.pace);
    seconds.is_finite().then_some(TimeToFull { seconds, by })
}

/// Heights of each tier, in order of height: those of one tier side by side are one entry.
pub(super) fn tiers(reader: &Reader) -> Value {
    let Some(range) = reader.range() else { return json!([]) };
    let of = |tier: &'static str, files: Vec<(u64, u32)>| {
        files.into_iter().map(move |(base, count)| (base, u64::from(count), tier))
    };
    let files = of("packed", reader.packed()).chain(of("sealed", reader.unpacked()));
    json!(shown(files.collect(), range))
}

/// Joins files to stretches. Heights behind the last file are those of the active segment.
fn shown(mut files: Vec<(u64, u64, &'static str)>, range: RangeInclusive<u64>) -> Vec<Value> {
    files.sort_unstable();
    let end = files.last().map_or(*range.start(), |(base, count, _)| base + count);
    files.push((end, (range.end() + 1).saturating_sub(end), "active"));
    let mut stretches: Vec<(&str, u64)> = Vec::new();
    for (base, count, tier) in files {
        // The first file may begin below the served range.
        let heights = count.saturating_sub(range.start().saturating_sub(base));
        match stretches.last_mut() {
            Some((last, sum)) if *last == tier => *sum += heights,
            _ => stretches.push((tier, heights)),
        }
    }
    if stretches.len() > STRETCHES_MAX {
        stretches = sums(&stretches);
    }
    stretches.retain(|(_, heights)| *heights > 0);
    let entry = |(tier, heights)| json!({ "tier": tier, "heights": heights });
    stretches.into_iter().map(entry).collect()
}

/// Heights of each tier in all stretches.
fn sums(stretches: &[(&str, u64)]) -> Vec<(&'static str, u64)> {
    let sum = |tier: &'static str| {
        let own = stretches.iter().filter(|(one, _)| *one == tier);
        (tier, own.map(|(_, heights)| heights).sum::<u64>())
    };
    ["packed", "sealed", "active"].map(sum).to_vec()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const GROWTH: Growth = Growth { height_bytes: 100.0, pace: 2.0 };

    fn seconds(
        retained: Option<u64>,
        used: u64,
        free: u64,
        missing: u64,
    ) -> Option<(f64, &'static str)> {
        let retention = Retention { bytes: retained, ..Retention::default() };
        ruled(retention, DiskUse { used, heights: 0, free }, missing)
    }

    fn ruled(retention: Retention, disk: DiskUse, missing: u64) -> Option<(f64, &'static str)> {
        let bounds = DiskBounds { retention, reserve: 1_000 };
        let time = time_to_full(bounds, disk, GROWTH, missing)?;
        Some((time.seconds, time.by))
    }

    /// Heights come at 2 a second, of 100 bytes each: 60 seconds are 120 heights.
    #[test]
    fn age_and_number_of_blocks_bound_the_store_too() {
        let disk = DiskUse { used: 4_000, heights: 40, free: 100_000 };
        let aged = Retention { age: Some(Duration::from_mins(1)), ..Retention::default() };
        assert_eq!(ruled(aged, disk, 0), Some((40.0, "retention")));
        assert_eq!(ruled(aged, disk, 20), Some((30.0, "retention")));
        assert_eq!(ruled(aged, DiskUse { free: 5_000, ..disk }, 0), Some((20.0, "disk")));
        let counted = Retention { blocks: Some(100), ..aged };
        assert_eq!(ruled(counted, disk, 0), Some((30.0, "retention")));
        assert_eq!(ruled(counted, DiskUse { heights: 110, ..disk }, 0), Some((0.0, "retention")));
        let all = Retention { bytes: Some(5_000), ..counted };
        assert_eq!(ruled(all, disk, 0), Some((5.0, "retention")));
    }

    #[test]
    fn nearer_bound_decides_the_time_and_missing_heights_come_first() {
        assert_eq!(seconds(Some(10_000), 4_000, 7_000, 0), Some((30.0, "retention")));
        assert_eq!(seconds(Some(10_000), 4_000, 6_999, 0), Some((29.995, "disk")));
        assert_eq!(seconds(None, 4_000, 7_000, 0), Some((30.0, "disk")));
        assert_eq!(seconds(None, 4_000, 7_000, 20), Some((20.0, "disk")));
        assert_eq!(seconds(Some(10_000), 12_000, 7_000, 0), Some((0.0, "retention")));
        assert_eq!(seconds(None, 4_000, 500, 60), Some((0.0, "disk")));
        let still = Growth { pace: 0.0, ..GROWTH };
        let disk = DiskUse { used: 0, heights: 0, free: 7_000 };
        assert_eq!(time_to_full(DiskBounds::default(), disk, still, 0), None);
    }

    #[test]
    fn time_of_block_0_is_no_time_of_the_pace() {
        assert_eq!([paced_from(&(0..=40)), paced_from(&(0..=1024)), paced_from(&(0..=0))], [1; 3]);
        assert_eq!([paced_from(&(0..=1026)), paced_from(&(9..=40))], [2, 9]);
    }

    #[test]
    fn tiers_side_by_side_are_one_stretch_and_the_rest_is_active() {
        let files = vec![(300, 50, "sealed"), (100, 100, "packed"), (200, 100, "packed")];
        let expected = [
            json!({ "tier": "packed", "heights": 180 }),
            json!({ "tier": "sealed", "heights": 50 }),
            json!({ "tier": "active", "heights": 11 }),
        ];
        assert_eq!(shown(files, 120..=360), expected);
        assert_eq!(shown(vec![], 7..=7), [json!({ "tier": "active", "heights": 1 })]);
    }

    #[test]
    fn many_stretches_are_a_sum_for_each_tier() {
        let tier = |at: u64| if at.is_multiple_of(2) { "packed" } else { "sealed" };
        let files = (0..100).map(|at| (at * 10, 10, tier(at))).collect();
        let expected = [
            json!({ "tier": "packed", "heights": 500 }),
            json!({ "tier": "sealed", "heights": 500 }),
            json!({ "tier": "active", "heights": 1 }),
        ];
        assert_eq!(shown(files, 0..=1000), expected);
    }
}
