//! eth_feeHistory.

use neve_jsonrpc::At;

use super::answer::{Asking, Miss, NoAnswer};
use super::reply::Builder;

pub(super) fn history(
    _asking: &Asking<'_>,
    _count: u64,
    _newest: At,
    _percentiles: &[f64],
    _out: &mut Builder,
) -> Result<(), NoAnswer> {
    Err(Miss::NotRelayed("eth_feeHistory").into())
}
