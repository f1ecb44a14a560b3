//! The chain: blocks that follow from a configuration alone.

use alloy_primitives::B256;

use super::block::Block;
use super::generator::{Generator, Window};
use crate::chain::rules::ChainConfig;

/// The blocks of a configuration, in order. There is no last one.
///
/// ```
/// use neve_devnet::{Chain, ChainConfig};
///
/// let blocks: Vec<_> = Chain::new(ChainConfig::small(7)).take(3).collect();
/// assert_eq!(blocks[2].header().parent_hash, blocks[1].hash());
/// ```
#[derive(Debug)]
pub struct Chain {
    generator: Generator,
    window: Window,
    next: u64,
    parent: B256,
}

impl Chain {
    /// A chain from its first block, which is the genesis unless the configuration says otherwise.
    pub fn new(config: ChainConfig) -> Self {
        Self::of(Generator::new(config))
    }

    pub(crate) fn of(generator: Generator) -> Self {
        let (next, parent) = (generator.config().first(), generator.hash_before_first());
        Self { generator, window: Window::default(), next, parent }
    }

    /// Goes on from a height with other blocks.
    pub(crate) fn branch(&mut self, generator: Generator, next: u64, parent: B256) {
        *self = Self { generator, window: Window::default(), next, parent };
    }

    /// The height of the next block.
    pub fn next_height(&self) -> u64 {
        self.next
    }

    /// Makes the next block.
    pub fn next_block(&mut self) -> Block {
        let block = self.generator.block(self.next, self.parent, &mut self.window);
        (self.next, self.parent) = (self.next.saturating_add(1), block.hash());
        block
    }

    /// Makes a block of any height as if it stood behind a block with this hash.
    pub fn block_behind(&self, height: u64, parent: B256) -> Block {
        self.generator.block(height, parent, &mut Window::default())
    }

    pub(crate) fn generator(&self) -> &Generator {
        &self.generator
    }
}

impl Iterator for Chain {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        Some(self.next_block())
    }
}
