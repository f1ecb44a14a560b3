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
    // Without room it has all that it may have.
    let goal = if has_room { goal(follower, *range.end()) } else { *range.start() };
    let lowest = reader.gap().map_or(lowest, |gap| lowest.max(gap.start)); // and no further at once
    status.set_backfill(goal, *range.start());
    let last = range.start().checked_sub(1).filter(|last| *last >= goal)?;
    // Its receipts must be settled by headers that are here.
    if status.verified().is_none_or(|verified| verified < last) {
        return None;
    }
    let sample = (*range.start()..).take(SAMPLE as usize).map_while(|height| reader.record(height));
    let (count, sum) = sample.fold((0, 0), |(n, sum), one| (n + 1, sum + one.stored_len()));
    let each = (sum / u64::max(count, 1)).max(1);
    let each = each + each / OVERHEAD + 256;
    let heights = (bytes - bytes / FILL) / each;
    let heights = heights.clamp(1, u64::from(follower.ingest.segment_blocks()));
    let interval = (last + 1).saturating_sub(heights).max(goal).max(lowest)..=last;
    Some(interval).filter(|interval| !interval.is_empty())
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
/// that the head needs next, and its newest block is young enough. Quarantined files make room for it.
fn has_room(follower: &Follower, first: u64, segment_bytes: u64) -> bool {
    if fills_for_archive(follower) {
        return true;
    }
    let retention = &follower.retention;
    let usage = follower.serving.reader.usage();
    let used = usage.disk_bytes - usage.quarantined_bytes;
    let fits = retention.bytes.is_none_or(|limit| used + 2 * segment_bytes <= limit);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // By the head's time, if the system clock is ahead of it: so does eviction.
    let head = follower.serving.reader.head().map_or(u64::MAX, |head| head.timestamp());
    let age = now.as_secs().min(head).saturating_sub(first);
    fits && retention.age.is_none_or(|limit| age < limit.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

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
