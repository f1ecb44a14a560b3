//! The retention rule. Pure: sizes and a policy in, a number of segments out.

use std::time::Duration;

/// Retention rule: all bounds that are set hold; without a bound, everything stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Newest heights to keep at least; whole segments beyond them go.
    pub blocks: Option<u64>,
    /// Bytes on disk to stay below; at most one segment more is ever used.
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
    /// Bytes that may be held back. Beyond, the oldest segments go without a copy.
    pub bytes_max: u64,
}

impl Hold {
    /// Number of the segments that go, and bytes of the others. `due` are those that the rule drops.
    pub(crate) fn limit(&self, due: &[SegmentFacts]) -> (usize, u64) {
        let is_held = |facts: &&SegmentFacts| !self.has(facts);
        let mut bytes: u64 = due.iter().filter(is_held).map(|facts| facts.disk_bytes).sum();
        let mut count = 0;
        for facts in due {
            if !self.has(facts) {
                if bytes <= self.bytes_max {
                    break; // nothing above goes first: the range has no gap
                }
                bytes -= facts.disk_bytes;
            }
            count += 1;
        }
        let held = due.get(count..).unwrap_or_default();
        (count, held.iter().map(|facts| facts.disk_bytes).sum())
    }

    /// True if a segment has a copy, or needs none.
    pub(crate) fn has(&self, facts: &SegmentFacts) -> bool {
        let SegmentFacts { base, end_height, .. } = *facts;
        let is_copied = |(first, last)| base.max(self.from) >= first && end_height <= last + 1;
        end_height <= self.from || self.copied.is_some_and(is_copied)
    }
}

/// Facts about one sealed segment for the rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentFacts {
    pub(crate) base: u64,
    pub(crate) end_height: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) last_timestamp: u64,
}

impl Retention {
    /// Number of the oldest segments in `sealed` to evict. `end_height` is the height after the
    /// head, `bytes` what everything takes on disk, `now` seconds since 1970.
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

    /// Decides whether `held` is to go. If so, its bytes are taken off `bytes`.
    pub(crate) fn drops(
        &self,
        held: &SegmentFacts,
        end_height: u64,
        bytes: &mut u64,
        now: u64,
    ) -> bool {
        let drops = self.surplus(held, end_height, *bytes, now);
        if drops {
            *bytes = bytes.saturating_sub(held.disk_bytes);
        }
        drops
    }

    fn surplus(&self, held: &SegmentFacts, end_height: u64, bytes: u64, now: u64) -> bool {
        let after = end_height.saturating_sub(held.end_height);
        let too_many = self.blocks.is_some_and(|keep| after >= keep);
        let too_large = self.bytes.is_some_and(|limit| bytes > limit);
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
            last_timestamp: at * 100,
        };
        (1..=10).map(segment).collect()
    }

    fn evicted(retention: Retention) -> usize {
        retention.evictable(&held(), 1001, 10_000, 1000)
    }

    #[test]
    fn nothing_set_keeps_everything() {
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
        assert_eq!(limit(Some((0, u64::MAX - 1)), 0, 0), (4, 0));
    }

    #[test]
    fn any_rule_suffices() {
        let retention = Retention { blocks: Some(5000), bytes: Some(9_000), age: None };
        assert_eq!(evicted(retention), 1);
    }
}
