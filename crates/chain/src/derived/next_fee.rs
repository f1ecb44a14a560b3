//! The base fee that a node of Helicon shows for the block after its head.
//!
//! The fee of that block is not known yet. The node shows what it would be held to at most if
//! it came at once: the price on the head's gas clock when every transaction that is not settled
//! consumes its whole limit (ACP-194, ACP-176, ACP-283). All of that is in headers.

use alloy_primitives::U256;

use super::gas_clock::GasClock;
use crate::header::Header;

/// Seconds of gas at full rate that a block can hold (saevm, `worstcase/state.go`,
/// `maxGasSecondsPerBlock`: tau of 5 s, times lambda of 2).
const GAS_SECONDS_MAX: u64 = 10;

/// The last base fee of an `eth_feeHistory` answer that ends at the head, and the result of
/// `eth_baseFee` (saevm, `gasprice/estimator.go` and `sae/rpc/custom.go`).
///
/// `headers` follow one another and end with the head; they must reach back to the block that the
/// head settles. For the head of a chain that is not in Helicon yet the node repeats its base fee.
///
/// `None` if they do not reach back so far; also if the head's own base fee and gas limit, which
/// follow from the same clock, do not come out: then the chain has rules that are not known here.
///
/// What this cannot know: a node that was started since the head was accepted has forgotten the
/// bound, and repeats the head's base fee until the next block.
pub fn next_base_fee(headers: &[Header]) -> Option<U256> {
    let (head, before) = headers.split_last()?;
    let Some(settled) = head.settles() else {
        // Synchronous: there is no gas clock to compute with.
        return head.base_fee_per_gas;
    };
    let steps = usize::try_from(head.number.checked_sub(settled)?).ok()?;
    let unsettled = before.get(before.len().checked_sub(steps)?..)?;
    let (settled, unsettled) = unsettled.split_first()?;
    let mut clock = GasClock::after(settled, head)?;
    for header in unsettled {
        clock.before_block(header);
        clock.after_block(header)?;
    }
    clock.before_block(head);
    if Some(clock.base_fee()) != head.base_fee_per_gas
        || clock.rate().saturating_mul(GAS_SECONDS_MAX) != head.gas_limit
    {
        return None;
    }
    clock.after_block(head)?;
    Some(clock.base_fee())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synchronous_head_repeats_itself() {
        let base_fee_per_gas = Some(U256::from(25));
        let head = Header { base_fee_per_gas, number: 9, ..Header::default() };
        assert_eq!(next_base_fee(&[head]), base_fee_per_gas);
        assert_eq!(next_base_fee(&[]), None);
    }
}
