//! Makes blocks: any height, given the hash before it.

use std::{collections::VecDeque, sync::Arc};

use alloy_primitives::B256;
use neve_chain::{Header, encode_block};

use super::block::Block;
use super::header::HeaderContext;
use crate::chain::content::{Body, Outcome, World};
use crate::chain::draw::draw;
use crate::chain::rules::{ChainConfig, PriceRule, Purpose, Random, Schedule, UNSETTLED_MAX};
use crate::chain::text::Sealed;

/// Makes the blocks of one configuration. It has no state: the caller keeps the hashes.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    config: ChainConfig,
    schedule: Schedule,
    prices: PriceRule,
    world: Arc<World>,
}

/// Data of the newest heights that later headers need. Older data is drawn again.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Data that later headers settle.
    outcomes: VecDeque<(u64, Outcome)>,
    /// Gas that the headers say.
    gas: VecDeque<(u64, u64)>,
}

impl Generator {
    pub(crate) fn new(config: ChainConfig) -> Self {
        let (schedule, world) = (Schedule::new(&config), Arc::new(World::new(&config)));
        Self { prices: PriceRule::new(&config, &schedule), config, schedule, world }
    }

    /// Returns the same chain with another future.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut ChainConfig)) -> Self {
        let mut config = self.config.clone();
        change(&mut config);
        let schedule = Schedule::new(&config);
        let prices = PriceRule::new(&config, &schedule);
        Self { schedule, prices, config, world: Arc::clone(&self.world) }
    }

    pub(crate) fn config(&self) -> &ChainConfig {
        &self.config
    }

    /// The hash before the first height. No node has its block.
    pub(crate) fn hash_before_first(&self) -> B256 {
        match self.config.first() {
            0 => B256::ZERO,
            first => B256::new(Random::new(self.config.seed, Purpose::Parent, first).bytes()),
        }
    }

    /// Makes a block.
    pub(crate) fn block(&self, height: u64, parent: B256, window: &mut Window) -> Block {
        let Self { config, schedule, prices, .. } = self;
        let frame = HeaderContext { config, schedule, prices, height, parent };
        if height == 0 {
            return self.seal(frame.genesis(), &Body::default());
        }
        let gas = |height| window.gas(height).unwrap_or_else(|| self.gas(height));
        let body = self.body(height, prices.base_fee(height, gas));
        let own = body.outcome();
        let header = if self.schedule.is_asynchronous(height) {
            let header = self.settle(&frame, &body, window);
            window.push(header.gas_used, height, own);
            header
        } else {
            frame.synchronous(&body, &own)
        };
        self.seal(header, &body)
    }

    /// The base fee of a block that came at once behind a synchronous one.
    pub(crate) fn base_fee_after(&self, height: u64) -> u64 {
        self.prices.after(height, self.schedule.time_ms(height))
    }

    fn body(&self, height: u64, base_fee: u64) -> Body {
        let gas_limit = self.prices.gas_limit(height);
        draw(&self.config, &self.schedule, &self.world, height, (gas_limit, base_fee))
    }

    /// The gas that the header of an asynchronous block says: it does not hang on any fee.
    fn gas(&self, height: u64) -> u64 {
        self.body(height, 0).gas_with_limits()
    }

    /// Data of a block that later headers settle: no fee is in it.
    fn outcome(&self, height: u64) -> Outcome {
        self.body(height, 0).outcome()
    }

    /// The header of an asynchronous block, which commits to receipts of blocks before it.
    fn settle(&self, frame: &HeaderContext<'_>, body: &Body, window: &mut Window) -> Header {
        let before = self.schedule.settled(frame.height - 1);
        let settled = self.schedule.settled(frame.height);
        window.forget(before);
        for height in before + 1..=settled {
            // After a jump to any height the window is empty: the outcomes before it are made
            // again.
            if window.get(height).is_none() {
                window.outcomes.push_back((height, self.outcome(height)));
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
        let tips = body.transactions.iter();
        let tips = tips.map(|one| one.price_at(body.header_fee).saturating_sub(body.header_fee));
        Block {
            header,
            hash,
            transactions,
            tips: tips.collect(),
            text: text.into(),
            layout,
            receipts: receipts.into(),
            receipt_spans,
        }
    }
}

impl Window {
    /// A window that knows what headers say of gas, and nothing else.
    pub(crate) fn of_gas(gas: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self { outcomes: VecDeque::new(), gas: gas.into_iter().collect() }
    }

    fn push(&mut self, gas: u64, height: u64, outcome: Outcome) {
        // Never more than a header may leave unsettled, and the range that it settles.
        while self.outcomes.len() > UNSETTLED_MAX as usize {
            self.outcomes.pop_front();
        }
        while self.gas.len() > UNSETTLED_MAX as usize {
            self.gas.pop_front();
        }
        self.outcomes.push_back((height, outcome));
        self.gas.push_back((height, gas));
    }

    fn get(&self, height: u64) -> Option<&Outcome> {
        self.outcomes.iter().find(|entry| entry.0 == height).map(|entry| &entry.1)
    }

    fn gas(&self, height: u64) -> Option<u64> {
        // One behind the other.
        let index = height.checked_sub(self.gas.front()?.0)?;
        let entry = self.gas.get(usize::try_from(index).ok()?)?;
        (entry.0 == height).then_some(entry.1)
    }

    fn forget(&mut self, through: u64) {
        self.outcomes.retain(|entry| entry.0 > through);
    }
}
