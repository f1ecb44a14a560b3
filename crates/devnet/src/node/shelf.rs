//! The blocks that a node has: the newest in memory, of all the hash.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use alloy_primitives::B256;

use crate::chain::Block;
use crate::chain::rules::UNSETTLED_MAX;
use crate::config::Config;

/// Blocks that were made again are likely to be asked for again at once: block, then receipts.
const AGAIN_MAX: usize = 64;

/// The blocks of a node, in order from the first one that exists.
#[derive(Debug)]
pub(crate) struct Shelf {
    genesis: Arc<Block>,
    first: u64,
    /// Blocks of every height from `first` on.
    hashes: Vec<B256>,
    /// Gas that their headers say.
    gas: Vec<u64>,
    /// Heights by the first bytes of their hash.
    heights: HashMap<u64, u64>,
    /// The newest blocks without a gap.
    kept: VecDeque<Arc<Block>>,
    kept_bytes: usize,
    keep_heights: usize,
    keep_bytes: usize,
    /// Height and index of the transactions in `kept`.
    transactions: HashMap<B256, (u64, usize)>,
    /// Blocks that were made again.
    again: VecDeque<Arc<Block>>,
}

impl Shelf {
    pub(crate) fn new(genesis: Block, first: u64, config: &Config) -> Self {
        let genesis = Arc::new(genesis);
        Self {
            heights: HashMap::from([(prefix(&genesis.hash()), 0)]),
            genesis,
            first,
            hashes: Vec::new(),
            gas: Vec::new(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            keep_heights: config.keep_heights.max(1),
            keep_bytes: config.keep_bytes.min(Config::BYTES_MAX),
            transactions: HashMap::new(),
            again: VecDeque::new(),
        }
    }

    /// Adds the next block.
    pub(crate) fn push(&mut self, block: Arc<Block>) {
        let (height, hash) = (block.number(), block.hash());
        self.hashes.push(hash);
        self.gas.push(block.header().gas_used);
        self.heights.insert(prefix(&hash), height);
        for (index, transaction) in block.transactions().iter().enumerate() {
            self.transactions.insert(*transaction, (height, index));
        }
        self.kept_bytes += block.bytes();
        self.kept.push_back(block);
        while self.kept.len() > self.keep_heights
            || (self.kept_bytes > self.keep_bytes && self.kept.len() > 1)
        {
            self.forget(VecDeque::pop_front);
        }
    }

    /// Removes the blocks from a height on.
    pub(crate) fn truncate(&mut self, height: u64) {
        while self.kept.back().is_some_and(|block| block.number() >= height) {
            self.forget(VecDeque::pop_back);
        }
        let left = height.saturating_sub(self.first) as usize;
        self.gas.truncate(left);
        for hash in self.hashes.drain(left.min(self.hashes.len())..) {
            self.heights.remove(&prefix(&hash));
        }
        // Blocks that were made again may be of the old branch.
        self.again.clear();
    }

    fn forget(&mut self, pop: fn(&mut VecDeque<Arc<Block>>) -> Option<Arc<Block>>) {
        let Some(block) = pop(&mut self.kept) else { return };
        self.kept_bytes -= block.bytes();
        for transaction in block.transactions() {
            self.transactions.remove(transaction);
        }
    }

    /// A block, if it is in memory.
    pub(crate) fn block(&self, height: u64) -> Option<Arc<Block>> {
        if height == 0 {
            return Some(Arc::clone(&self.genesis));
        }
        let oldest = self.kept.front()?.number();
        let kept = height.checked_sub(oldest).and_then(|index| self.kept.get(index as usize));
        kept.or_else(|| self.again.iter().find(|block| block.number() == height)).cloned()
    }

    /// Takes a block that was made again, unless the chain is another by now.
    pub(crate) fn put_back(&mut self, block: Arc<Block>) {
        // It was made without the lock: the chain may have branched meanwhile.
        if self.hash(block.number()) != Some(block.hash()) {
            return;
        }
        if self.again.len() >= AGAIN_MAX {
            self.again.pop_front();
        }
        self.again.push_back(block);
    }

    /// The hash of a height.
    pub(crate) fn hash(&self, height: u64) -> Option<B256> {
        if height == 0 {
            return Some(self.genesis.hash());
        }
        self.hashes.get(height.checked_sub(self.first)? as usize).copied()
    }

    /// Gas that the headers before a height say, as far back as a header may need it.
    pub(crate) fn gas_before(&self, height: u64) -> Vec<(u64, u64)> {
        let least = self.first.max(height.saturating_sub(UNSETTLED_MAX));
        let gas = |height: u64| Some((height, *self.gas.get((height - self.first) as usize)?));
        (least..height).map_while(gas).collect()
    }

    /// The height of a hash.
    pub(crate) fn height(&self, hash: &B256) -> Option<u64> {
        let height = *self.heights.get(&prefix(hash))?;
        (self.hash(height)? == *hash).then_some(height)
    }

    /// Place where a transaction is.
    pub(crate) fn transaction(&self, hash: &B256) -> Option<(u64, usize)> {
        self.transactions.get(hash).copied()
    }

    /// True if a height ever existed, whatever became of it.
    pub(crate) fn has(&self, height: u64) -> bool {
        self.hash(height).is_some()
    }

    /// Bytes of the blocks in memory.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> (usize, usize) {
        (self.kept_bytes, self.transactions.len())
    }
}

fn prefix(hash: &B256) -> u64 {
    hash.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Chain;
    use crate::chain::rules::ChainConfig;

    fn shelf(keep_heights: usize, blocks: usize) -> (Shelf, Vec<Block>) {
        let blocks: Vec<Block> = Chain::new(ChainConfig::small(1)).take(blocks).collect();
        let config = Config { keep_heights, ..Config::test() };
        let mut shelf = Shelf::new(blocks[0].clone(), 0, &config);
        blocks.iter().for_each(|block| shelf.push(Arc::new(block.clone())));
        (shelf, blocks)
    }

    #[test]
    fn memory_is_bounded() {
        let (few, blocks) = shelf(5, 40);
        let expected: usize = blocks[35..].iter().map(Block::bytes).sum();
        let transactions = blocks[35..].iter().map(|block| block.transactions().len()).sum();
        assert_eq!(few.bytes(), (expected, transactions));
        assert!(few.block(34).is_none() && few.block(35).is_some() && few.block(0).is_some());
        assert!(few.block(40).is_none());
        let (mut few, _) = shelf(5, 9);
        (0..2 * AGAIN_MAX).for_each(|_| few.put_back(Arc::new(blocks[1].clone())));
        assert_eq!(few.again.len(), AGAIN_MAX);
    }

    #[test]
    fn bytes_are_bounded_whatever_the_number() {
        let blocks: Vec<Block> = Chain::new(ChainConfig::small(1)).take(40).collect();
        let keep_bytes = blocks[30..].iter().map(Block::bytes).sum();
        let config = Config { keep_bytes, ..Config::test() };
        let mut shelf = Shelf::new(blocks[0].clone(), 0, &config);
        blocks.iter().for_each(|block| shelf.push(Arc::new(block.clone())));
        assert_eq!(shelf.bytes().0, keep_bytes);
        assert!(shelf.block(29).is_none() && shelf.block(30).is_some());
    }

    #[test]
    fn shelf_finds_each_block_and_transaction() {
        let (shelf, blocks) = shelf(10, 20);
        for block in &blocks {
            assert_eq!(shelf.height(&block.hash()), Some(block.number()));
            assert_eq!(shelf.hash(block.number()), Some(block.hash()));
            for (index, hash) in block.transactions().iter().enumerate() {
                let kept = block.number() >= 10;
                assert_eq!(shelf.transaction(hash), kept.then_some((block.number(), index)));
            }
        }
        assert_eq!(shelf.height(&B256::ZERO), None);
        assert!(!shelf.has(20));
    }

    #[test]
    fn truncated_is_as_if_never_pushed() {
        let (mut cut, blocks) = shelf(10, 20);
        cut.truncate(15);
        let (whole, _) = shelf(10, 15);
        assert!(cut.block(15).is_none() && cut.height(&blocks[15].hash()).is_none());
        assert_eq!((&cut.hashes, &cut.gas), (&whole.hashes, &whole.gas));
        cut.push(Arc::new(blocks[15].clone()));
        assert_eq!(cut.block(15).unwrap().hash(), blocks[15].hash());
    }
}
