//! The retention rule. Pure: sizes and a policy in, a number of segments out.

use std::time::Duration;

/// Retention rule: all bounds that are set hold; without a bound, everything stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Newest heights to keep at least; whole segments beyond them go.
    pub blocks: Option<u64>,
    /// Bytes on disk to stay below; at most one segment more is used, except while packing gives them back.
    pub bytes: Option<u64>,
    /// Blocks older than this may go, once their whole segment is.
    pub age: Option<Duration>,
}

/// Segments that an eviction holds back until a copy of them is elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hold {
    /// First and last height of the copy.
    pub copied: Option<(u64, u64)>,
    /// Heights below need no copy.
    pub from: u64,
    /// Bytes that may be held back, copied segments above the first one without a copy included. Beyond,
    /// the oldest segments go without a copy.
    pub bytes_max: u64,
}

impl Hold {
    /// Number of the segments that go, and bytes of the others. `due` are those that the rule drops, ascending, and those
    /// below a gap first.
    pub(crate) fn limit(&self, due: &[SegmentFacts]) -> (usize, u64) {
        let mut held: u64 = due.iter().map(|facts| facts.disk_bytes).sum();
        let (mut count, mut lost) = (0, None);
        for facts in due {
            // The rest of a range of which a part is gone can be copied no more.
            if self.waits_for(facts) && facts.range != lost {
                if held <= self.bytes_max {
                    break; // nothing above goes first: the served range has no gap
                }
                lost = facts.range;
            }
            held -= facts.disk_bytes;
            count += 1;
        }
        (count, held)
    }

    /// True if a segment will have a copy, and has none yet.
    pub(crate) fn waits_for(&self, facts: &SegmentFacts) -> bool {
        let SegmentFacts { base, end_height, range, .. } = *facts;
        let is_copied = |(first, last): (u64, u64)| {
            // Of a segment across `from` only the upper part needs a copy.
            base.max(self.from) >= first && end_height <= last.saturating_add(1)
        };
        let is_there = end_height <= self.from || self.copied.is_some_and(is_copied);
        range.is_some() && !is_there
    }
}

/// Facts about one sealed segment for the rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentFacts {
    pub(crate) base: u64,
    pub(crate) end_height: u64,
    pub(crate) disk_bytes: u64,
    /// Bytes of these that packing is going to give back.
    pub(crate) packs_by: u64,
    /// Time of the newest block; 0 if it is not known.
    pub(crate) last_timestamp: u64,
    /// True if the heights are in a packed file.
    pub(crate) is_packed: bool,
    /// First height of a whole range that the segment is a part of. No copy is made of other segments.
    pub(crate) range: Option<u64>,
}

/// Notes a whole range of `blocks` heights that each segment is a part of: the newest one that begins at or before its
/// last height. The store begins at `oldest`. It has all heights from there on, or will have them: the active segment
/// completes the newest range, and a gap is filled.
pub(crate) fn note_ranges(sealed: &mut [SegmentFacts], oldest: u64, blocks: u32) {
    let blocks = u64::from(blocks);
    for facts in sealed {
        let begin = facts.end_height.saturating_sub(1) / blocks * blocks;
        // A segment across ranges is split. A packed file never is: no copy is made of one of other ranges.
        let is_part = !facts.is_packed || begin <= facts.base;
        facts.range = (oldest <= begin && is_part).then_some(begin);
    }
}

/// Gives each segment whose time is not known that of the segment above, or of the block above all: it is at most as new.
/// Without either it counts as new, as no block goes for an age that it may not have.
pub(crate) fn note_times(sealed: &mut [SegmentFacts], newest: Option<u64>) {
    let mut above = newest.unwrap_or(u64::MAX);
    for facts in sealed.iter_mut().rev() {
        if facts.last_timestamp == 0 {
            facts.last_timestamp = above;
        }
        above = facts.last_timestamp;
    }
}

impl Retention {
    /// Number of the oldest segments in `sealed` to evict. `end_height` is the height after the
    /// head, `bytes` what everything takes on disk less what packing gives back, `now` seconds since 1970.
    pub(crate) fn evictable(
        &self,
        sealed: &[SegmentFacts],
        end_height: u64,
        bytes: u64,
        now: u64,
    ) -> usize {
        let mut bytes = bytes;
        sealed.iter().take_while(|held| self.drops(held, end_height, &mut bytes, now)).count()
    }

    /// Decides whether `held` is to go. If so, the bytes that it would take packed are taken off `bytes`.
    pub(crate) fn drops(
        &self,
        held: &SegmentFacts,
        end_height: u64,
        bytes: &mut u64,
        now: u64,
    ) -> bool {
        let drops = self.surplus(held, end_height, *bytes, now);
        if drops {
            *bytes = bytes.saturating_sub(held.disk_bytes - held.packs_by);
        }
        drops
    }

    fn surplus(&self, held: &SegmentFacts, end_height: u64, bytes: u64, now: u64) -> bool {
        let after = end_height.saturating_sub(held.end_height);
        let too_many = self.blocks.is_some_and(|keep| after >= keep);
        let too_large = self.bytes.is_some_and(|limit| bytes > limit);
        // A block from this clock's future is not old.
        let age = now.saturating_sub(held.last_timestamp);
        let too_old = self.age.is_some_and(|limit| age > limit.as_secs());
        too_many || too_large || too_old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten segments of 100 heights, 1,000 bytes and 100 seconds each; the head is at 1,000.
    fn held() -> Vec<SegmentFacts> {
        let segment = |at: u64| SegmentFacts {
            base: at * 100 - 100,
            end_height: at * 100,
            disk_bytes: 1000,
            packs_by: 0,
            last_timestamp: at * 100,
            is_packed: false,
            range: Some(at * 100 - 100),
        };
        (1..=10).map(segment).collect()
    }

    fn evicted(retention: Retention) -> usize {
        retention.evictable(&held(), 1001, 10_000, 1000)
    }

    #[test]
    fn retention_without_a_rule_keeps_all_segments() {
        assert_eq!(evicted(Retention::default()), 0);
    }

    #[test]
    fn blocks_keeps_at_least_as_many() {
        let keep = |blocks| evicted(Retention { blocks: Some(blocks), ..Retention::default() });
        assert_eq!(keep(1001), 0);
        assert_eq!(keep(902), 0);
        assert_eq!(keep(901), 1);
        assert_eq!(keep(801), 2);
        assert_eq!(keep(1), 10);
    }

    #[test]
    fn bytes_are_not_exceeded() {
        let keep = |bytes| evicted(Retention { bytes: Some(bytes), ..Retention::default() });
        assert_eq!(keep(10_000), 0);
        assert_eq!(keep(9_999), 1);
        assert_eq!(keep(8_000), 2);
        assert_eq!(keep(0), 10);
    }

    #[test]
    fn age_is_that_of_the_newest_block() {
        let keep = |secs| {
            let age = Some(Duration::from_secs(secs));
            evicted(Retention { age, ..Retention::default() })
        };
        assert_eq!(keep(900), 0);
        assert_eq!(keep(899), 1);
        assert_eq!(keep(0), 9); // the newest is not older than now
    }

    #[test]
    fn unknown_age_is_that_of_the_segment_above() {
        let noted = |unknown: &[usize], newest| {
            let mut held = held();
            unknown.iter().for_each(|at| held[*at].last_timestamp = 0);
            note_times(&mut held, newest);
            held.iter().map(|facts| facts.last_timestamp).collect::<Vec<_>>()
        };
        assert_eq!(noted(&[0, 3, 4], None)[..6], [200, 200, 300, 600, 600, 600]);
        assert_eq!(noted(&[8, 9], Some(1010))[7..], [800, 1010, 1010]);
        assert_eq!(noted(&[9], None)[8..], [900, u64::MAX]);
        let age = Some(Duration::from_secs(0));
        let mut unknown = held();
        unknown[9].last_timestamp = 0;
        note_times(&mut unknown, None);
        let retention = Retention { age, ..Retention::default() };
        assert_eq!(retention.evictable(&unknown, 1001, 10_000, u64::MAX), 9);
    }

    #[test]
    fn segments_without_a_copy_are_held_back_up_to_the_bytes() {
        let limit = |copied, from, bytes_max| Hold { copied, from, bytes_max }.limit(&held()[..4]);
        assert_eq!(limit(None, 0, 4000), (0, 4000), "nothing is copied");
        assert_eq!(limit(None, 0, 3999), (1, 3000), "beyond the bytes");
        assert_eq!(limit(None, 0, 0), (4, 0));
        assert_eq!(limit(Some((0, 199)), 0, 4000), (2, 2000));
        assert_eq!(limit(Some((0, 198)), 0, 4000), (1, 3000), "a part of a segment");
        assert_eq!(limit(Some((100, 399)), 0, 4000), (0, 4000), "the first one is not copied");
        assert_eq!(limit(Some((100, 399)), 100, 4000), (4, 0), "the first one needs no copy");
        assert_eq!(limit(Some((150, 399)), 150, 4000), (4, 0), "nor the half of the second");
        assert_eq!(limit(Some((0, u64::MAX)), 0, 4000), (4, 0), "any last height");
    }

    #[test]
    fn copied_segments_above_one_without_a_copy_count_as_held() {
        let limit =
            |bytes_max| Hold { copied: Some((100, 399)), from: 0, bytes_max }.limit(&held()[..4]);
        assert_eq!(limit(4000), (0, 4000));
        assert_eq!(limit(3999), (4, 0), "the first one goes, the others have copies");
    }

    #[test]
    fn segment_of_no_whole_range_needs_no_copy() {
        let mut due = held();
        due[0].range = None;
        let hold = Hold { copied: None, from: 0, bytes_max: 3000 };
        assert_eq!(hold.limit(&due[..4]), (1, 3000), "those above are held");
        let copied = Hold { copied: Some((100, 399)), ..hold };
        assert_eq!(copied.limit(&due[..4]), (4, 0));
    }

    /// Two segments a range: without the first one the range cannot be packed, so the second is lost too.
    #[test]
    fn rest_of_a_range_goes_with_its_beginning() {
        let mut due = held();
        due.iter_mut().for_each(|facts| facts.range = Some(facts.base / 200 * 200));
        let limit = |bytes_max| Hold { copied: None, from: 0, bytes_max }.limit(&due[..6]);
        assert_eq!(limit(6000), (0, 6000));
        assert_eq!(limit(5999), (2, 4000));
        assert_eq!(limit(3999), (4, 2000));
    }

    #[test]
    fn ranges_of_segments_are_whole_or_none() {
        let noted = |ends: &[u64], is_packed: bool| {
            let facts = |(base, end): (&u64, &u64)| SegmentFacts {
                base: *base,
                end_height: *end,
                disk_bytes: 1,
                packs_by: 0,
                last_timestamp: 0,
                is_packed,
                range: None,
            };
            let mut sealed: Vec<_> = ends.iter().zip(&ends[1..]).map(facts).collect();
            note_ranges(&mut sealed, ends[0], 32);
            sealed.into_iter().map(|facts| facts.range).collect::<Vec<_>>()
        };
        let ranges = |ends: &[u64]| noted(ends, false);
        assert_eq!(ranges(&[5, 32, 64]), [None, Some(32)], "a store that begins at 5");
        assert_eq!(ranges(&[32, 40, 64, 70]), [Some(32), Some(32), Some(64)], "70 is active");
        assert_eq!(ranges(&[36, 40]), [None], "no beginning");
        let across = [Some(0), Some(32), Some(32), Some(64)];
        assert_eq!(ranges(&[0, 20, 40, 64, 96]), across, "one of two ranges is split");
        assert_eq!(ranges(&[5, 40, 64]), [Some(32), Some(32)], "its end begins a range");
        assert_eq!(ranges(&[0, 80, 96]), [Some(64), Some(64)], "one of three ranges");
        assert_eq!(noted(&[32, 64, 96], true), [Some(32), Some(64)], "packed");
        assert_eq!(noted(&[0, 96], true), [None], "packed by another length");
        assert!(ranges(&[0]).is_empty());
    }

    #[test]
    fn any_rule_suffices() {
        let retention = Retention { blocks: Some(5000), bytes: Some(9_000), age: None };
        assert_eq!(evicted(retention), 1);
    }
}
