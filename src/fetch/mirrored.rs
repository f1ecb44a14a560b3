//! An upstream that is a neve and is mirrored: its stream beside its answers, its segments' files in
//! place of history that is asked for height by height.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use metrics::{counter, gauge};
use neve_chain::{Checks, Settlement};
use neve_store::{Incoming, SealedPage};
use tokio::sync::{Semaphore, mpsc, watch};
use tracing::{info, warn};

use super::backfill::{Filling, Stop, goal, has_room};
use super::backoff::Backoff;
use super::evidence::Answer;
use super::heads::Announced;
use super::pool::{Pool, Purpose};
use super::source::Source;
use super::upstream::Upstream;
use super::{Follower, window};
use crate::mirror::check::{Checked, Wrong, check};
use crate::mirror::wire::{Frame, Listed, Listing};
use crate::mirror::{Means, Peer, Unusable};

/// How often it is looked whether a session has begun.
const NOT_BEGUN: Duration = Duration::from_millis(10);
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// A peer without what a mirror needs may get it with its next release.
const LATER: Duration = Duration::from_secs(30);
/// Attempts at a segment's file, each from where the one before ended.
const ATTEMPTS_MAX: u32 = 8;
/// Pieces of a file that wait for the disk.
const PIECES_AHEAD: usize = 16;

/// Follows the peer's stream for ever.
pub(super) struct Following {
    pub(super) follower: Arc<Follower>,
    pub(super) pool: Arc<Pool>,
    pub(super) upstream: Arc<Upstream>,
    pub(super) peer: Arc<Peer>,
    pub(super) newest: watch::Sender<Announced>,
}

impl Following {
    pub(super) async fn run(self) {
        let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MAX);
        loop {
            let Some(from) = self.next() else {
                tokio::time::sleep(NOT_BEGUN).await; // no session has said yet where it begins
                continue;
            };
            let ended = self.stream(from, &mut backoff).await;
            self.peer.feed.end();
            gauge!("neve_mirror_live").set(0.0);
            let wait = match &ended {
                Err(Unusable::NoSuchPath(_)) => LATER,
                _ => backoff.wait(),
            };
            match ended {
                Ok(()) => self.say(&Unusable::Unreachable("its stream ended".into())),
                Err(why) => self.say(&why),
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn say(&self, why: &Unusable) {
        self.peer.say(Means::Stream, Some(why));
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

    async fn stream(&self, from: u64, backoff: &mut Backoff) -> Result<(), Unusable> {
        let mut frames = self.peer.records(from).await?;
        self.peer.feed.begin(from);
        gauge!("neve_mirror_live").set(1.0);
        self.peer.say(Means::Stream, None);
        let mut next = from;
        while let Some(frame) = frames.next().await? {
            backoff.reset();
            self.follower.status.heard();
            match frame {
                Frame::Record { height, block, receipts } if height == next => {
                    next += 1;
                    counter!("neve_mirror_records_total").increment(1);
                    self.peer.feed.put(height, (block, receipts), self.stored()).await;
                    self.newest.send_modify(|newest| newest.height = Some(height));
                }
                Frame::Record { height, .. } => {
                    return Err(Unusable::Malformed(format!("height {height} instead of {next}")));
                }
                Frame::Withdrawn { from } => {
                    next = next.min(from);
                    self.withdrawn(from);
                }
                Frame::Idle => {}
                Frame::Gone => return Err(Unusable::Malformed(format!("it has no height {next}"))),
            }
        }
        Ok(())
    }

    fn withdrawn(&self, from: u64) {
        info!(from, peer = self.peer.name, "it has taken heights back");
        self.peer.feed.withdraw(from);
        {
            let mut state = self.upstream.state();
            state.head = state.head.min(from.saturating_sub(1));
        }
        self.pool.withdrawn(from);
    }
}

/// What is to be done below the first height.
pub(super) enum Next {
    /// Something was published: look again.
    Again,
    /// Ask for heights one by one, not below this one.
    Ask { from: u64 },
    /// Nothing.
    Nothing,
}

/// Takes segments of the peer that lie below the first height, newest first.
pub(super) async fn fill(
    follower: &Follower,
    source: &Source,
    peer: &Arc<Peer>,
) -> Result<Next, Stop> {
    let Some(range) = follower.serving.reader.range() else { return Ok(Next::Nothing) };
    let (first, head) = (*range.start(), *range.end());
    let goal = goal(follower, head);
    if follower.status.verified().is_none_or(|verified| verified + 1 < first) {
        return Ok(Next::Nothing); // until something above can prove it
    }
    if first <= goal {
        return Ok(Next::Ask { from: first }); // of which nothing comes but what /health shows
    }
    let listing = match peer.list().await {
        Ok(listing) => listing,
        Err(why) => {
            peer.say(Means::Files, Some(&why));
            return Ok(Next::Ask { from: 0 });
        }
    };
    let ours = follower.serving.identity();
    if listing.identity() != ours {
        return Ok(Next::Ask { from: 0 }); // its keeper has said so
    }
    let mut wanted: Vec<Listed> = Vec::new();
    let mut end = first;
    for listed in listing.segments.iter().rev().skip_while(|listed| listed.end() > first) {
        if listed.end() != end || end <= goal || peer.is_refused(listed.base) {
            break;
        }
        end = listed.base;
        wanted.push(*listed);
    }
    if wanted.is_empty() {
        return Ok(below(&listing, first, follower.endpoints.len() == 1));
    }
    peer.say(Means::Files, None);
    take_all(follower, source, peer, &listing, wanted).await
}

/// What is not there as a whole segment is asked for, as far as the peer or anybody has it.
fn below(listing: &Listing, first: u64, alone: bool) -> Next {
    let last = first.saturating_sub(1);
    let holder = listing.segments.iter().find(|listed| (listed.base..listed.end()).contains(&last));
    let lowest = listing.first.unwrap_or(first);
    match holder {
        Some(holder) => Next::Ask { from: holder.base },
        None if alone && lowest >= first => Next::Nothing,
        None if alone => Next::Ask { from: lowest },
        None => Next::Ask { from: 0 },
    }
}

async fn take_all(
    follower: &Follower,
    source: &Source,
    peer: &Arc<Peer>,
    listing: &Listing,
    wanted: Vec<Listed>,
) -> Result<Next, Stop> {
    let lowest = listing.first.unwrap_or_default();
    let ahead = follower.config.verify_threads.min(8) + 1;
    // One comes while those before it are proven.
    let downloads = &Semaphore::new(1);
    let taking = |listed| async move {
        (listed, Taking { follower, source, peer, listed, lowest, downloads }.run().await)
    };
    let mut taken = std::pin::pin!(stream::iter(wanted).map(taking).buffered(ahead));
    while let Some((listed, outcome)) = taken.next().await {
        match outcome {
            Ok(checked) => match publish(follower, source, listed, checked).await {
                Ok(()) => {
                    follower.status.change_mirror(|mirror| mirror.taken += 1);
                    counter!("neve_mirror_segments_total", "outcome" => "taken").increment(1);
                }
                // Its last heights, which headers above it settle.
                Err(Stop::Disproved(disproof)) => {
                    refuse(follower, peer, listed, &Wrong::disproved(&disproof));
                    return Ok(Next::Ask { from: listed.base });
                }
                Err(stop) => return Err(stop),
            },
            Err(Failed::Full) => return Ok(Next::Ask { from: listed.base }),
            Err(Failed::Stop(stop)) => return Err(stop),
            Err(Failed::Peer(why)) => {
                warn!(base = listed.base, peer = peer.name, "a segment did not come: {why}");
                return Ok(Next::Ask { from: listed.base });
            }
            Err(Failed::Wrong(wrong)) => {
                counter!("neve_blocks_refused_total", "reason" => wrong.reason).increment(1);
                refuse(follower, peer, listed, &wrong);
                return Ok(Next::Ask { from: listed.base });
            }
        }
    }
    Ok(Next::Again)
}

/// A segment did not check out: it is left alone, and what is wrong of it is kept.
fn refuse(follower: &Follower, peer: &Peer, listed: Listed, wrong: &Wrong) {
    warn!(base = listed.base, peer = peer.name, "refused a segment: {wrong}");
    counter!("neve_mirror_segments_total", "outcome" => "refused").increment(1);
    peer.refuse(listed.base);
    if let Some(texts) = wrong.texts.clone() {
        let (height, upstream) = (wrong.height.unwrap_or(listed.base), peer.name.clone());
        let answer = Answer { height, upstream, texts };
        follower.evidence.keep(answer, wrong.reason, &wrong.to_string());
    }
}

/// Why a segment was not taken.
enum Failed {
    /// It does not fit into what is to be kept.
    Full,
    Wrong(Wrong),
    Peer(Unusable),
    Stop(Stop),
}

impl<E: Into<Stop>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Stop(error.into())
    }
}

/// A segment on its way.
struct Taking<'f> {
    follower: &'f Follower,
    source: &'f Source,
    peer: &'f Arc<Peer>,
    listed: Listed,
    /// The lowest height that the peer has.
    lowest: u64,
    /// A place among the downloads.
    downloads: &'f Semaphore,
}

impl Taking<'_> {
    async fn run(self) -> Result<Checked, Failed> {
        let reader = &self.follower.serving.reader;
        let range = reader.range().ok_or(Failed::Full)?;
        let above = reader.record(*range.start()).ok_or(Failed::Full)?;
        if !has_room(self.follower, &above, self.follower.ingest.segment_bytes()) {
            return Err(Failed::Full);
        }
        let downloading = self.downloads.acquire().await.ok();
        let incoming = self.download().await?;
        drop(downloading);
        let page = self.sensible(&incoming)?;
        let checks = self.checks();
        let window = self.window(checks).await;
        let _turn = self.source.prover.turns.acquire().await.ok();
        let checked = tokio::task::spawn_blocking(move || check(incoming, &page, checks, window));
        match checked.await?? {
            Ok(checked) => Ok(checked),
            Err(wrong) => {
                self.forget().await?;
                Err(Failed::Wrong(wrong))
            }
        }
    }

    fn checks(&self) -> Checks {
        Filling::new(self.follower, self.source, self.listed.base..=self.listed.base).checks
    }

    /// The heights below that the segment's headers settle. What is below all that the peer has
    /// cannot be had, nor proven.
    async fn window(&self, checks: Checks) -> Settlement {
        let before = self.listed.base.checked_sub(1).filter(|before| *before >= self.lowest);
        let reader = &self.follower.serving.reader;
        window::rebuild(reader, self.source, before, Purpose::Backfill, checks).await.0
    }

    /// Nothing is to be kept of it.
    async fn forget(&self) -> Result<(), Failed> {
        let history = self.follower.ingest.raw_history().await??;
        let base = self.listed.base;
        let forgotten = tokio::task::spawn_blocking(move || history.receive(base)?.restart());
        Ok(forgotten.await??)
    }

    /// What its header page says, as far as that can be told without the rest.
    fn sensible(&self, incoming: &Incoming) -> Result<SealedPage, Failed> {
        let page = incoming.page().filter(|page| {
            Some(page.identity) == self.follower.serving.identity()
                && (page.base, page.records) == (self.listed.base, self.listed.records)
        });
        page.cloned().ok_or_else(|| {
            Failed::Peer(Unusable::Malformed("a segment that is not the one in its list".into()))
        })
    }

    /// Gets the file, from where it is, in several attempts if need be.
    async fn download(&self) -> Result<Incoming, Failed> {
        let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MAX);
        let mut attempts = 0;
        loop {
            let why = match self.attempt().await {
                Ok(Some(incoming)) => return Ok(incoming),
                Ok(None) => Unusable::Unreachable("its file ended early".into()),
                Err(Failed::Peer(why @ (Unusable::NoSuchPath(_) | Unusable::Malformed(_)))) => {
                    return Err(Failed::Peer(why));
                }
                Err(Failed::Peer(why)) => why,
                Err(failed) => return Err(failed),
            };
            attempts += 1;
            if attempts >= ATTEMPTS_MAX {
                return Err(Failed::Peer(why));
            }
            tokio::time::sleep(backoff.wait()).await;
        }
    }

    /// `None` if it is not whole yet.
    async fn attempt(&self) -> Result<Option<Incoming>, Failed> {
        let history = self.follower.ingest.raw_history().await??;
        let base = self.listed.base;
        let mut incoming = tokio::task::spawn_blocking(move || history.receive(base)).await??;
        if incoming.is_whole() {
            return Ok(Some(incoming));
        }
        let (have, tag) = (incoming.have(), incoming.page().map(|page| page.tag.clone()));
        let asked = self.peer.segment(base, have, tag.as_deref()).await;
        let (from, mut pieces) = asked.map_err(Failed::Peer)?;
        if from != have {
            incoming = tokio::task::spawn_blocking(move || incoming.restart().map(|()| incoming))
                .await??;
        }
        info!(base, from, peer = self.peer.name, "taking a segment");
        let (out, arrived) = mpsc::channel(PIECES_AHEAD);
        let writing = tokio::task::spawn_blocking(move || write(incoming, arrived));
        let broken = loop {
            match pieces.next().await {
                Ok(Some(bytes)) => {
                    counter!("neve_mirror_segment_bytes_total").increment(bytes.len() as u64);
                    if out.send(bytes).await.is_err() {
                        break None; // writing says why
                    }
                }
                Ok(None) => break None,
                Err(why) => break Some(why),
            }
        };
        drop(out);
        let Some(incoming) = writing.await?? else {
            self.forget().await?;
            let why = "a segment that is none, or longer than it says".to_owned();
            return Err(Failed::Peer(Unusable::Malformed(why)));
        };
        match broken {
            _ if incoming.is_whole() => Ok(Some(incoming)),
            Some(why) => Err(Failed::Peer(why)),
            None => Ok(None),
        }
    }
}

/// Writes what arrives. `None` if it cannot be a segment.
fn write(
    mut incoming: Incoming,
    mut arrived: mpsc::Receiver<Bytes>,
) -> Result<Option<Incoming>, neve_store::Error> {
    while let Some(bytes) = arrived.blocking_recv() {
        if !incoming.write(&bytes)? {
            return Ok(None);
        }
    }
    Ok(Some(incoming))
}

/// Publishes a segment, once the stored headers above it have settled its last heights.
async fn publish(
    follower: &Follower,
    source: &Source,
    listed: Listed,
    checked: Checked,
) -> Result<(), Stop> {
    let begun = Instant::now();
    let Checked { built, mut window } = checked;
    let last = listed.end() - 1;
    Filling::new(follower, source, listed.base..=last).settle_above(&mut window)?;
    let heights = follower.ingest.prepend(built).await??;
    info!(first = listed.base, last, heights, took = ?begun.elapsed(), "took a segment");
    Ok(())
}
