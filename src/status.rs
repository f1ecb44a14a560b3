//! How the upstream and the store are doing: written by who knows, read by /health and /metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the follower is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    /// Asking the upstream who it is.
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
    /// Its name in /health.
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

/// What is told in words.
#[derive(Debug, Clone, Default)]
pub(crate) struct Words {
    /// What the follower is doing.
    pub phase: Phase,
    /// The last error of the upstream, until it works again.
    pub upstream_error: Option<String>,
    /// Why nothing is stored, while nothing is.
    pub store_error: Option<String>,
}

/// How things are.
#[derive(Debug)]
pub(crate) struct Status {
    started: Instant,
    words: Mutex<Words>,
    /// Milliseconds from the start to the upstream's last answer, plus 1; 0: none yet.
    heard: AtomicU64,
    /// The upstream's head, plus 1; 0: not known yet.
    upstream_head: AtomicU64,
    /// The highest height whose receipts a header has proven, plus 1; 0: none.
    verified: AtomicU64,
    ws_live: AtomicBool,
    /// Whether the upstream writes heads as v1.15 does.
    helicon_heads: AtomicBool,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            words: Mutex::default(),
            heard: AtomicU64::new(0),
            upstream_head: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            ws_live: AtomicBool::new(false),
            helicon_heads: AtomicBool::new(false),
        }
    }
}

impl Status {
    fn lock(&self) -> MutexGuard<'_, Words> {
        // Words are whole whatever happened to who wrote them.
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is told in words.
    pub(crate) fn words(&self) -> Words {
        self.lock().clone()
    }

    /// Says what the follower is doing.
    pub(crate) fn set_phase(&self, phase: Phase) {
        let mut words = self.lock();
        words.phase = phase;
        if matches!(phase, Phase::CatchingUp | Phase::Following) {
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

    /// The upstream has answered.
    pub(crate) fn heard(&self) {
        let since = self.started.elapsed().as_millis() as u64;
        self.heard.store(since + 1, Ordering::Relaxed);
    }

    /// How long the upstream has been silent; `None` if it has never answered.
    pub(crate) fn silence(&self) -> Option<Duration> {
        let heard = self.heard.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.started.elapsed().saturating_sub(Duration::from_millis(heard)))
    }

    /// Notes the upstream's head.
    pub(crate) fn set_upstream_head(&self, head: u64) {
        self.upstream_head.store(head + 1, Ordering::Relaxed);
    }

    /// The upstream's head, if known.
    pub(crate) fn upstream_head(&self) -> Option<u64> {
        self.upstream_head.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Notes up to which height receipts are proven; `None`: none are.
    pub(crate) fn set_verified(&self, height: Option<u64>) {
        self.verified.store(height.map_or(0, |height| height + 1), Ordering::Relaxed);
    }

    /// Up to which height receipts are proven.
    pub(crate) fn verified(&self) -> Option<u64> {
        self.verified.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Notes how the upstream writes heads.
    pub(crate) fn set_helicon_heads(&self, helicon: bool) {
        self.helicon_heads.store(helicon, Ordering::Relaxed);
    }

    /// Whether the last head that the upstream announced had the keys of Helicon, which v1.15
    /// writes before Helicon too.
    pub(crate) fn helicon_heads(&self) -> bool {
        self.helicon_heads.load(Ordering::Relaxed)
    }

    /// Notes whether heads come by WebSocket.
    pub(crate) fn set_ws_live(&self, live: bool) {
        self.ws_live.store(live, Ordering::Relaxed);
    }

    /// Whether heads come by WebSocket.
    pub(crate) fn ws_live(&self) -> bool {
        self.ws_live.load(Ordering::Relaxed)
    }

    /// Since when this process runs.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}
