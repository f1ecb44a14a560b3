//! Fees of blocks, computed once for each block.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use neve_chain::{BlockFees, FEE_BLOCKS_MAX, FeeRule};
use neve_store::Hash;

use crate::shared::lock::lock;

/// Blocks that are kept: those of two longest requests. A mean block of mainnet takes 1.3 KB, and one that is full of
/// transactions a hundred times as much, so their memory has a bound too.
const KEPT: usize = 2 * FEE_BLOCKS_MAX as usize;
const KEPT_BYTES: usize = 8 << 20;
/// Bytes of a block in the table and in the list, with their free places.
const ENTRY_BYTES: usize = 256;

/// The fees that were last computed.
#[derive(Default)]
pub(crate) struct FeeCache(Mutex<CachedFees>);

#[derive(Default)]
struct CachedFees {
    fees: HashMap<(Hash, bool), Arc<BlockFees>>,
    order: VecDeque<(Hash, bool)>,
    bytes: usize,
}

/// Memory of the fees of a block.
fn memory_of(fees: &BlockFees) -> usize {
    ENTRY_BYTES + fees.memory_bytes()
}

impl CachedFees {
    fn put(&mut self, key: (Hash, bool), fees: &Arc<BlockFees>) {
        if self.fees.insert(key, Arc::clone(fees)).is_some() {
            return; // another thread computed the same
        }
        self.bytes += memory_of(fees);
        self.order.push_back(key);
        while self.order.len() > KEPT || self.bytes > KEPT_BYTES {
            let Some(oldest) = self.order.pop_front() else { return };
            let oldest = self.fees.remove(&oldest);
            self.bytes -= oldest.map_or(0, |fees| memory_of(&fees));
        }
    }
}

impl FeeCache {
    /// Returns the fees of a block, and computes them if they are not there.
    pub(crate) fn get_or<E>(
        &self,
        block: Hash,
        rule: FeeRule,
        make: impl FnOnce() -> Result<BlockFees, E>,
    ) -> Result<Arc<BlockFees>, E> {
        let key = (block, rule == FeeRule::Helicon);
        if let Some(fees) = self.kept(|kept| kept.fees.get(&key).cloned()) {
            return Ok(fees);
        }
        // Without the lock: another thread may compute the same fees, which costs only time.
        let fees = Arc::new(make()?);
        self.kept(|kept| kept.put(key, &fees));
        Ok(fees)
    }

    fn kept<R>(&self, look: impl FnOnce(&mut CachedFees) -> R) -> R {
        look(&mut lock(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use neve_devnet::{Chain, ChainConfig, Part};
    use neve_jsonrpc::Rules;

    use super::*;

    /// Fees of a block that has each transaction of a made one a thousand times.
    fn fees_of_a_full_block() -> BlockFees {
        let mut chain = Chain::new(ChainConfig::c_chain(1));
        let block = (0..9).map(|_| chain.next_block()).last().expect("there are nine");
        let text = String::from_utf8(block.answer(Part::Full, Rules::Helicon)).expect("JSON");
        let (head, rest) = text.split_once("\"transactions\":[").expect("it is whole");
        let (transactions, tail) = rest.split_once("],\"transactionsRoot\"").expect("it is whole");
        let transactions = vec![transactions; 1000].join(",");
        let full = format!("{head}\"transactions\":[{transactions}],\"transactionsRoot\"{tail}");
        BlockFees::from_block(full.as_bytes()).expect("the node's form")
    }

    #[test]
    fn full_blocks_are_kept_by_their_memory() {
        let (mut kept, fees) = (CachedFees::default(), Arc::new(fees_of_a_full_block()));
        let many = KEPT_BYTES / memory_of(&fees);
        assert!(fees.memory_bytes() > 40_000 && many < 200, "{} bytes", fees.memory_bytes());
        let key = |at: usize| (Hash([at as u8; 32]), true);
        (0..=many).for_each(|at| kept.put(key(at), &fees));
        kept.put(key(many), &fees); // again
        assert_eq!((kept.fees.len(), kept.order.len()), (many, many));
        assert!(!kept.fees.contains_key(&key(0)) && kept.fees.contains_key(&key(many)));
        assert_eq!(kept.bytes, many * memory_of(&fees));
    }
}
