//! The hashes of an interval of history, fetched before its blocks. Each header has the hash of the one
//! below it, so all hashes follow from one that is known, even if an upstream lies. A block of history
//! is compared with its hash as soon as it comes. So the sender of a false block is known at once.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use neve_chain::HeaderAnswer;
use neve_store::Hash;
use tracing::debug;

use crate::client::{Backoff, CallError};
use crate::fetch::{HeightFetcher, refuse};
use crate::upstream::{FetchNeed, Priority};

/// Headers in a batch: some 2 KB each.
const HEADERS_A_BATCH: u64 = 100;
const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(10);

/// The hashes of `heights`, ascending, of which the last is `last`; and the parent of the first.
pub(crate) async fn hashes(
    source: &HeightFetcher,
    heights: RangeInclusive<u64>,
    last: Hash,
) -> Vec<Hash> {
    let (low, mut high) = (*heights.start(), *heights.end());
    let mut descending = Vec::new();
    let mut known = last;
    loop {
        let from = low.max((high + 1).saturating_sub(HEADERS_A_BATCH));
        let batch = linked(source, from..=high, known).await;
        descending.extend(batch.iter().rev().map(|(hash, _)| *hash));
        known = batch.first().map_or(known, |(_, parent)| *parent);
        if from == low {
            break;
        }
        high = from - 1;
    }
    descending.reverse();
    descending
}

/// Hash and parent of each of `heights`, ascending, however often it takes.
async fn linked(
    source: &HeightFetcher,
    heights: RangeInclusive<u64>,
    last: Hash,
) -> Vec<(Hash, Hash)> {
    let mut need = FetchNeed::new(*heights.end(), Priority::Backfill);
    let mut again = Backoff::new(AGAIN_FIRST, AGAIN_MAX);
    let params: Vec<String> = heights.clone().map(|height| format!("[\"{height:#x}\"]")).collect();
    loop {
        let lease = source.pool.lease(need.clone()).await;
        let upstream = &lease.upstream;
        let answer = upstream.client.batch("eth_getHeaderByNumber", &params).await;
        let linked = match answer {
            // The upstream lacks some of them, as a pruned node does.
            Err(error) if error.is_absent() => Ok(Err(Broken::Missing)),
            answer => answer.map(|headers| link(&headers, last)),
        };
        match linked {
            Ok(Ok(linked)) => return linked,
            Ok(Err(Broken::Missing)) => {
                upstream.mark_missing(*heights.start());
                need.not(lease.place, again.wait());
            }
            Ok(Err(Broken::False(why))) => {
                refuse(*heights.end(), Some(&upstream.name), "backfill_link", &why);
                upstream.penalize("backfill_link");
                need.not(lease.place, again.wait());
            }
            Err(CallError::Throttled { after, .. }) => {
                upstream.pause(after.unwrap_or_default().max(again.wait()));
            }
            Err(error @ CallError::Rpc { .. }) => {
                debug!(%error, upstream = upstream.name, "upstream sends no headers");
                need.not(lease.place, again.wait());
            }
            Err(error) => {
                upstream.fails(error);
                source.pool.changed(false);
            }
        }
    }
}

enum Broken {
    Missing,
    False(String),
}

/// Hash and parent of each header, if the last has the hash `last` and each is the parent of the
/// next.
fn link(headers: &[Option<Bytes>], last: Hash) -> Result<Vec<(Hash, Hash)>, Broken> {
    let mut linked = Vec::with_capacity(headers.len());
    let mut known = last;
    for header in headers.iter().rev() {
        let header = header.as_ref().ok_or(Broken::Missing)?;
        let answer = HeaderAnswer::parse(header).map_err(|no| Broken::False(no.to_string()))?;
        let checked = answer.check().map_err(|no| Broken::False(no.to_string()))?;
        let hash = Hash(checked.hash().0);
        // Its child names another hash, and the child is proven: the sender is at fault.
        if hash != known {
            let height = checked.header().number;
            return Err(Broken::False(format!(
                "header {height} is {hash}, its child names {known}"
            )));
        }
        known = Hash(checked.header().parent_hash.0);
        linked.push((hash, known));
    }
    linked.reverse();
    Ok(linked)
}
