//! Choice of the next interval below the first served height.

use std::ops::{Range, RangeInclusive};
use std::time::SystemTime;

use neve_store::Reader;
use neve_store::residency::loaded;

use crate::config::StartAt;
use crate::config::settings::BackfillTarget;
use crate::fetch::{Follower, unsettled};
use crate::shared::PushStatus;

/// Records that are looked at to know how large the next ones will be.
const SAMPLE: u64 = 32;
/// Overhead of a record on disk: slot, hash table, index of logs, for each byte a bit.
const OVERHEAD: u64 = 16;
/// Share of a segment that an interval is planned to fill: records that turn out larger must not
/// leave a small segment over.
const FILL: u64 = 10;

/// The next interval, not below `lowest`, if there is one, and it can be proven. Waits for the disk.
pub(super) fn plan(follower: &Follower, lowest: u64) -> Option<RangeInclusive<u64>> {
    let (reader, status) = (&follower.serving.reader, &follower.status);
    let range = reader.range()?;
    let first = timestamp(reader, *range.start())?;
    let bytes = follower.ingest.segment_bytes();
    let has_room = has_room(follower, first, bytes);
    // Without space it has all that it may have.
    let goal = if has_room { goal(follower, *range.end()) } else { *range.start() };
    status.set_backfill(end(follower, &range, first, goal), *range.start());
    let lowest = reader.gap().map_or(lowest, |gap| lowest.max(gap.start)); // and no further at once
    let last = range.start().checked_sub(1).filter(|last| *last >= goal)?;
    // Its receipts must be settled by headers that are here.
    if status.verified().is_none_or(|verified| verified < last) {
        return None;
    }
    let heights = (bytes - bytes / FILL) / sampled_bytes(reader, *range.start());
    let heights = heights.clamp(1, u64::from(follower.ingest.segment_blocks()));
    let interval = (last + 1).saturating_sub(heights).max(goal).max(lowest)..=last;
    Some(interval).filter(|interval| !interval.is_empty())
}

/// Mean bytes on disk of the heights from `first` on, unpacked.
fn sampled_bytes(reader: &Reader, first: u64) -> u64 {
    let sample = (first..).take(SAMPLE as usize).map_while(|height| reader.record(height));
    let (count, sum) = sample.fold((0, 0), |(n, sum), one| (n + 1, sum + one.stored_len()));
    let each = (sum / u64::max(count, 1)).max(1);
    each + each / OVERHEAD + 256
}

/// Height at which backfill will likely end: the goal, or a later one below which retention by age or bytes would keep
/// nothing. `None` while the store does not tell. `first` is the time of the first block.
fn end(follower: &Follower, range: &RangeInclusive<u64>, first: u64, goal: u64) -> Option<u64> {
    let wanted = range.start().saturating_sub(goal);
    if wanted == 0 || fills_for_archive(follower) {
        return Some(range.start() - wanted);
    }
    let (reader, retention) = (&follower.serving.reader, &follower.retention);
    let head = reader.head().map_or(0, |head| head.timestamp());
    let oldest = retention.age.map(|age| now(reader).saturating_sub(age.as_secs()));
    let aged = oldest.map(|oldest| within_age(range, (first, head), oldest));
    let counted = retention.bytes.map(|bytes| {
        let bytes = bytes.saturating_sub(2 * follower.ingest.segment_bytes());
        StoreFill::of(reader, range, follower.unpacked_bytes).heights_below(bytes, wanted)
    });
    kept_below(wanted, aged.into_iter().chain(counted)).map(|kept| range.start() - kept)
}

/// Heights below the first one that each bound keeps, at most `wanted`; `None` if a bound does not tell.
fn kept_below(wanted: u64, mut bounds: impl Iterator<Item = Option<u64>> + Clone) -> Option<u64> {
    if bounds.clone().any(|bound| bound == Some(0)) {
        return Some(0);
    }
    bounds.try_fold(wanted, |least, bound| Some(least.min(bound?)))
}

/// Heights below the first one that are younger than `oldest`, if they came at the pace of the stored ones. The times
/// are those of the first block and of the head.
fn within_age(range: &RangeInclusive<u64>, (first, head): (u64, u64), oldest: u64) -> Option<u64> {
    if first <= oldest {
        return Some(0);
    }
    let passed = head.checked_sub(first).filter(|passed| *passed > 0)?;
    let heights = u128::from(first - oldest) * u128::from(range.end() - range.start());
    u64::try_from(heights.div_ceil(passed.into())).ok()
}

/// Sizes of a store that backfill fills.
struct StoreFill {
    /// Bytes on disk without quarantined files.
    used: u64,
    /// Bytes of its unpacked heights.
    unpacked: u64,
    /// Bytes that stay unpacked; `None`: nothing is packed.
    unpacked_max: Option<u64>,
    /// Bytes of an unpacked height.
    each: u64,
    /// Bytes of a packed height, once there is one.
    packed_each: Option<u64>,
}

impl StoreFill {
    fn of(reader: &Reader, range: &RangeInclusive<u64>, unpacked_max: Option<u64>) -> Self {
        let usage = reader.usage();
        let used = usage.disk_bytes - usage.quarantined_bytes;
        let packed_each = usage.packed_bytes.checked_div(usage.packed_blocks);
        let unpacked = (range.end() - range.start() + 1).saturating_sub(usage.packed_blocks);
        // The newest heights are in memory, and unpacked.
        let each =
            sampled_bytes(reader, range.end().saturating_sub(SAMPLE - 1).max(*range.start()));
        Self {
            used,
            unpacked: unpacked.saturating_mul(each),
            unpacked_max,
            each,
            packed_each: packed_each.map(|each| each.max(1)),
        }
    }

    /// Heights that the store still takes until it has `limit` bytes, the older ones packed; `None` if they will be
    /// packed, and no packed height tells their size.
    fn heights_below(&self, limit: u64, wanted: u64) -> Option<u64> {
        let unpacked = limit.saturating_sub(self.used) / self.each;
        let Some(most) = self.unpacked_max else { return Some(unpacked) };
        let all = self.unpacked.saturating_add(unpacked.saturating_mul(self.each));
        if unpacked >= wanted || all <= most {
            return Some(unpacked);
        }
        let packed_each = self.packed_each?;
        // The packer has not come to these yet.
        let due = self.unpacked.saturating_sub(most);
        let saved = due.saturating_sub(due / self.each * packed_each);
        let room = limit.saturating_add(saved).saturating_sub(self.used);
        let stays = most.saturating_sub(self.unpacked).min(room);
        Some(stays / self.each + (room - stays) / packed_each)
    }
}

/// The lowest height that is wanted, and that retention would not drop at once. A gap is filled
/// whatever is asked for: what is below it is here. While the archive lacks heights there, eviction keeps the files below
/// the gap, and retention does not bound the fill.
pub(crate) fn goal(follower: &Follower, head: u64) -> u64 {
    let wanted = match follower.backfill {
        BackfillTarget::None => u64::MAX,
        BackfillTarget::Retained => 0,
        BackfillTarget::To(StartAt::Height(height)) => height,
        BackfillTarget::To(StartAt::BeforeHead(back)) => head.saturating_sub(back),
    };
    let kept = follower.retention.blocks.map_or(0, |keep| (head + 1).saturating_sub(keep));
    let gap = follower.serving.reader.gap().map_or(u64::MAX, |gap| gap.start);
    if fills_for_archive(follower) { gap } else { wanted.min(gap).max(kept) }
}

/// True if heights below a gap, or in it, wait for the archive: only the served range is packed and pushed.
fn fills_for_archive(follower: &Follower) -> bool {
    let Some(gap) = follower.serving.reader.gap() else { return false };
    let push = follower.status.archive().and_then(|archive| archive.push);
    push.is_some_and(|push| push.has_looked() && lacks(&push, &gap))
}

/// True if the archive lacks the height below `gap` or the last one in it. Its heights have no gap, so it has all between
/// two that it has.
fn lacks(push: &PushStatus, gap: &Range<u64>) -> bool {
    let has = |height| push.heights.is_some_and(|(first, last)| (first..=last).contains(&height));
    let wants = |height: u64| height >= push.from && !has(height);
    [gap.start, gap.end].iter().filter_map(|end| end.checked_sub(1)).any(wants)
}

/// True if a further segment below the first height would be kept. False for an empty store.
pub(crate) async fn has_room_below(follower: &Follower) -> bool {
    let first = |reader: &Reader| timestamp(reader, *reader.range()?.start());
    let first = unsettled::off_task(&follower.serving.reader, first).await;
    first.is_some_and(|first| has_room(follower, first, follower.ingest.segment_bytes()))
}

/// Time of a stored block; the latest of all if it cannot be read.
fn timestamp(reader: &Reader, height: u64) -> Option<u64> {
    let record = reader.record(height)?;
    Some(loaded(|| Some(record.timestamp())).unwrap_or(u64::MAX))
}

/// True if a further segment below the block of time `first` would be kept: it fits into the bound of bytes, with the one
/// that the head needs next, and its newest block is young enough. Quarantined files make space for it.
fn has_room(follower: &Follower, first: u64, segment_bytes: u64) -> bool {
    if fills_for_archive(follower) {
        return true;
    }
    let retention = &follower.retention;
    let usage = follower.serving.reader.usage();
    let used = usage.disk_bytes - usage.quarantined_bytes;
    let fits = retention.bytes.is_none_or(|limit| used + 2 * segment_bytes <= limit);
    let age = now(&follower.serving.reader).saturating_sub(first);
    fits && retention.age.is_none_or(|limit| age < limit.as_secs())
}

/// Time by which retention counts ages: the head's, if the system clock is ahead of it. So does eviction.
fn now(reader: &Reader) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_secs().min(reader.head().map_or(u64::MAX, |head| head.timestamp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_without_an_estimate_hides_the_end_until_another_allows_nothing() {
        let kept = |bounds: &[Option<u64>]| kept_below(500, bounds.iter().copied());
        assert_eq!(kept(&[]), Some(500));
        assert_eq!(kept(&[Some(70), Some(90)]), Some(70));
        assert_eq!(kept(&[Some(900)]), Some(500));
        assert_eq!(kept(&[Some(70), None]), None);
        assert_eq!(kept(&[None, Some(0)]), Some(0));
    }

    #[test]
    fn age_is_counted_in_heights_of_the_stored_pace() {
        // 100 heights in 200 seconds.
        let below = |oldest| within_age(&(1_000..=1_100), (5_000, 5_200), oldest);
        assert_eq!(below(4_000), Some(500));
        assert_eq!(below(4_999), Some(1), "a part of a height is one");
        assert_eq!([below(5_000), below(5_100)], [Some(0); 2]);
        assert_eq!(within_age(&(7..=7), (5_000, 5_000), 4_000), None, "one block has no pace");
        assert_eq!(within_age(&(7..=9), (u64::MAX, 5_000), 4_000), None, "an unreadable time");
    }

    #[test]
    fn bytes_are_counted_in_packed_heights_where_neve_packs() {
        let filling = |unpacked_max, packed_each, unpacked| StoreFill {
            used: 50_000,
            unpacked,
            unpacked_max,
            each: 1_000,
            packed_each,
        };
        let below = |filling: StoreFill| filling.heights_below(100_000, 900);
        assert_eq!(below(filling(None, None, 50_000)), Some(50));
        assert_eq!(below(filling(Some(200_000), None, 50_000)), Some(50), "nothing is packed yet");
        assert_eq!(below(filling(Some(20_000), None, 50_000)), None);
        assert_eq!(below(filling(Some(20_000), Some(50), 20_000)), Some(1_000));
        assert_eq!(below(filling(Some(20_000), Some(50), 10_000)), Some(10 + 800));
        // 30 heights are due, of which 1,500 bytes remain.
        assert_eq!(below(filling(Some(20_000), Some(50), 50_000)), Some(1_000 + 570));
        let few = filling(Some(20_000), None, 50_000).heights_below(100_000, 40);
        assert_eq!(few, Some(50), "they fit without packing");
    }

    #[test]
    fn gap_is_filled_for_an_archive_that_lacks_something_below_its_end() {
        let gap = 200..300;
        let lacks =
            |heights, from| lacks(&PushStatus { heights, from, ..PushStatus::default() }, &gap);
        assert!(lacks(None, 0));
        assert!(lacks(Some((0, 198)), 0), "the file below the gap");
        assert!(
            lacks(Some((200, 400)), 0),
            "the file below the gap, when the archive grows downwards"
        );
        assert!(lacks(Some((0, 298)), 0), "the archive goes on with heights of the gap");
        assert!(lacks(None, 299));
        assert!(!lacks(Some((0, 299)), 0));
        assert!(!lacks(Some((199, 400)), 0));
        assert!(!lacks(None, 300), "heights that no archive is to have");
        assert!(!lacks(Some((200, 400)), 200));
    }
}
