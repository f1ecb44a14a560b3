//! Facts about a block for `eth_feeHistory`: base fee, share of gas used, and priority fees.

use std::num::NonZeroU64;

use alloy_primitives::U256;

use super::json_float::json_float;
use crate::block::{Block, Transaction};
use crate::header::{ClaimedHeader, Header};
use crate::receipts::Receipts;
use crate::refusal::ProofError;

/// Whose fee history: it is the node's, not the block's, so a node that has gone over to Helicon
/// answers by the new rule about old blocks too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeeRule {
    /// coreth, avalanchego v1.14.
    BeforeHelicon,
    /// saevm, avalanchego v1.15 after its chain entered Helicon.
    Helicon,
}

/// Facts of one block in a fee history. Made once a block, it serves every request that covers
/// the block, whatever its percentiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockFees {
    /// Height of the block.
    number: u64,
    /// Zero before Apricot Phase 3.
    base_fee: U256,
    gas_used: u64,
    gas_limit: NonZeroU64,
    /// Tips in ascending order; `None` when made from a header alone.
    tips: Option<Vec<PriorityFee>>,
}

/// Price that a transaction pays for a unit of gas on top of the base fee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PriorityFee {
    price: U256,
    /// Units of gas that count for the percentiles.
    gas: u64,
}

impl BlockFees {
    /// Bytes in memory: 40 for each transaction, besides those of the header.
    pub fn memory_bytes(&self) -> usize {
        let tips = self.tips.as_ref().map_or(0, Vec::capacity);
        size_of::<Self>() + tips * size_of::<PriorityFee>()
    }

    /// Reads a block or its header: enough when no percentiles are asked for.
    pub fn from_header(json: &[u8]) -> Result<Self, ProofError> {
        Self::of_header(&ClaimedHeader::parse(json)?.header)
    }

    /// Makes them of an answer about a block by [`FeeRule::Helicon`]: its transactions weigh what
    /// they may consume (saevm, `gasprice/block_cache.go`, `tipPercentiles`).
    pub fn from_block(block: &[u8]) -> Result<Self, ProofError> {
        Self::of_block(&Block::parse(block)?)
    }

    /// Makes them of the answers about a block and its receipts by [`FeeRule::BeforeHelicon`]:
    /// transactions weigh what they consumed (coreth, `eth/gasprice/feehistory.go`,
    /// `processBlock`).
    pub fn from_receipts(block: &[u8], receipts: &[u8]) -> Result<Self, ProofError> {
        Self::of_receipts(&Block::parse(block)?, &Receipts::parse(receipts)?)
    }

    /// See [`Self::from_header`]. A header whose gas limit is zero, which no chain has, is refused:
    /// its share of gas used is no number.
    pub fn of_header(header: &Header) -> Result<Self, ProofError> {
        let number = header.number;
        Ok(Self {
            number,
            base_fee: header.base_fee_per_gas.unwrap_or_default(),
            gas_used: header.gas_used,
            gas_limit: NonZeroU64::new(header.gas_limit).ok_or(ProofError::GasLimit { number })?,
            tips: None,
        })
    }

    /// Makes them of a block that was read, see [`Self::from_block`].
    pub fn of_block(block: &Block<'_>) -> Result<Self, ProofError> {
        let fees = Self::of_header(&block.header)?;
        Ok(fees
            .with_tips(block.transactions.iter().map(|transaction| (transaction, transaction.gas))))
    }

    /// Makes them of what was read, see [`Self::from_receipts`].
    pub fn of_receipts(block: &Block<'_>, receipts: &Receipts<'_>) -> Result<Self, ProofError> {
        let (transactions, receipts) = (&block.transactions, &receipts.receipts);
        if transactions.len() != receipts.len() {
            let (transactions, receipts) = (transactions.len(), receipts.len());
            return Err(ProofError::ReceiptCount { transactions, receipts });
        }
        let gas = receipts.iter().map(|receipt| receipt.gas_used);
        Ok(Self::of_header(&block.header)?.with_tips(transactions.iter().zip(gas)))
    }

    /// The order of equal tips has no influence on any percentile.
    fn with_tips<'t>(self, paid: impl Iterator<Item = (&'t Transaction<'t>, u64)>) -> Self {
        let tip = |(transaction, gas): (&Transaction<'_>, _)| {
            // A transaction whose cap is below the base fee is in no block.
            let price = transaction.price_at(Some(self.base_fee)).saturating_sub(self.base_fee);
            PriorityFee { price, gas }
        };
        let mut tips: Vec<PriorityFee> = paid.map(tip).collect();
        tips.sort_unstable_by_key(|tip| tip.price);
        Self { tips: Some(tips), ..self }
    }

    /// Height of the block.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Base fee of the header, zero before Apricot Phase 3.
    pub fn base_fee(&self) -> U256 {
        self.base_fee
    }

    /// Used gas by gas limit of the header, as the node writes it.
    pub fn gas_used_ratio(&self) -> String {
        json_float(float(self.gas_used) / float(self.gas_limit.get()))
    }

    /// The tip at each percentile of the block's gas: that of the first transaction, by tip, up to
    /// which the gas of all reaches the percentile of the header's `gasUsed`. Zeros if there are no
    /// transactions; `None` if this was made from a header alone.
    ///
    /// `percentiles` ascend, which the caller has checked.
    pub fn rewards(&self, percentiles: &[f64]) -> Option<Vec<U256>> {
        let mut tips = self.tips.as_ref()?.iter().peekable();
        let Some(mut current) = tips.next() else {
            return Some(vec![U256::ZERO; percentiles.len()]);
        };
        let mut gas = current.gas;
        let reward = |percentile: &f64| {
            let threshold = threshold(self.gas_used, *percentile);
            while gas < threshold {
                let Some(next) = tips.next() else { break };
                current = next;
                // Go's addition wraps, too.
                gas = gas.wrapping_add(next.gas);
            }
            current.price
        };
        Some(percentiles.iter().map(reward).collect())
    }
}

/// Converts as Go does: to the nearest.
#[expect(clippy::cast_precision_loss, reason = "the node's own conversion")]
fn float(gas: u64) -> f64 {
    gas as f64
}

/// Computes as Go does: multiplied, then divided, then cut.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "percentiles are from 0 to 100, and fractions are cut"
)]
fn threshold(gas_used: u64, percentile: f64) -> u64 {
    (float(gas_used) * percentile / 100.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fees(tips: Option<&[(u64, u64)]>) -> BlockFees {
        let tip = |(price, gas): &(u64, u64)| PriorityFee { price: U256::from(*price), gas: *gas };
        BlockFees {
            number: 1,
            base_fee: U256::from(25),
            gas_used: 100,
            gas_limit: NonZeroU64::new(1000).unwrap(),
            tips: tips.map(|tips| tips.iter().map(tip).collect()),
        }
    }

    fn rewards(tips: &[(u64, u64)], percentiles: &[f64]) -> Vec<u64> {
        let rewards = fees(Some(tips)).rewards(percentiles).unwrap();
        rewards.iter().map(|reward| reward.to()).collect()
    }

    #[test]
    fn percentiles_are_of_gas() {
        let tips = [(1, 10), (2, 20), (9, 70)];
        let percentiles = [0.0, 10.0, 10.9, 11.0, 30.0, 31.0, 100.0];
        assert_eq!(rewards(&tips, &percentiles), [1, 1, 1, 2, 2, 9, 9]);
        assert_eq!(rewards(&tips, &[]), [0_u64; 0]);
        assert_eq!(rewards(&[], &[1.0, 2.0]), [0, 0]);
        // The header can have more gas than its transactions: that of atomic ones.
        assert_eq!(rewards(&[(1, 10), (2, 20)], &[90.0]), [2]);
    }

    #[test]
    fn a_header_alone_has_no_rewards() {
        assert_eq!(fees(None).rewards(&[50.0]), None);
        assert_eq!(fees(None).gas_used_ratio(), "0.1");
        let header = Header { number: 7, ..Header::default() };
        assert_eq!(BlockFees::of_header(&header), Err(ProofError::GasLimit { number: 7 }));
    }
}
