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

/// Facts about one sealed segment for the rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentFacts {
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
    fn any_rule_suffices() {
        let retention = Retention { blocks: Some(5000), bytes: Some(9_000), age: None };
        assert_eq!(evicted(retention), 1);
    }
}
