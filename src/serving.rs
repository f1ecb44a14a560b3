//! What is being served: shared by the threads that answer and the one that ingests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use neve_jsonrpc::Rules;
use neve_store::{Identity, Reader};
use tokio::sync::watch;

use crate::fee_cache::FeeCache;
use crate::relayed::Relayed;
use crate::ws::HeadTexts;

/// The store's reader and the little that answers need besides.
pub(crate) struct Serving {
    /// The store.
    pub reader: Reader,
    /// What only the upstream knows.
    pub relayed: Relayed,
    /// New heads, as subscribers see them.
    pub head_texts: HeadTexts,
    /// What blocks paid.
    pub fees: FeeCache,
    chain: OnceLock<(Identity, ChainTexts)>,
    helicon: AtomicBool,
    heads: watch::Sender<Option<u64>>,
}

/// The chain id as results, quotes included.
pub(crate) struct ChainTexts {
    /// For `eth_chainId`.
    pub hex: Box<str>,
    /// For `net_version`.
    pub decimal: Box<str>,
}

impl Serving {
    /// Serves what `reader` has, by the rules before Helicon until told otherwise.
    pub(crate) fn new(reader: Reader) -> Self {
        Self {
            reader,
            relayed: Relayed::default(),
            head_texts: HeadTexts::default(),
            fees: FeeCache::default(),
            chain: OnceLock::new(),
            helicon: AtomicBool::new(false),
            heads: watch::Sender::new(None),
        }
    }

    /// Wakes those who wait for heads, after one was published or withdrawn.
    pub(crate) fn head_moved(&self) {
        self.heads.send_replace(self.reader.range().map(|range| *range.end()));
    }

    /// Changes with the head.
    pub(crate) fn heads(&self) -> watch::Receiver<Option<u64>> {
        self.heads.subscribe()
    }

    /// Says which chain it is. Only the first time counts: a store never changes its chain.
    pub(crate) fn identify(&self, identity: Identity) {
        let id = identity.chain_id;
        let texts = || ChainTexts {
            hex: format!("\"{id:#x}\"").into(),
            decimal: format!("\"{id}\"").into(),
        };
        self.chain.get_or_init(|| (identity, texts()));
    }

    /// The chain id, once known.
    pub(crate) fn chain(&self) -> Option<&ChainTexts> {
        self.chain.get().map(|(_, texts)| texts)
    }

    /// The chain, once known.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.chain.get().map(|(identity, _)| *identity)
    }

    /// Under which rules the upstream answers.
    pub(crate) fn rules(&self) -> Rules {
        // Relaxed: it belongs to no other datum. A record tells for itself in which form it is.
        if self.helicon.load(Ordering::Relaxed) { Rules::Helicon } else { Rules::BeforeHelicon }
    }

    /// Notes under which rules the upstream answers.
    pub(crate) fn set_rules(&self, rules: Rules) {
        self.helicon.store(rules == Rules::Helicon, Ordering::Relaxed);
    }
}
