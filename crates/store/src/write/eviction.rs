//! Removing what retention does not keep.

use std::collections::BTreeMap;

use super::options::range_blocks;
use super::pack::Packable;
use super::quarantine::Aside;
use super::retention::{Hold, Retention, SegmentFacts, note_ranges, note_times};
use super::writer::Writer;
use crate::error::Error;
use crate::segment::Segment;

/// Packed files take this part of their segments, about: blocks of mainnet a twentieth. What packing does not give back is
/// evicted afterwards.
const PACKED_PART: u64 = 16;

/// Files and heights that an eviction deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evicted {
    /// Segment files removed.
    pub segments: usize,
    /// Quarantined files removed.
    pub quarantined: usize,
    /// Heights that are no longer served.
    pub heights: u64,
    /// Bytes given back, once the last reply that uses them is sent.
    pub bytes: u64,
    /// Heights of these that would have had a copy, and have none; see [`Hold`].
    pub uncopied: u64,
    /// Bytes of segments and quarantined files that are held back.
    pub held: u64,
    /// Bytes of the store beyond the bound that packing is going to give back.
    pub excess: u64,
    /// True if files wait for space to be removed: an eviction gives nothing back before.
    pub waiting: bool,
}

/// Bytes that packing is going to give back, by the first height of the segment.
type PackingGains = BTreeMap<u64, u64>;

/// Files that the retention does not keep.
struct DueFiles {
    /// Quarantined files that go in any case.
    gone: Vec<Aside>,
    /// Quarantined files below a gap.
    below: Vec<Aside>,
    /// Facts of the files below a gap, and then of segments.
    facts: Vec<SegmentFacts>,
    /// Height after the head.
    end_height: u64,
}

/// Decides how many of the files that are due go. Without a hold all go. A hold (an archive that lacks them) may keep
/// some, up to its own bound; beyond, the heights count as lost to the archive.
fn decide(hold: Option<&Hold>, due: &[SegmentFacts]) -> (usize, Evicted) {
    let Some(hold) = hold else { return (due.len(), Evicted::default()) };
    let (count, held) = hold.limit(due);
    let without = due.iter().take(count).filter(|facts| hold.waits_for(facts));
    let uncopied = without.map(|facts| facts.end_height - facts.base).sum();
    (count, Evicted { uncopied, held, ..Evicted::default() })
}

/// Facts of a sealed segment, as far as it tells them alone.
fn facts_of(segment: &Segment, gains: &PackingGains) -> SegmentFacts {
    SegmentFacts {
        base: segment.base(),
        end_height: segment.end_height(),
        disk_bytes: segment.disk_bytes,
        packs_by: gains.get(&segment.base()).copied().unwrap_or_default(),
        last_timestamp: segment.last_timestamp,
        is_packed: segment.is_packed(),
        range: None,
    }
}

impl Writer {
    /// Evicts what `retention` does not keep: quarantined files first, then the oldest segments.
    /// `now` in seconds since 1970.
    pub fn evict(&mut self, retention: &Retention, now: u64) -> Result<Evicted, Error> {
        self.evict_unless_held(retention, None, None, now)
    }

    /// Evicts in the same way, and holds segments back that have no copy yet. Files that a gap keeps from being served
    /// are held back too. Ranges that are due to be packed count as packed.
    pub fn evict_unless_held(
        &mut self,
        retention: &Retention,
        hold: Option<&Hold>,
        packable: Option<Packable>,
        now: u64,
    ) -> Result<Evicted, Error> {
        // A system clock that jumps ahead must not empty the store.
        let now = self.newest_timestamp().map_or(now, |newest| newest.min(now));
        let gains = packable.map_or(BTreeMap::new(), |packable| self.packing_gains(packable));
        let due = self.take_due(retention, &gains, now);
        let mut evicted = self.remove_due(due, hold)?;
        evicted.excess = retention.bytes.map_or(0, |limit| self.excess(limit, &gains));
        // Then no space was gained, and to evict more would lose heights for nothing.
        evicted.waiting = self.latch.has_due();
        Ok(evicted)
    }

    /// Takes quarantined files out that the retention does not keep, and finds the segments that it does not keep.
    fn take_due(&mut self, retention: &Retention, gains: &PackingGains, now: u64) -> DueFiles {
        let end_height = self.head().map_or(0, |(height, _)| height + 1);
        // Quarantined files count, and go first: they serve no client.
        let mut bytes = self.all_bytes().saturating_sub(gains.values().sum());
        let surplus =
            self.quarantine.drop_surplus(|held| retention.drops(held, end_height, &mut bytes, now));
        // A file below a gap is the only copy of its heights, and waits for the archive like a served one.
        let first = self.first_or_max();
        let rejoins = |aside: &Aside| aside.can_rejoin(first, self.quarantine.is_due);
        let (below, gone): (Vec<_>, Vec<_>) = surplus.into_iter().partition(rejoins);
        let mut facts: Vec<_> = below.iter().map(|aside| aside.held).collect();
        facts.extend(self.due_segments(retention, bytes, gains, now));
        if self.codec.is_some() {
            let rejoining = self.quarantine.files.iter().filter(|aside| rejoins(aside));
            let oldest = below.iter().chain(rejoining).map(|aside| aside.base).min();
            let blocks = range_blocks(self.options.segment_blocks); // only whole ranges are packed
            note_ranges(&mut facts, oldest.unwrap_or(first), blocks);
        }
        DueFiles { gone, below, facts, end_height }
    }

    /// Removes the files that are due, except those that are held back.
    fn remove_due(&mut self, due: DueFiles, hold: Option<&Hold>) -> Result<Evicted, Error> {
        let DueFiles { mut gone, mut below, facts, end_height } = due;
        let (count, mut evicted) = decide(hold, &facts);
        let segments = count.saturating_sub(below.len());
        self.quarantine.keep(below.split_off(count.min(below.len())));
        gone.extend(below);
        self.remove_aside(&gone, &mut evicted)?;
        self.evict_segments(segments, end_height, &mut evicted)?;
        if evicted.segments + evicted.quarantined > 0 {
            self.quarantine.show(self.view.load().first_height());
        }
        Ok(evicted)
    }

    /// Bytes beyond `limit` that packing is going to give back.
    fn excess(&self, limit: u64, gains: &PackingGains) -> u64 {
        let gain = gains.range(self.first_or_max()..).map(|(_, gain)| gain).sum();
        self.all_bytes().saturating_sub(limit).min(gain)
    }

    /// The lowest served height, or one above all if there is none.
    fn first_or_max(&self) -> u64 {
        self.view.load().first_height().unwrap_or(u64::MAX)
    }

    /// Bytes on disk, with those of quarantined files.
    fn all_bytes(&self) -> u64 {
        self.view.load().disk_bytes() + self.quarantine.shown.usage().1
    }

    fn packing_gains(&self, packable: Packable) -> PackingGains {
        let due = self.due_ranges(packable).into_iter().flatten();
        let gain = |bytes: u64| bytes - bytes / PACKED_PART;
        due.map(|segment| (segment.base(), gain(segment.disk_bytes))).collect()
    }

    /// Facts of the oldest sealed segments, which the retention drops. `bytes` is the size of the store less all `gains`.
    fn due_segments(
        &self,
        retention: &Retention,
        bytes: u64,
        gains: &PackingGains,
        now: u64,
    ) -> Vec<SegmentFacts> {
        let (segments, _) = self.lists();
        let end_height = self.head().map_or(0, |(height, _)| height + 1);
        let sealed = segments.iter().filter(|segment| !segment.is_active());
        let mut sealed: Vec<_> = sealed.map(|segment| facts_of(segment, gains)).collect();
        let newest = self.active.as_ref().and_then(|active| Some(active.tip?.timestamp));
        note_times(&mut sealed, newest);
        let due = retention.evictable(&sealed, end_height, bytes, now);
        sealed.truncate(due.min(segments.len().saturating_sub(1))); // the head is always served
        sealed
    }

    fn remove_aside(&mut self, gone: &[Aside], evicted: &mut Evicted) -> Result<(), Error> {
        for aside in gone {
            evicted.quarantined += 1;
            evicted.bytes += aside.held.disk_bytes;
            self.latch.remove(&aside.name)?;
        }
        Ok(())
    }

    /// Removes the oldest segments.
    fn evict_segments(
        &mut self,
        count: usize,
        end_height: u64,
        evicted: &mut Evicted,
    ) -> Result<(), Error> {
        if count == 0 {
            return Ok(());
        }
        let (mut segments, mut tables) = self.lists();
        let gone: Vec<_> = segments.drain(..count).collect();
        let first = segments.first().map_or(end_height, |segment| segment.base());
        let stale: Vec<_> = tables.extract_if(.., |table| table.header.last < first).collect();
        // Readers first: they must not find a segment whose file is gone. Those that have it keep its map.
        self.publish(segments, tables);
        self.remove_tables(&stale)?;
        self.remove_segments(gone.iter().map(|segment| segment.name()))?;
        evicted.segments = gone.len();
        evicted.heights = first - gone[0].base();
        evicted.bytes += gone.iter().map(|segment| segment.disk_bytes).sum::<u64>();
        Ok(())
    }
}
