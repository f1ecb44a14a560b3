//! Stream of a mirror source: its records beside its answers.

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, gauge};
use tokio::sync::watch;
use tracing::warn;

use crate::client::Backoff;
use crate::fetch::Follower;
use crate::mirror::{Channel, Frame, MirrorSource, SourceError};
use crate::upstream::{Announced, Upstream, UpstreamPool};

/// Time between two checks for a session.
const NOT_BEGUN: Duration = Duration::from_millis(10);
/// Wait after a stream that ended: the first, and the longest.
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// A peer without what a mirror needs may get it with its next release.
const LATER: Duration = Duration::from_secs(30);

/// Follows the peer's stream for ever.
pub(crate) struct StreamFollower {
    pub(crate) follower: Arc<Follower>,
    pub(crate) pool: Arc<UpstreamPool>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) peer: Arc<MirrorSource>,
    pub(crate) newest: watch::Sender<Announced>,
}

impl StreamFollower {
    pub(crate) async fn run(self) {
        let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MAX);
        loop {
            let Some(from) = self.next() else {
                tokio::time::sleep(NOT_BEGUN).await; // no session has said yet where it begins
                continue;
            };
            let ended = self.stream(from, &mut backoff).await;
            self.peer.feed.end();
            gauge!("neve_mirror_stream_connected").set(0.0);
            let wait = match &ended {
                Err(why) if why.is_lasting() => LATER,
                _ => backoff.wait(),
            };
            match ended {
                Ok(()) => self.say(&SourceError::Unreachable("its stream ended".into())),
                Err(why) => self.say(&why),
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn say(&self, why: &SourceError) {
        self.peer.say(Channel::Stream, Some(why));
    }

    /// The height that is needed next.
    fn next(&self) -> Option<u64> {
        let begun = self.follower.status.catch_up_from()?;
        Some(self.stored().max(begun))
    }

    /// The height above the head.
    fn stored(&self) -> u64 {
        self.follower.serving.reader.range().map_or(0, |range| range.end() + 1)
    }

    async fn stream(&self, from: u64, backoff: &mut Backoff) -> Result<(), SourceError> {
        let mut frames = self.peer.records(from).await?;
        self.peer.feed.begin(from);
        gauge!("neve_mirror_stream_connected").set(1.0);
        self.peer.say(Channel::Stream, None);
        let mut next = from;
        while let Some(frame) = frames.next().await? {
            if frame == Frame::Gone {
                return Err(SourceError::Evicted { height: next });
            }
            backoff.reset();
            self.follower.status.heard();
            match frame {
                Frame::Record { height, block, receipts } if height == next => {
                    next += 1;
                    counter!("neve_mirror_received_records_total").increment(1);
                    self.peer.feed.put(height, (block, receipts), self.stored()).await;
                    // After the buffer has the record: the task for this head takes it there.
                    self.newest.send_modify(|newest| newest.height = Some(height));
                }
                Frame::Record { height, .. } => {
                    return Err(SourceError::Malformed(
                        format!("height {height} instead of {next}").into(),
                    ));
                }
                Frame::Withdrawn { from } => {
                    // The stream comes back to it: see `Frame::Withdrawn`.
                    next = next.min(from);
                    self.withdrawn(from);
                }
                Frame::Idle | Frame::Gone => {}
            }
        }
        Ok(())
    }

    fn withdrawn(&self, from: u64) {
        warn!(from, upstream = self.peer.name, "mirror source withdrew heights");
        self.peer.feed.withdraw(from);
        {
            let mut state = self.upstream.state();
            state.head = state.head.min(from.saturating_sub(1));
        }
        // Last: it wakes the session, which reads the other values.
        self.pool.withdraws(from);
    }
}
