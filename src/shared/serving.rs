//! State of serving, shared by the threads that answer and the thread that ingests.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use neve_jsonrpc::Rules;
use neve_record::parts::{SPANS, uncompressed_part};
use neve_record::spans::SpansRef;
use neve_store::{Identity, Reader};
use tokio::sync::watch;

use super::freshness::Freshness;
use super::upstream_values::UpstreamValues;

/// The store's reader and the little that answers need besides.
pub(crate) struct Serving {
    /// Reader of the store that answers are read from.
    pub reader: Reader,
    state: Arc<ServingState>,
}

/// State besides the store, which readers of other heights share.
pub(crate) struct ServingState {
    /// Values that only the upstream knows.
    pub relayed: UpstreamValues,
    /// Age of the head.
    pub freshness: Freshness,
    chain: OnceLock<(Identity, ChainIdText)>,
    helicon: AtomicBool,
    heads: watch::Sender<Option<u64>>,
    /// The head, or [`NO_HEAD`].
    head: AtomicU64,
    /// Withdrawals so far.
    withdrawals: AtomicU64,
}

/// No height is as high.
const NO_HEAD: u64 = u64::MAX;

/// The chain id as results, quotes included.
pub(crate) struct ChainIdText {
    /// Result of `eth_chainId`, in hexadecimal digits.
    pub hex: Box<str>,
    /// Result of `net_version`, in decimal digits.
    pub decimal: Box<str>,
}

impl Serving {
    /// Serves what `reader` has, by the rules before Helicon until told otherwise.
    pub(crate) fn new(reader: Reader) -> Self {
        let freshness = Freshness::default();
        freshness.set_head_time(head_time(&reader));
        let head = reader.range().map_or(NO_HEAD, |range| *range.end());
        let state = ServingState {
            relayed: UpstreamValues::default(),
            freshness,
            chain: OnceLock::new(),
            helicon: AtomicBool::new(false),
            heads: watch::Sender::new(None),
            head: AtomicU64::new(head),
            withdrawals: AtomicU64::new(0),
        };
        Self { reader, state: Arc::new(state) }
    }

    /// Serves what another reader has, with the same state.
    pub(crate) fn over(&self, reader: Reader) -> Self {
        Self { reader, state: Arc::clone(&self.state) }
    }

    /// Newest height that a client may have seen; 0 of an empty store. The head that is told follows a moment later.
    pub(crate) fn newest_seen(&self) -> u64 {
        self.reader.range().map_or(0, |range| *range.end())
    }

    /// Wakes those who wait for heads, after one was published or withdrawn.
    pub(crate) fn head_moved(&self) {
        self.freshness.set_head_time(head_time(&self.reader));
        let head = self.reader.range().map(|range| *range.end());
        self.head.store(head.unwrap_or(NO_HEAD), Ordering::Relaxed);
        head.inspect(|head| self.freshness.reaches(*head));
        // Last: threads that it wakes read the head and its age.
        self.heads.send_replace(head);
    }

    /// Counts a withdrawal, and wakes those who wait for heads.
    pub(crate) fn withdrew(&self) {
        // First: readers that see the next height, or that it wakes, know of the withdrawal.
        self.withdrawals.fetch_add(1, Ordering::Release);
        self.head_moved();
    }

    /// The highest stored height that the newest stored header has proven.
    pub(crate) fn proven_height(&self) -> Option<u64> {
        let head = self.reader.head()?;
        let spans = uncompressed_part(&head, SPANS)?;
        Some(SpansRef(spans.as_ref()).settled().unwrap_or(head.height()))
    }

    /// True if the newest stored block is asynchronous.
    pub(crate) fn holds_asynchronous(&self) -> bool {
        let Some(head) = self.reader.head() else { return false };
        uncompressed_part(&head, SPANS)
            .is_some_and(|spans| SpansRef(spans.as_ref()).settled().is_some())
    }
}

impl Deref for Serving {
    type Target = ServingState;

    fn deref(&self) -> &ServingState {
        &self.state
    }
}

impl ServingState {
    /// The head, as it was last told.
    pub(crate) fn head(&self) -> Option<u64> {
        // Relaxed: it belongs to no other datum.
        Some(self.head.load(Ordering::Relaxed)).filter(|head| *head != NO_HEAD)
    }

    /// Number of withdrawals so far. A watcher of the head may miss one.
    pub(crate) fn withdrawals(&self) -> u64 {
        self.withdrawals.load(Ordering::Acquire)
    }

    /// Changes with the head.
    pub(crate) fn heads(&self) -> watch::Receiver<Option<u64>> {
        self.heads.subscribe()
    }

    /// Says which chain it is. Only the first time counts: a store never changes its chain.
    pub(crate) fn identify(&self, identity: Identity) {
        let id = identity.chain_id;
        let texts = || ChainIdText {
            hex: format!("\"{id:#x}\"").into(),
            decimal: format!("\"{id}\"").into(),
        };
        self.chain.get_or_init(|| (identity, texts()));
    }

    /// The chain id, once known.
    pub(crate) fn chain(&self) -> Option<&ChainIdText> {
        self.chain.get().map(|(_, texts)| texts)
    }

    /// The chain, once known.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.chain.get().map(|(identity, _)| *identity)
    }

    /// Rules by which the upstream answers.
    pub(crate) fn rules(&self) -> Rules {
        // Relaxed: it belongs to no other datum. A record tells for itself in which form it is.
        if self.helicon.load(Ordering::Relaxed) { Rules::Helicon } else { Rules::BeforeHelicon }
    }

    /// Notes the rules by which the upstream answers.
    pub(crate) fn set_rules(&self, rules: Rules) {
        self.helicon.store(rules == Rules::Helicon, Ordering::Relaxed);
    }
}

fn head_time(reader: &Reader) -> Option<u64> {
    reader.head().map(|head| head.timestamp())
}
