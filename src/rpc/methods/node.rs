//! Values about the node itself: constants, and values that the upstream gives.

use std::time::Duration;

use neve_jsonrpc::Rules;

use super::miss::{Miss, QueryError};
use super::query_context::QueryContext;
use super::stored::fresh;
use crate::body::BodyBuilder;

/// Appends a constant that the upstream told when neve connected.
pub(crate) fn constant(
    context: &QueryContext<'_>,
    method: &'static str,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    relayed(context, method, Duration::MAX, out)
}

/// Appends a price that the upstream computed at the newest head, or a little before.
pub(crate) fn price(
    context: &QueryContext<'_>,
    method: &'static str,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    fresh(context.serving)?;
    relayed(context, method, context.limits.price_age_max, out)
}

fn relayed(
    context: &QueryContext<'_>,
    method: &'static str,
    age_max: Duration,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    let result = context.serving.relayed.get(method, age_max, context.fetched.prices_since);
    out.text().extend_from_slice(&result.ok_or(Miss::NotRelayed(method))?);
    Ok(())
}

/// Appends the number of peers. Before Helicon the node always says 0.
pub(crate) fn peers(context: &QueryContext<'_>, out: &mut BodyBuilder) -> Result<(), QueryError> {
    match context.serving.rules() {
        Rules::BeforeHelicon => {
            out.text().extend_from_slice(b"\"0x0\"");
            Ok(())
        }
        Rules::Helicon => relayed(context, "net_peerCount", context.limits.price_age_max, out),
    }
}
