//! Makes blocks: any height, given the hash before it.

use std::{collections::VecDeque, sync::Arc};

use alloy_primitives::B256;
use neve_chain::{Header, encode_block};

use super::{
    block::Block,
    block_text::Sealed,
    body::{Body, Outcome},
    config::ChainConfig,
    draw::draw,
    header::Frame,
    random::{Purpose, Random},
    schedule::{Schedule, UNSETTLED_MAX},
    world::World,
};

/// Makes the blocks of one configuration. It has no state: whoever asks keeps hashes.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    config: ChainConfig,
    schedule: Schedule,
    world: Arc<World>,
}

/// What later headers settle of the heights that were made last. A height that is not in it is
/// drawn again.
#[derive(Debug, Default)]
pub(crate) struct Window(VecDeque<(u64, Outcome)>);

impl Generator {
    pub(crate) fn new(config: ChainConfig) -> Self {
        let (schedule, world) = (Schedule::new(&config), Arc::new(World::new(&config)));
        Self { config, schedule, world }
    }

    /// The same world with another future.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut ChainConfig)) -> Self {
        let mut config = self.config.clone();
        change(&mut config);
        Self { schedule: Schedule::new(&config), config, world: Arc::clone(&self.world) }
    }

    pub(crate) fn config(&self) -> &ChainConfig {
        &self.config
    }

    /// The hash before the first height. Nobody knows the block.
    pub(crate) fn hash_before_first(&self) -> B256 {
        match self.config.first() {
            0 => B256::ZERO,
            first => B256::new(Random::new(self.config.seed, Purpose::Parent, first).bytes()),
        }
    }

    /// Makes a block.
    pub(crate) fn block(&self, height: u64, parent: B256, window: &mut Window) -> Block {
        let frame = Frame { config: &self.config, schedule: &self.schedule, height, parent };
        if height == 0 {
            return self.seal(frame.genesis(), &Body::default());
        }
        let body = self.body(height);
        let own = body.outcome();
        let header = if self.schedule.is_asynchronous(height) {
            let header = self.settle(&frame, &body, window);
            window.push(height, own);
            header
        } else {
            frame.synchronous(&body, &own)
        };
        self.seal(header, &body)
    }

    fn body(&self, height: u64) -> Body {
        draw(&self.config, &self.schedule, &self.world, height)
    }

    /// The header of an asynchronous block, which commits to receipts of blocks before it.
    fn settle(&self, frame: &Frame<'_>, body: &Body, window: &mut Window) -> Header {
        let before = self.schedule.settled(frame.height - 1);
        let settled = self.schedule.settled(frame.height);
        window.forget(before);
        for height in before + 1..=settled {
            if window.get(height).is_none() {
                window.push(height, self.body(height).outcome());
            }
        }
        let range: Vec<&Outcome> = (before + 1..=settled).filter_map(|h| window.get(h)).collect();
        frame.asynchronous(body, settled, &range)
    }

    fn seal(&self, header: Header, body: &Body) -> Block {
        let encoding = header.encode();
        let hash = alloy_primitives::keccak256(&encoding);
        let encodings: Vec<&[u8]> = body.encodings.iter().collect();
        let size = encode_block(&encoding, &encodings, &body.ext_data).len();
        let sealed = Sealed { header: &header, hash, size, body, chain_id: self.config.chain_id };
        let (text, layout) = sealed.write();
        let (receipts, receipt_spans) = sealed.write_receipts();
        let transactions = body.transactions.iter().map(|one| one.hash).collect();
        let (text, receipts) = (text.into(), receipts.into());
        Block { header, hash, transactions, text, layout, receipts, receipt_spans }
    }
}

impl Window {
    fn push(&mut self, height: u64, outcome: Outcome) {
        // Never more than a header may leave unsettled, and the range that it settles.
        while self.0.len() > UNSETTLED_MAX as usize {
            self.0.pop_front();
        }
        self.0.push_back((height, outcome));
    }

    fn get(&self, height: u64) -> Option<&Outcome> {
        self.0.iter().find(|entry| entry.0 == height).map(|entry| &entry.1)
    }

    fn forget(&mut self, through: u64) {
        self.0.retain(|entry| entry.0 > through);
    }
}
