//! Status of upstream and store: written by the threads that know, read by /health and /metrics.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use neve_jsonrpc::Rules;

use super::lock::lock;

mod answers;

use answers::AnswerTimes;

/// Value of [`Status::verified`] until it is set.
const UNKNOWN: u64 = u64::MAX;

/// Phase of the follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    /// Requesting the upstream's chain and release.
    #[default]
    Connecting,
    /// Fetching what came before now.
    CatchingUp,
    /// At the head.
    Following,
    /// Waiting to try again.
    Waiting,
    /// The upstream serves another chain than the store holds: nothing is stored.
    WrongChain,
    /// The upstream has another block at a height that is proven here: nothing is stored.
    Disagrees,
    /// The writer has stopped: nothing is stored.
    Stopped,
}

impl Phase {
    /// Name in /health.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::CatchingUp => "catching_up",
            Self::Following => "following",
            Self::Waiting => "waiting",
            Self::WrongChain => "wrong_chain",
            Self::Disagrees => "disagrees",
            Self::Stopped => "stopped",
        }
    }
}

/// Texts of the status.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatusText {
    /// Phase of the follower.
    pub phase: Phase,
    /// The last error of the upstream, until it works again.
    pub upstream_error: Option<String>,
    /// Reason why nothing is stored, while nothing is.
    pub store_error: Option<String>,
    /// Reason why the system clock is in doubt, while it is.
    pub clock: Option<String>,
}

/// Status of an upstream.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamStatus {
    /// Address, without a query.
    pub url: String,
    /// `up`, `penalized`, `paused`, or why neve does not use it.
    pub state: &'static str,
    /// Last error, until it works again.
    pub error: Option<String>,
    /// Time at which it is asked again, while it is not asked.
    pub retry_at: Option<Instant>,
    /// Head that the upstream announced.
    pub head: Option<u64>,
    /// First height that the upstream has, as far as was seen.
    pub lacks_below: Option<u64>,
    /// Rules by which it answers.
    pub rules: Rules,
    /// The head that it names without a header that proves it. While it does, its answers count for nothing.
    pub unproven_head: Option<u64>,
    /// Highest number of heights in flight.
    pub window: usize,
    /// Heights in flight: requested from it, and not answered.
    pub in_flight: usize,
    /// Seconds that an answer takes.
    pub answer_seconds: f64,
    /// Heights that it gave.
    pub heights: u64,
}

impl UpstreamStatus {
    /// True if heights are asked of it now.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.state, "up" | "penalized")
    }

    /// Time left until it is asked again; `None` if nothing is waited for.
    pub(crate) fn retry_in(&self) -> Option<Duration> {
        let left = self.retry_at?.saturating_duration_since(Instant::now());
        Some(left).filter(|left| !left.is_zero())
    }
}

/// Fault of an upstream that names a head which it cannot show.
pub(crate) fn unproven_head(head: u64) -> String {
    format!("head {head} has no header that proves it")
}

/// Progress of backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backfill {
    /// The lowest height that backfill will likely reach; `None` if no estimate is possible.
    pub goal: Option<u64>,
    /// The lowest height that is served.
    pub first: u64,
    /// The first height of the segment that is being made below it, and the next one of it.
    pub interval: Option<(u64, u64)>,
}

impl Backfill {
    /// Heights that are still to come below the first one; `None` if no estimate is possible.
    pub(crate) fn remaining(&self) -> Option<u64> {
        Some(self.first - self.goal?)
    }

    /// Heights as a gauge. Without an estimate it is NaN, because the last one would be false.
    #[allow(clippy::cast_precision_loss, reason = "gauges are doubles")]
    pub(crate) fn remaining_gauge(&self) -> f64 {
        self.remaining().map_or(f64::NAN, |heights| heights as f64)
    }
}

/// Status of the mirror source.
#[derive(Debug, Clone, Default)]
pub(crate) struct MirrorStatus {
    /// Address, without a query.
    pub url: String,
    /// True if records come as a stream.
    pub stream: bool,
    /// Reason why they do not.
    pub stream_error: Option<String>,
    /// Reason why segments do not come as files.
    pub segments_error: Option<String>,
    /// Segments that were accepted since the start.
    pub accepted: u64,
    /// Segments that did not check out.
    pub refused: u64,
}

/// Status of the archive.
#[derive(Debug, Clone, Default)]
pub(crate) struct ArchiveStatus {
    /// URL as given.
    pub url: String,
    /// First and last height of its manifest.
    pub heights: Option<(u64, u64)>,
    /// Heights that are answered from it.
    pub answers: Option<RangeInclusive<u64>>,
    /// Heights below a gap that are answered too.
    pub anchored: Option<RangeInclusive<u64>>,
    /// Height from which on hashes are found in it.
    pub hashes_from: Option<u64>,
    /// State of the breaker of reads, in a word.
    pub breaker: &'static str,
    /// Reason why no segments come.
    pub error: Option<String>,
    /// True once the store has the heights up to the anchor, as far as they are settled.
    #[cfg(feature = "archive")]
    pub is_begun: bool,
    /// Segments that were accepted since the start.
    pub accepted: u64,
    /// Segments that did not check out.
    pub refused: u64,
    /// Pushing to it, if packed files are pushed.
    pub push: Option<PushStatus>,
}

/// Status of pushing to the archive.
#[derive(Debug, Clone, Default)]
pub(crate) struct PushStatus {
    /// True once the heights of the archive were read.
    pub is_known: bool,
    /// First and last height of the archive at the last push.
    pub heights: Option<(u64, u64)>,
    /// Height below which nothing is pushed.
    pub from: u64,
    /// Packed heights that the archive lacks, and their bytes.
    pub backlog: (u64, u64),
    /// Reason why the last push failed.
    pub error: Option<String>,
}

impl PushStatus {
    /// True once the archive was looked at. What it has may still be unknown: then it counts as having nothing.
    pub(crate) fn has_looked(&self) -> bool {
        self.is_known || self.error.is_some()
    }
}

/// Status of upstream and store.
#[derive(Debug)]
pub(crate) struct Status {
    started: Instant,
    words: Mutex<StatusText>,
    answers: AnswerTimes,
    /// The highest head that an upstream says to have and that is asked for, plus 1; 0: not known
    /// yet.
    upstream_head: AtomicU64,
    /// The highest with a proven header, plus 1.
    proven_head: AtomicU64,
    /// The highest height whose receipts a header has proven, plus 1; 0: none; [`UNKNOWN`] after a start.
    verified: AtomicU64,
    /// WebSockets over which heads come.
    ws_live: AtomicUsize,
    upstreams: Mutex<Vec<UpstreamStatus>>,
    backfill: Mutex<Option<Backfill>>,
    mirror: Mutex<Option<MirrorStatus>>,
    archive: Mutex<Option<ArchiveStatus>>,
    /// Place where the running catch-up began, plus 1.
    catch_up_from: AtomicU64,
    /// True if upstreams write heads as v1.15 does.
    helicon_heads: AtomicBool,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            words: Mutex::default(),
            answers: AnswerTimes::default(),
            upstream_head: AtomicU64::new(0),
            proven_head: AtomicU64::new(0),
            verified: AtomicU64::new(UNKNOWN),
            ws_live: AtomicUsize::new(0),
            upstreams: Mutex::default(),
            backfill: Mutex::default(),
            mirror: Mutex::default(),
            archive: Mutex::default(),
            catch_up_from: AtomicU64::new(0),
            helicon_heads: AtomicBool::new(false),
        }
    }
}

impl Status {
    fn lock(&self) -> MutexGuard<'_, StatusText> {
        // A text is whole even if the thread that wrote it panicked.
        lock(&self.words)
    }

    /// Texts of the status.
    pub(crate) fn words(&self) -> StatusText {
        self.lock().clone()
    }

    /// Activity of the follower.
    pub(crate) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Says what the follower is doing.
    pub(crate) fn set_phase(&self, phase: Phase) {
        let mut words = self.lock();
        words.phase = phase;
        if matches!(phase, Phase::CatchingUp | Phase::Following) {
            // Heights come again, so the last failure is over.
            words.upstream_error = None;
        }
    }

    /// Says why the follower cannot go on.
    pub(crate) fn set_upstream_error(&self, phase: Phase, error: String) {
        let mut words = self.lock();
        words.phase = phase;
        words.upstream_error = Some(error);
    }

    /// Says why nothing is stored, or that it is again.
    pub(crate) fn set_store_error(&self, error: Option<String>) {
        self.lock().store_error = error;
    }

    /// Says why the system clock is in doubt, or that it is not.
    pub(crate) fn set_clock(&self, doubt: Option<String>) {
        self.lock().clock = doubt;
    }

    /// Notes the head that is asked for, and the highest one with a proven header.
    pub(crate) fn set_upstream_head(&self, head: u64, proven: u64) {
        self.upstream_head.store(head.saturating_add(1), Ordering::Relaxed);
        self.proven_head.store(proven.saturating_add(1), Ordering::Relaxed);
    }

    /// The highest head of an upstream that a header proves: lag is measured by it. Blocks that are
    /// stored prove more.
    pub(crate) fn proven_head(&self) -> Option<u64> {
        self.proven_head.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The upstream's head, if known, as far as it is asked for: unproven for a moment.
    pub(crate) fn upstream_head(&self) -> Option<u64> {
        self.upstream_head.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Notes up to which height receipts are proven; `None`: none are.
    pub(crate) fn set_verified(&self, height: Option<u64>) {
        self.verified.store(height.map_or(0, |height| height + 1), Ordering::Relaxed);
    }

    /// True once the run has said which receipts are proven.
    pub(crate) fn knows_verified(&self) -> bool {
        self.verified.load(Ordering::Relaxed) != UNKNOWN
    }

    /// Highest height up to which receipts are proven.
    pub(crate) fn verified(&self) -> Option<u64> {
        let next = self.verified.load(Ordering::Relaxed);
        next.checked_sub(1).filter(|_| next != UNKNOWN)
    }

    /// Notes how upstreams write heads, as enough of them agree.
    pub(crate) fn set_helicon_heads(&self, helicon: bool) {
        self.helicon_heads.store(helicon, Ordering::Relaxed);
    }

    /// True if the heads that upstreams announce have the keys of Helicon, which v1.15 writes before
    /// Helicon too.
    pub(crate) fn helicon_heads(&self) -> bool {
        self.helicon_heads.load(Ordering::Relaxed)
    }

    /// Notes that heads come over one WebSocket more, or less.
    pub(crate) fn ws_changed(&self, live: bool) {
        if live {
            self.ws_live.fetch_add(1, Ordering::Relaxed);
        } else {
            self.ws_live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// True if heads come by WebSocket.
    pub(crate) fn ws_live(&self) -> bool {
        self.ws_live.load(Ordering::Relaxed) > 0
    }

    /// Notes how each upstream is.
    pub(crate) fn set_upstreams(&self, upstreams: Vec<UpstreamStatus>) {
        *lock(&self.upstreams) = upstreams;
    }

    /// Status of each upstream.
    pub(crate) fn upstreams(&self) -> Vec<UpstreamStatus> {
        lock(&self.upstreams).clone()
    }

    /// Time left until the first upstream is asked again, while none is asked.
    pub(crate) fn retry_in(&self) -> Option<Duration> {
        let upstreams = lock(&self.upstreams);
        let none_is_asked = !upstreams.iter().any(UpstreamStatus::is_asked);
        // With one that works neve does not wait.
        upstreams.iter().filter_map(UpstreamStatus::retry_in).min().filter(|_| none_is_asked)
    }

    /// Notes how far backfill will go, if that is known, and what is served.
    pub(crate) fn set_backfill(&self, goal: Option<u64>, first: u64) {
        let backfill = Backfill { goal: goal.map(|goal| goal.min(first)), first, interval: None };
        *lock(&self.backfill) = Some(backfill);
    }

    /// Notes how far a segment of history is.
    pub(crate) fn set_backfill_interval(&self, first: u64, next: u64) {
        let mut backfill = lock(&self.backfill);
        if let Some(backfill) = &mut *backfill {
            backfill.interval = Some((first, next));
        }
    }

    /// Progress of backfill, if it is wanted.
    pub(crate) fn backfill(&self) -> Option<Backfill> {
        *lock(&self.backfill)
    }

    /// Notes something of the neve that is mirrored.
    pub(crate) fn change_mirror(&self, change: impl FnOnce(&mut MirrorStatus)) {
        let mut mirror = lock(&self.mirror);
        change(mirror.get_or_insert_default());
    }

    /// Forgets the neve that was mirrored.
    pub(crate) fn forget_mirror(&self) {
        *lock(&self.mirror) = None;
    }

    /// Status of the mirror source, if there is one.
    pub(crate) fn mirror(&self) -> Option<MirrorStatus> {
        lock(&self.mirror).clone()
    }

    /// Notes something of the archive.
    #[cfg(feature = "archive")]
    pub(crate) fn change_archive(&self, change: impl FnOnce(&mut ArchiveStatus)) {
        let mut archive = lock(&self.archive);
        change(archive.get_or_insert_default());
    }

    /// Status of the archive, if there is one.
    pub(crate) fn archive(&self) -> Option<ArchiveStatus> {
        lock(&self.archive).clone()
    }

    /// A session begins with this height.
    pub(crate) fn begin_catch_up(&self, from: u64) {
        self.catch_up_from.store(from + 1, Ordering::Relaxed);
    }

    /// The height that the session began with.
    pub(crate) fn catch_up_from(&self) -> Option<u64> {
        self.catch_up_from.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Time since this process began.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Time spent in each stage, in nanoseconds, over all threads.
#[derive(Debug, Default)]
pub(crate) struct StageTimes {
    /// Heights in flight, for any reason.
    pub(crate) fetch: AtomicU64,
    /// Parsing and proving.
    pub(crate) prove: AtomicU64,
    /// Cutting into parts, and compressing.
    pub(crate) cut: AtomicU64,
}

/// Adds the time since `from` and gives now.
pub(crate) fn add_elapsed(to: &AtomicU64, from: Instant) -> Instant {
    let now = Instant::now();
    to.fetch_add(now.duration_since(from).as_nanos() as u64, Ordering::Relaxed);
    now
}
