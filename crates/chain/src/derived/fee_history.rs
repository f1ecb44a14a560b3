//! The answer to `eth_feeHistory`.

use std::borrow::Borrow;

use alloy_primitives::U256;

use super::fees::{BlockFees, FeeRule};

/// The answer about no blocks, whatever the rule and the percentiles.
pub const EMPTY_FEE_HISTORY: &str = r#"{"oldestBlock":"0x0","gasUsedRatio":null}"#;

/// An answer, or what it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeeHistory {
    /// The text of `result`.
    Whole(String),
    /// By the rule of Helicon an answer ends with the base fee of the block after its last.
    NeedsNextBaseFee,
    /// Percentiles were asked for, but the fees of this block were made from its header alone.
    NeedsTransactions {
        /// Height of the block.
        number: u64,
    },
}

impl FeeHistory {
    /// Writes the answer about `blocks`, which are those of [`crate::FeeRequest::blocks`]: all of
    /// them, in order, made by the constructor that goes with `rule`.
    ///
    /// `next_base_fee`, which [`FeeRule::BeforeHelicon`] ignores, is that of the header after the
    /// last block; if that block is the head, [`crate::next_base_fee`].
    ///
    /// A struct: members in the order of its fields, lists that are nil left out but for the last
    /// (coreth, `internal/ethapi/api.go`, `feeHistoryResult`; libevm has the same).
    pub fn write(
        rule: FeeRule,
        blocks: &[impl Borrow<BlockFees>],
        next_base_fee: Option<U256>,
        percentiles: &[f64],
    ) -> Self {
        // A count of zero: the node returns this object, and reads no block.
        let Some(oldest) = blocks.first() else {
            return Self::Whole(EMPTY_FEE_HISTORY.to_owned());
        };
        let next = match (rule, next_base_fee) {
            (FeeRule::BeforeHelicon, _) => None,
            (FeeRule::Helicon, None) => return Self::NeedsNextBaseFee,
            (FeeRule::Helicon, next) => next,
        };
        let rewards = match rewards(blocks, percentiles) {
            Ok(rewards) => rewards,
            Err(number) => return Self::NeedsTransactions { number },
        };
        Self::Whole(whole(oldest.borrow().number(), blocks, next, &rewards))
    }
}

/// The object, with the base fee of the block after the last one if the rule has it.
fn whole(
    oldest: u64,
    blocks: &[impl Borrow<BlockFees>],
    next: Option<U256>,
    rewards: &str,
) -> String {
    let blocks = || blocks.iter().map(Borrow::borrow);
    let base_fees = quantities(blocks().map(BlockFees::base_fee).chain(next));
    let ratios: Vec<String> = blocks().map(BlockFees::gas_used_ratio).collect();
    format!(
        "{{\"oldestBlock\":\"{oldest:#x}\",{rewards}\"baseFeePerGas\":{base_fees},\
         \"gasUsedRatio\":[{}]}}",
        ratios.join(","),
    )
}

/// The member `reward` with its comma, or nothing; the error is a block whose tips are not known.
fn rewards(blocks: &[impl Borrow<BlockFees>], percentiles: &[f64]) -> Result<String, u64> {
    if percentiles.is_empty() {
        return Ok(String::new());
    }
    let row = |block: &BlockFees| block.rewards(percentiles).map(quantities).ok_or(block.number());
    let rows: Vec<String> = blocks.iter().map(Borrow::borrow).map(row).collect::<Result<_, _>>()?;
    Ok(format!("\"reward\":[{}],", rows.join(",")))
}

/// A list of quantities.
fn quantities(values: impl IntoIterator<Item = U256>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| format!("\"{value:#x}\"")).collect();
    format!("[{}]", values.join(","))
}
