//! What is known of the node itself: constants, and what the upstream says when it is asked.

use std::time::Duration;

use neve_jsonrpc::Rules;

use super::answer::{Asking, Miss, NoAnswer};
use super::reply::Builder;

/// Appends what the upstream said of itself when it was connected to.
pub(super) fn constant(
    asking: &Asking<'_>,
    method: &'static str,
    out: &mut Builder,
) -> Result<(), NoAnswer> {
    relayed(asking, method, Duration::MAX, out)
}

/// Appends a price that the upstream computed at the newest head, or a little before.
pub(super) fn price(
    asking: &Asking<'_>,
    method: &'static str,
    out: &mut Builder,
) -> Result<(), NoAnswer> {
    relayed(asking, method, asking.limits.price_age_max, out)
}

fn relayed(
    asking: &Asking<'_>,
    method: &'static str,
    age_max: Duration,
    out: &mut Builder,
) -> Result<(), NoAnswer> {
    let result = asking.serving.relayed.get(method, age_max);
    out.text().extend_from_slice(&result.ok_or(Miss::NotRelayed(method))?);
    Ok(())
}

/// How many peers the node says that it has: none, before Helicon, however many there are.
pub(super) fn peers(asking: &Asking<'_>, out: &mut Builder) -> Result<(), NoAnswer> {
    match asking.serving.rules() {
        Rules::BeforeHelicon => {
            out.text().extend_from_slice(b"\"0x0\"");
            Ok(())
        }
        Rules::Helicon => price(asking, "net_peerCount", out),
    }
}
