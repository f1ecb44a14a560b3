//! The hashes of an interval of history, fetched before its blocks. Each header has the hash of the one
//! below it, so all hashes follow from one that is known, even if an upstream lies. A block of history
//! is compared with its hash as soon as it comes. So the sender of a false block is known at once.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use neve_chain::ClaimedHeader;
use neve_store::Hash;
use tracing::debug;

use crate::client::{Backoff, CallError};
use crate::fetch::{HeightFetcher, refuse};
use crate::upstream::{AfterFailure, FetchNeed, FetchPermit, Priority, Upstream};

/// Headers in a batch: some 2 KB each.
const HEADERS_A_BATCH: u64 = 100;
/// Time for which an upstream is not asked after it failed: the first, and the longest.
const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(10);
/// Wait after a response without the headers: the next node of a balancer may have them.
const AGAIN_ABSENT: Duration = Duration::from_millis(200);

/// The hashes of `heights`, ascending, of which the last is `last`: of the upper part of them if all upstreams lack those
/// below.
pub(crate) async fn hashes(
    source: &HeightFetcher,
    heights: RangeInclusive<u64>,
    last: Hash,
) -> Vec<Hash> {
    let (mut low, mut end) = (*heights.start(), heights.end() + 1);
    let (mut known, mut most) = (last, HEADERS_A_BATCH);
    let mut descending = Vec::new();
    while low < end {
        let (from, high) = (low.max(end.saturating_sub(most)), end - 1);
        let Some(batch) = linked(source, from..=high, known).await else {
            // Upstreams that lack a height lack those below it, and may have those above it.
            (low, most) = (from + 1, (high - from).div_ceil(2));
            continue;
        };
        descending.extend(batch.iter().rev().map(|(hash, _)| *hash));
        known = batch.first().map_or(known, |(_, parent)| *parent);
        // One by one they may end early, at a failed request.
        end = end.saturating_sub(batch.len() as u64);
    }
    descending.reverse();
    descending
}

/// Hash and parent of each of `heights`, or of the upper part of them, ascending, however often it takes. `None` if all
/// upstreams lack the first.
async fn linked(
    source: &HeightFetcher,
    heights: RangeInclusive<u64>,
    last: Hash,
) -> Option<Vec<(Hash, Hash)>> {
    let need = FetchNeed::new(*heights.end(), Priority::Backfill);
    let again = Backoff::new(AGAIN_FIRST, AGAIN_MAX);
    let mut attempts = HeaderAttempts { source, heights, need, again, absent: 0 };
    loop {
        let lease = source.pool.lease(attempts.need.clone()).await;
        match requested(&lease.upstream, attempts.heights.clone(), last).await {
            Ok(Ok(linked)) => return Some(linked),
            Ok(Err(Broken::Missing)) => {
                if attempts.note_lack(&lease) {
                    return None;
                }
            }
            Ok(Err(Broken::False(why))) => attempts.reject(&lease, &why),
            Err(error) => attempts.after(&lease, error),
        }
    }
}

/// Attempts at the headers of some heights.
struct HeaderAttempts<'s> {
    source: &'s HeightFetcher,
    heights: RangeInclusive<u64>,
    need: FetchNeed,
    again: Backoff,
    /// Responses without the headers.
    absent: u32,
}

impl HeaderAttempts<'_> {
    /// Notes that an upstream lacks the headers. Returns true if all upstreams lack the first.
    fn note_lack(&mut self, lease: &FetchPermit) -> bool {
        lease.upstream.mark_missing(*self.heights.start());
        self.absent += 1;
        self.need.not(lease.place, AGAIN_ABSENT);
        self.source.is_absent(*self.heights.start(), self.absent)
    }

    /// Penalizes an upstream that sent false headers.
    fn reject(&mut self, lease: &FetchPermit, why: &str) {
        let (upstream, last) = (&lease.upstream, *self.heights.end());
        refuse(last, Some(&upstream.name), "backfill_link", why);
        upstream.penalize("backfill_link", &format!("block {last}: {why}"));
        self.need.not(lease.place, self.again.wait());
    }

    /// Decides after a failed request which upstream is not asked for a while.
    fn after(&mut self, lease: &FetchPermit, error: CallError) {
        let upstream = &lease.upstream;
        match error {
            // A pause of its own: no height comes meanwhile that would end one of `throttles`.
            CallError::Throttled { after, .. } => {
                upstream.pause(after.unwrap_or_default().max(self.again.wait()));
            }
            error @ CallError::Rpc { .. } => {
                debug!(%error, upstream = upstream.name, "upstream sends no headers");
                self.need.not(lease.place, self.again.wait());
            }
            error => {
                if self.source.pool.failed(upstream, error) == AfterFailure::Tolerated {
                    self.need.not(lease.place, self.again.wait());
                }
            }
        }
    }
}

/// Hash and parent of each height, or why they are not had of this upstream.
type Linked = Result<Vec<(Hash, Hash)>, Broken>;

async fn requested(
    upstream: &Upstream,
    heights: RangeInclusive<u64>,
    last: Hash,
) -> Result<Linked, CallError> {
    let params: Vec<String> = heights.clone().map(|height| format!("[\"{height:#x}\"]")).collect();
    match upstream.client.batch("eth_getHeaderByNumber", &params).await {
        // The upstream lacks some of them, as a pruned node does.
        Err(error) if error.is_absent() => Ok(Err(Broken::Missing)),
        Err(error @ (CallError::InvalidJson(_) | CallError::Rpc { .. })) => {
            debug!(%error, upstream = upstream.name, "headers requested one by one");
            one_by_one(upstream, heights, last).await
        }
        answer => answer.map(|headers| link(&headers, last)),
    }
}

/// Links headers of an upstream that takes no batches, or has only whole blocks. It keeps none, because a block may be as
/// long as a response.
async fn one_by_one(
    upstream: &Upstream,
    heights: RangeInclusive<u64>,
    last: Hash,
) -> Result<Linked, CallError> {
    let (mut linked, mut known) = (Vec::new(), last);
    for height in heights.rev() {
        upstream.charge(2); // the block too, if it has no headers
        let parent = match upstream.client.header(height).await {
            Ok(Some(header)) => parent_of(&header, known),
            Ok(None) => Err(Broken::Missing),
            // A failed request must not cost those before it. The next one meets the error first.
            Err(_) if !linked.is_empty() => break,
            Err(error) => return Err(error),
        };
        let Ok(parent) = parent else { return Ok(parent.map(|_| linked)) };
        linked.push((known, parent));
        known = parent;
    }
    linked.reverse();
    Ok(Ok(linked))
}

enum Broken {
    Missing,
    False(String),
}

/// Hash and parent of each header, if the last has the hash `last` and each is the parent of the
/// next.
fn link(headers: &[Option<Bytes>], last: Hash) -> Linked {
    let mut linked = Vec::with_capacity(headers.len());
    let mut known = last;
    for header in headers.iter().rev() {
        let parent = parent_of(header.as_ref().ok_or(Broken::Missing)?, known)?;
        linked.push((known, parent));
        known = parent;
    }
    linked.reverse();
    Ok(linked)
}

/// The parent of a header that has this hash.
fn parent_of(header: &[u8], known: Hash) -> Result<Hash, Broken> {
    let answer = ClaimedHeader::parse(header).map_err(|no| Broken::False(no.to_string()))?;
    let checked = answer.check().map_err(|no| Broken::False(no.to_string()))?;
    let hash = Hash(checked.hash().0);
    // Its child names another hash, and the child is proven: the sender is at fault.
    if hash != known {
        let height = checked.header().number;
        return Err(Broken::False(format!("header {height} is {hash}, its child names {known}")));
    }
    Ok(Hash(checked.header().parent_hash.0))
}
