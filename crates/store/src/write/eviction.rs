//! Removing what retention does not keep.

use super::options::range_blocks;
use super::retention::{Hold, Retention, SegmentFacts, note_ranges, note_times};
use super::writer::Writer;
use crate::error::Error;

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
    /// Bytes of segments that are held back.
    pub held: u64,
    /// True if files wait for room to be removed: an eviction gives nothing back before.
    pub waiting: bool,
}

impl Writer {
    /// Evicts what `retention` does not keep: quarantined files first, then the oldest segments.
    /// `now` in seconds since 1970.
    pub fn evict(&mut self, retention: &Retention, now: u64) -> Result<Evicted, Error> {
        self.evict_unless_held(retention, None, now)
    }

    /// Evicts in the same way, and holds segments back that have no copy yet.
    pub fn evict_unless_held(
        &mut self,
        retention: &Retention,
        hold: Option<&Hold>,
        now: u64,
    ) -> Result<Evicted, Error> {
        let end_height = self.head().map_or(0, |(height, _)| height + 1);
        // A system clock that jumps ahead must not empty the store.
        let now = self.newest_timestamp().map_or(now, |newest| newest.min(now));
        // Quarantined files count, and go first: they serve no client.
        let mut bytes = self.view.load().disk_bytes();
        bytes += self.quarantine.shown.usage().1;
        let dropped =
            self.quarantine.drop_surplus(|held| retention.drops(held, end_height, &mut bytes, now));
        let mut evicted = Evicted::default();
        for aside in &dropped {
            evicted.quarantined += 1;
            evicted.bytes += aside.held.disk_bytes;
            self.latch.remove(&aside.name)?;
        }
        self.evict_segments((retention, hold), bytes, now, &mut evicted)?;
        if evicted.segments + evicted.quarantined > 0 {
            self.quarantine.show(self.view.load().first_height());
        }
        // Then no space was gained, and to evict more would lose heights for nothing.
        evicted.waiting = self.latch.has_due();
        Ok(evicted)
    }

    fn evict_segments(
        &mut self,
        (retention, hold): (&Retention, Option<&Hold>),
        bytes: u64,
        now: u64,
        evicted: &mut Evicted,
    ) -> Result<(), Error> {
        let (mut segments, mut tables) = self.lists();
        let end_height = self.head().map_or(0, |(height, _)| height + 1);
        let mut held: Vec<SegmentFacts> = segments
            .iter()
            .filter(|segment| !segment.is_active())
            .map(|segment| SegmentFacts {
                base: segment.base(),
                end_height: segment.end_height(),
                disk_bytes: segment.disk_bytes,
                last_timestamp: segment.last_timestamp,
                is_packed: segment.is_packed(),
                range: None,
            })
            .collect();
        let newest = self.active.as_ref().and_then(|active| Some(active.tip?.timestamp));
        note_times(&mut held, newest);
        if self.codec.is_some() {
            note_ranges(&mut held, range_blocks(self.options.segment_blocks)); // only whole ranges are packed
        }
        // Without a hold the oldest go as retention says. A hold (an archive that lacks them) may keep some,
        // up to its own bound; then the heights count as lost to the archive.
        let due = retention.evictable(&held, end_height, bytes, now);
        let due = due.min(segments.len().saturating_sub(1)); // the head is always served
        let due = held.get(..due).unwrap_or_default();
        let (count, held_bytes) = hold.map_or((due.len(), 0), |hold| hold.limit(due));
        evicted.held = held_bytes;
        let without = |facts: &&SegmentFacts| hold.is_some_and(|hold| hold.waits_for(facts));
        let uncopied = due.iter().take(count).filter(without);
        evicted.uncopied = uncopied.map(|facts| facts.end_height - facts.base).sum();
        if count == 0 {
            return Ok(());
        }
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
