//! Fees of blocks, computed once for each block.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use neve_chain::{BlockFees, FEE_BLOCKS_MAX, FeeRule};
use neve_store::Hash;

use crate::shared::lock::lock;

/// Blocks that are kept: those of two longest requests. A mean block of mainnet takes 1.3 KB.
const KEPT: usize = 2 * FEE_BLOCKS_MAX as usize;

/// The fees that were last computed.
#[derive(Default)]
pub(crate) struct FeeCache(Mutex<CachedFees>);

#[derive(Default)]
struct CachedFees {
    fees: HashMap<(Hash, bool), Arc<BlockFees>>,
    order: VecDeque<(Hash, bool)>,
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
        self.kept(|kept| {
            if kept.fees.insert(key, Arc::clone(&fees)).is_none() {
                kept.order.push_back(key);
            }
            if kept.order.len() > KEPT
                && let Some(oldest) = kept.order.pop_front()
            {
                kept.fees.remove(&oldest);
            }
        });
        Ok(fees)
    }

    fn kept<R>(&self, look: impl FnOnce(&mut CachedFees) -> R) -> R {
        look(&mut lock(&self.0))
    }
}
