//! `eth_feeHistory`.
//!
//! Before Helicon (coreth, eth/gasprice/feehistory.go) nothing is checked when no block is asked
//! for; since then (avalanchego, vms/saevm/gasprice/estimator.go) the percentiles always are. What
//! takes the head comes after that: `FeeRequest` of crates/chain has it, and nothing of
//! percentiles.

use super::query::Query;
use crate::arguments::{Arguments, Floats, block_number, floats, hex_or_decimal};
use crate::error::{NoQuery, RpcError};
use crate::method::Rules;

/// Highest number of percentiles.
const PERCENTILES_MAX: usize = 100;

pub(crate) fn fee_history(
    arguments: &mut Arguments<'_>,
    rules: Rules,
) -> Result<Result<Query, NoQuery>, RpcError> {
    let count = arguments.take(hex_or_decimal)?;
    let newest = arguments.take(|value| block_number(value, rules))?;
    let percentiles = arguments.take(|value| floats(value, PERCENTILES_MAX))?;
    let wrong = match rules {
        Rules::BeforeHelicon if count == 0 => None,
        Rules::BeforeHelicon => wrong_before_helicon(&percentiles),
        Rules::Helicon => wrong_since_helicon(&percentiles),
    };
    Ok(match wrong {
        Some(message) => Err(RpcError::method(message).into()),
        None => Ok(Query::FeeHistory { count, newest, percentiles: percentiles.first }),
    })
}

/// Fault of the percentile at `at`, in the order in which the node looks.
enum Fault {
    Outside,
    NotAbove(f64),
}

fn first_fault(percentiles: &[f64]) -> Option<(usize, f64, Fault)> {
    let mut previous = None;
    for (at, &percentile) in percentiles.iter().enumerate() {
        if !(0.0..=100.0).contains(&percentile) {
            return Some((at, percentile, Fault::Outside));
        }
        if let Some(previous) = previous.filter(|previous| percentile <= *previous) {
            return Some((at, percentile, Fault::NotAbove(previous)));
        }
        previous = Some(percentile);
    }
    None
}

fn wrong_before_helicon(percentiles: &Floats) -> Option<String> {
    const WHAT: &str = "invalid reward percentile";
    // First, as in the node. Those beyond the limit were not kept to be looked at.
    if percentiles.len > PERCENTILES_MAX {
        return Some(format!("{WHAT}: over the query limit {PERCENTILES_MAX}"));
    }
    first_fault(&percentiles.first).map(|(at, percentile, fault)| match fault {
        Fault::Outside => format!("{WHAT}: {percentile:.6}"),
        Fault::NotAbove(previous) => {
            format!("{WHAT}: #{}:{previous:.6} >= #{at}:{percentile:.6}", at - 1)
        }
    })
}

fn wrong_since_helicon(percentiles: &Floats) -> Option<String> {
    const WHAT: &str = "percentile out of range or misordered";
    let len = percentiles.len;
    if len > PERCENTILES_MAX {
        return Some(format!("{WHAT}: requested {len} percentiles, max {PERCENTILES_MAX}"));
    }
    first_fault(&percentiles.first).map(|(at, percentile, fault)| match fault {
        Fault::Outside => format!("{WHAT}: value {percentile:.6} at index {at}"),
        Fault::NotAbove(previous) => {
            let (now, before) = (format!("{percentile:.6}"), format!("{previous:.6}"));
            format!("{WHAT}: index {at} ({now}) must be greater than index {} ({before})", at - 1)
        }
    })
}
