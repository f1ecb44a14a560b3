//! Backfill: one interval after the other, or segments of a mirror source, until all is there.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tracing::{debug, warn};

#[cfg(feature = "archive")]
use super::archive_transfer;
use super::error::BackfillError;
use super::interval::BackfillInterval;
use super::mirror_transfer;
use super::mirror_transfer::{QuietSource, forget_others};
use super::plan::plan;
use super::transfer::BackfillStep;
use crate::client::Backoff;
use crate::config::settings::BackfillTarget;
use crate::fetch::{Follower, HeightFetcher};
use crate::mirror::MirrorSource;

/// Time between two checks for work.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time between them for a new mirror, which serves nothing yet.
const LOOK_SOON: Duration = Duration::from_millis(20);
/// Wait after heights that failed: the first, and the longest.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_mins(1);

/// Fills for ever.
pub(crate) async fn run(
    follower: Arc<Follower>,
    source: HeightFetcher,
    peer: Option<Arc<MirrorSource>>,
) {
    let (mut backoff, mut forgotten_from) = (Backoff::new(AGAIN_FIRST, AGAIN_MAX), None);
    let (mut quiet, mut said) = (QuietSource::new(), String::new());
    // A gap comes with opening only: once it is closed, there is none.
    while follower.backfill != BackfillTarget::None || follower.serving.reader.gap().is_some() {
        // A new mirror begins with its segments as soon as it has what proves them.
        let new = peer.is_some() && follower.status.verified().is_none();
        let lowest = match segments(
            &follower,
            &source,
            (peer.as_ref(), &mut quiet),
            &mut forgotten_from,
        )
        .await
        {
            Ok(BackfillStep::Again) => {
                backoff.reset();
                continue;
            }
            Ok(BackfillStep::Ask { from }) => Some(from),
            Ok(BackfillStep::Nothing) => None,
            Err(BackfillError::Writer(_)) => return,
            Err(why) => {
                let wait = backoff.wait();
                warn!(error = %why, retry_in = format_args!("{wait:.1?}"), "whole segments failed");
                tokio::time::sleep(wait).await;
                None
            }
        };
        // An interval's requests wait for an upstream, and an archive may have the heights meanwhile.
        let is_asked = source.pool.sight().borrow().admitted > 0;
        let Some(interval) = planned(&follower, lowest.filter(|_| is_asked)).await else {
            tokio::time::sleep(if new { LOOK_SOON } else { LOOK_EVERY }).await;
            continue;
        };
        match BackfillInterval::new(&follower, &source, interval.clone()).run().await {
            Ok(()) => {
                backoff.reset();
                said.clear();
            }
            Err(BackfillError::Writer(_)) => return,
            Err(why) => {
                let wait = backoff.wait();
                report(&interval, &why, wait, &mut said);
                tokio::time::sleep(wait).await;
            }
        }
    }
}

/// Plans the next interval on a thread that may wait for the disk: the sample may be packed.
async fn planned(follower: &Arc<Follower>, lowest: Option<u64>) -> Option<RangeInclusive<u64>> {
    let (follower, lowest) = (Arc::clone(follower), lowest?);
    spawn_blocking(move || plan(&follower, lowest)).await.ok()?
}

/// Says why an interval failed. The same words again are no news: upstreams may lack a height for good.
fn report(interval: &RangeInclusive<u64>, why: &BackfillError, wait: Duration, said: &mut String) {
    let (error, retry_in) = (why.to_string(), format_args!("{wait:.1?}"));
    if error == *said {
        debug!(?interval, error, retry_in, "backfill still fails");
    } else {
        warn!(?interval, error, retry_in, "backfill failed");
    }
    *said = error;
}

/// Removes what has arrived of files whose heights are served by now: they came one by one. The directory is read when the
/// first height is another one than before.
async fn forget_served(
    follower: &Follower,
    forgotten_from: &mut Option<u64>,
) -> Result<(), BackfillError> {
    let first = follower.serving.reader.range().map(|range| *range.start());
    if let Some(first) = first.filter(|_| first != *forgotten_from) {
        forget_others(follower, move |base| base < first).await?;
    }
    *forgotten_from = first;
    Ok(())
}

/// Takes whole segments: those of the mirror source, then those of the archive.
async fn segments(
    follower: &Follower,
    source: &HeightFetcher,
    (peer, quiet): (Option<&Arc<MirrorSource>>, &mut QuietSource),
    forgotten_from: &mut Option<u64>,
) -> Result<BackfillStep, BackfillError> {
    forget_served(follower, forgotten_from).await?;
    let step = match peer {
        Some(peer) => mirror_transfer::fill(follower, source, peer, quiet).await?,
        None => BackfillStep::Ask { from: 0 },
    };
    #[cfg(feature = "archive")]
    if let (Some(archive), BackfillStep::Nothing | BackfillStep::Ask { .. }) =
        (&follower.archive, &step)
    {
        let other = archive_transfer::fill(follower, source, archive).await?;
        return Ok(step.or(other));
    }
    Ok(step)
}
