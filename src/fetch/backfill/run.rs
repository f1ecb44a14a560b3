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
use crate::ingest::Stopped;
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
    let backoff = Backoff::new(AGAIN_FIRST, AGAIN_MAX);
    let (quiet, said, forgotten_from) = (QuietSource::new(), String::new(), None);
    let mut state = BackfillState { follower, source, peer, backoff, quiet, said, forgotten_from };
    while state.is_needed() {
        if state.step().await.is_err() {
            return; // the writer has said why
        }
    }
}

/// State of backfill.
struct BackfillState {
    follower: Arc<Follower>,
    source: HeightFetcher,
    peer: Option<Arc<MirrorSource>>,
    backoff: Backoff,
    quiet: QuietSource,
    /// Last log line about an interval that failed.
    said: String,
    /// First height when files with served heights were last removed.
    forgotten_from: Option<u64>,
}

impl BackfillState {
    fn is_needed(&self) -> bool {
        // A gap comes with opening only: once it is closed, there is none.
        self.follower.backfill != BackfillTarget::None
            || self.follower.serving.reader.gap().is_some()
    }

    /// Takes whole segments, then an interval height by height. Fails if the writer has stopped.
    async fn step(&mut self) -> Result<(), Stopped> {
        // A new mirror begins with its segments as soon as it has what proves them.
        let new = self.peer.is_some() && self.follower.status.verified().is_none();
        let lowest = match self.segments().await {
            Ok(BackfillStep::Again) => {
                self.backoff.reset();
                return Ok(());
            }
            Ok(BackfillStep::Ask { from }) => Some(from),
            Ok(BackfillStep::Nothing) => None,
            Err(BackfillError::Writer(stopped)) => return Err(stopped),
            Err(why) => {
                self.wait_after_segments(&why).await;
                None
            }
        };
        match self.planned(lowest).await {
            Some(interval) => self.interval(interval).await?,
            None => tokio::time::sleep(if new { LOOK_SOON } else { LOOK_EVERY }).await,
        }
        Ok(())
    }

    async fn wait_after_segments(&mut self, why: &BackfillError) {
        let wait = self.backoff.wait();
        warn!(error = %why, retry_in = format_args!("{wait:.1?}"), "whole segments failed");
        tokio::time::sleep(wait).await;
    }

    /// Plans the next interval on a thread that may wait for the disk: the sample may be packed.
    async fn planned(&self, lowest: Option<u64>) -> Option<RangeInclusive<u64>> {
        // An interval's requests wait for an upstream, and an archive may have the heights meanwhile.
        let is_asked = self.source.pool.sight().borrow().admitted > 0;
        let lowest = lowest.filter(|_| is_asked)?;
        let follower = Arc::clone(&self.follower);
        spawn_blocking(move || plan(&follower, lowest)).await.ok()?
    }

    /// Fills an interval height by height. Waits after a failure; fails if the writer has stopped.
    async fn interval(&mut self, interval: RangeInclusive<u64>) -> Result<(), Stopped> {
        let filled = BackfillInterval::new(&self.follower, &self.source, interval.clone()).run();
        match filled.await {
            Ok(()) => {
                self.backoff.reset();
                self.said.clear();
            }
            Err(BackfillError::Writer(stopped)) => return Err(stopped),
            Err(why) => {
                let wait = self.backoff.wait();
                report(&interval, &why, wait, &mut self.said);
                tokio::time::sleep(wait).await;
            }
        }
        Ok(())
    }

    /// Takes whole segments: those of the mirror source, then those of the archive.
    async fn segments(&mut self) -> Result<BackfillStep, BackfillError> {
        let (follower, source) = (&*self.follower, &self.source);
        forget_served(follower, &mut self.forgotten_from).await?;
        let step = match &self.peer {
            Some(peer) => mirror_transfer::fill(follower, source, peer, &mut self.quiet).await?,
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
