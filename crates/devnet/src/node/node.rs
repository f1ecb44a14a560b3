//! The emulated node: which blocks it has accepted and executed, and by which rules it answers.

use std::{
    sync::{Arc, Mutex, RwLock},
    time::Duration,
};

use bytes::Bytes;
use neve_jsonrpc::Rules;
use tokio::{
    runtime::Handle,
    sync::{broadcast, watch},
};

use super::shelf::Shelf;
use crate::chain::text::Version;
use crate::chain::{Block, Chain, Generator, Window};
use crate::config::{Config, Older};
use crate::faults::Faults;
use crate::lock::{read, write};

/// Heads that a subscriber may be behind before its connection is cut.
const HEADS_MAX: usize = 1_024;

/// A node. Everything here may be used from any thread.
#[derive(Debug)]
pub(crate) struct Node {
    pub(super) config: Config,
    pub(crate) faults: Faults,
    /// Generator of the next block. The caller holds its lock until subscribers know of the block,
    /// so that blocks come in order.
    pub(super) chain: Mutex<Chain>,
    pub(super) state: RwLock<State>,
    /// The last executed height, for those who wait for it.
    pub(super) executed: watch::Sender<u64>,
    /// The last height that subscribers heard of.
    pub(super) announced: Mutex<u64>,
    pub(super) heads: broadcast::Sender<Bytes>,
    /// Turns false while the node goes over to Helicon and answers nothing.
    pub(super) answering: watch::Sender<bool>,
    /// Counts the times that all WebSockets were cut.
    pub(super) cuts: watch::Sender<u64>,
    /// Blocks a second.
    pub(super) rate: watch::Sender<f64>,
    /// Blocks are executed when told only.
    pub(super) held: watch::Sender<bool>,
    pub(super) runtime: Handle,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) generator: Arc<Generator>,
    pub(super) shelf: Shelf,
    pub(super) rules: Rules,
    /// Heights that clients may know of: blocks may be on the shelf before.
    pub(super) accepted: u64,
    pub(super) executed: u64,
}

impl State {
    /// Makes the blocks that exist at the start.
    fn new(chain: &mut Chain, config: &Config) -> Self {
        let first = chain.next_height();
        let genesis = chain.block_behind(0, alloy_primitives::B256::ZERO);
        let generator = Arc::new(chain.generator().clone());
        let mut shelf = Shelf::new(genesis, first, config);
        let head = config.head.max(first);
        (first..=head).for_each(|_| shelf.push(Arc::new(chain.next_block())));
        let over = config.chain.helicon.covers(head.saturating_add(1));
        let rules = if over { Rules::Helicon } else { Rules::BeforeHelicon };
        Self { generator, shelf, rules, accepted: head, executed: head }
    }
}

impl Node {
    /// Begins with the blocks that exist at the start.
    pub(crate) fn new(config: Config, faults: Faults, runtime: Handle) -> Self {
        let mut chain = Chain::new(config.chain.clone());
        let state = State::new(&mut chain, &config);
        let head = state.accepted;
        Self {
            chain: Mutex::new(chain),
            state: RwLock::new(state),
            executed: watch::Sender::new(head),
            announced: Mutex::new(head),
            heads: broadcast::Sender::new(HEADS_MAX),
            answering: watch::Sender::new(true),
            cuts: watch::Sender::new(0),
            rate: watch::Sender::new(config.rate),
            held: watch::Sender::new(false),
            config,
            faults,
            runtime,
        }
    }

    /// Rules by which it answers.
    pub(crate) fn rules(&self) -> Rules {
        read(&self.state).rules
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn generator(&self) -> Arc<Generator> {
        Arc::clone(&read(&self.state).generator)
    }

    /// The last accepted height.
    pub(crate) fn accepted(&self) -> u64 {
        read(&self.state).accepted
    }

    /// The last executed height, which is `latest`.
    pub(crate) fn latest(&self) -> u64 {
        read(&self.state).executed
    }

    /// The last settled height: what the last accepted header settles, as far as it is executed.
    pub(crate) fn settled(&self) -> u64 {
        let (accepted, latest) = (self.accepted(), self.latest());
        let settled = self.block(accepted).map(|block| block.header().settled_through());
        settled.map_or(latest, |settled| settled.min(latest))
    }

    /// The release that it is of.
    pub(crate) fn version(&self) -> Version {
        match self.rules() {
            Rules::Helicon => Version::V1_15,
            Rules::BeforeHelicon => self.config.version,
        }
    }

    /// A block that clients may know of. One that left memory is made again.
    pub(crate) fn block(&self, height: u64) -> Option<Arc<Block>> {
        let (generator, parent, gas) = {
            let state = read(&self.state);
            if height > state.accepted || !state.shelf.has(height) {
                return None;
            }
            if let Some(block) = state.shelf.block(height) {
                return Some(block);
            }
            if self.config.older == Older::Absent {
                return None;
            }
            let before_first = state.generator.hash_before_first();
            let parent = height.checked_sub(1).and_then(|parent| state.shelf.hash(parent));
            let gas = state.shelf.gas_before(height);
            (Arc::clone(&state.generator), parent.unwrap_or(before_first), gas)
        };
        // Without the lock: it takes as long as many answers.
        let block = Arc::new(generator.block(height, parent, &mut Window::of_gas(gas)));
        write(&self.state).shelf.put_back(Arc::clone(&block));
        Some(block)
    }

    /// Heads as subscribers see them, from now on.
    pub(crate) fn heads(&self) -> broadcast::Receiver<Bytes> {
        self.heads.subscribe()
    }

    /// Changes whenever all WebSockets are cut.
    pub(crate) fn cuts(&self) -> watch::Receiver<u64> {
        self.cuts.subscribe()
    }

    /// Cuts all WebSockets, without a close frame.
    pub(crate) fn cut_websockets(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Waits while the node answers nothing.
    pub(crate) async fn until_answering(&self) {
        // The sender is part of this node and so alive.
        let _ = self.answering.subscribe().wait_for(|answering| *answering).await;
    }

    /// Waits until a height is executed, but not for ever.
    pub(crate) async fn until_executed(&self, height: u64, limit: Duration) -> bool {
        // Before Helicon a block is executed before it is accepted.
        if self.rules() == Rules::BeforeHelicon {
            return true;
        }
        let mut executed = self.executed.subscribe();
        let done = executed.wait_for(|executed| *executed >= height);
        tokio::time::timeout(limit, done).await.is_ok()
    }
}
