//! `eth_feeHistory`, computed from the stored blocks.

use std::ops::Range;
use std::sync::Arc;

use alloy_primitives::U256;
pub(crate) use neve_chain::FEE_BLOCKS_MAX;
use neve_chain::{
    BlockFees, ClaimedHeader, FEE_DEPTH_MAX, FeeHistory, FeeRefusal, FeeRequest, FeeRule, Header,
    NewestBlock, next_base_fee,
};
use neve_jsonrpc::{BlockId, RpcError, Rules, Tag};
use neve_record::parts::{FULL, HEADER, RECEIPTS};
use neve_store::{RecordRef, residency};

use super::miss::{Miss, NotRead, QueryError};
use super::query_context::QueryContext;
use super::stored::{at_height, fresh, names_settled, readable, settled};
use crate::body::BodyBuilder;

/// More blocks take too long for a thread that serves others.
const LONG_BLOCKS: u64 = 64;

/// Appends the fee history of up to `count` blocks that end with `newest`.
pub(crate) fn history(
    context: &QueryContext<'_>,
    count: u64,
    newest: BlockId,
    percentiles: &[f64],
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    let rule = fee_rule(context.serving.rules());
    let held = context.serving.reader.range().ok_or(Miss::Empty)?;
    let head = *held.end();
    let request = FeeRequest { count, newest: newest_block(context, newest, head)? };
    let node_head = node_head(context, newest, head)?;
    let heights = request.blocks(rule, node_head).map_err(refusal)?;
    check_held(context, &heights, *held.start())?;
    let fees = all_fees(context, heights.clone(), rule, !percentiles.is_empty())?;
    let next = next_fee(context, &heights, (head, node_head), rule)?;
    // Not expected, since all parts were made above; a full node can answer.
    let FeeHistory::Whole(text) = FeeHistory::write(rule, &fees, next, percentiles) else {
        return Err(Miss::NotRelayed("eth_feeHistory").into());
    };
    out.text().extend_from_slice(text.as_bytes());
    Ok(())
}

fn fee_rule(rules: Rules) -> FeeRule {
    match rules {
        Rules::BeforeHelicon => FeeRule::BeforeHelicon,
        Rules::Helicon => FeeRule::Helicon,
    }
}

/// The node's error for a request beyond its limits.
fn refusal(why: FeeRefusal) -> RpcError {
    RpcError { code: -32000, message: why.to_string().into() }
}

/// Fails if heights below the first served one are nowhere.
fn check_held(context: &QueryContext<'_>, heights: &Range<u64>, first: u64) -> Result<(), Miss> {
    let is_below = !heights.is_empty() && heights.start < first;
    if is_below && !context.serving.reader.covers(&(heights.start..=heights.end - 1)) {
        return Err(Miss::Height(heights.start));
    }
    Ok(())
}

/// Fees of all blocks, ascending.
fn all_fees(
    context: &QueryContext<'_>,
    heights: Range<u64>,
    rule: FeeRule,
    with_tips: bool,
) -> Result<Vec<Arc<BlockFees>>, QueryError> {
    if heights.end - heights.start > LONG_BLOCKS {
        residency::not_here()?;
    }
    heights.map(|height| fees(context, height, rule, with_tips)).collect()
}

/// Bytes that a block counts as, also if its fees are remembered: its header and its share of the text.
const BLOCK_BYTES: u64 = 4 << 10;

/// The newest block. A height beyond neve's head is missing while the upstream's is higher: its error would name the
/// other head.
fn newest_block(
    context: &QueryContext<'_>,
    newest: BlockId,
    head: u64,
) -> Result<NewestBlock, NotRead> {
    if needs_new_head(context, newest, head) {
        fresh(context.serving)?;
    }
    let height = match newest {
        BlockId::Tag(Tag::Pending) => return Ok(NewestBlock::Pending),
        BlockId::Tag(Tag::Earliest) => 0,
        BlockId::Tag(tag) if names_settled(context.serving, tag) => settled(context.serving)?,
        BlockId::Number(height) => height,
        BlockId::Tag(_) | BlockId::Hash(_) => head, // never a hash
    };
    if height > head && context.status.upstream_head().is_some_and(|upstream| upstream > head) {
        return Err(Miss::Height(height).into());
    }
    Ok(NewestBlock::Height(height))
}

/// True if the answer depends on whether `head` is new.
fn needs_new_head(context: &QueryContext<'_>, newest: BlockId, head: u64) -> bool {
    match newest {
        BlockId::Tag(Tag::Earliest) => false,
        // Before Helicon the head's history follows from the head alone.
        BlockId::Number(height) if height == head => {
            context.serving.rules() != Rules::BeforeHelicon
        }
        BlockId::Number(height) => height > head,
        _ => true,
    }
}

/// Head from which the node measures how far back a call goes: for a number the upstream's, if it is higher. A call
/// near the limit needs a head that is known to be new.
fn node_head(context: &QueryContext<'_>, newest: BlockId, head: u64) -> Result<u64, Miss> {
    let BlockId::Number(newest) = newest else { return Ok(head) };
    let node_head = context.status.upstream_head().map_or(head, |upstream| upstream.max(head));
    if newest.saturating_add(FEE_DEPTH_MAX) < node_head.saturating_add(FEE_BLOCKS_MAX) {
        fresh(context.serving)?;
    }
    Ok(node_head)
}

/// Fees of a block, remembered, because pages of prices ask for the same blocks again and again.
fn fees(
    context: &QueryContext<'_>,
    height: u64,
    rule: FeeRule,
    with_tips: bool,
) -> Result<Arc<BlockFees>, QueryError> {
    if !context.work.examine(BLOCK_BYTES) {
        return Err(context.work.error().into());
    }
    let record = at_height(context.serving, height)?;
    // Without percentiles the header suffices, which is a fraction of the block.
    if !with_tips {
        let header = readable(&record, HEADER)?;
        let fees = BlockFees::from_header(header.as_ref()).map(Arc::new);
        return Ok(fees.map_err(|_| Miss::Unreadable(height))?);
    }
    let make = || fees_with_tips(context, &record, rule);
    Ok(context.fees.get_or(record.header()?.hash, rule, make)?)
}

/// Fees of a block with the tips of its transactions.
fn fees_with_tips(
    context: &QueryContext<'_>,
    record: &RecordRef,
    rule: FeeRule,
) -> Result<BlockFees, NotRead> {
    let block = readable(record, FULL)?;
    // The block is read already: beyond the limit the next one fails.
    context.work.examine(block.len() as u64);
    let fees = match rule {
        FeeRule::Helicon => BlockFees::from_block(block.as_ref()),
        FeeRule::BeforeHelicon => {
            BlockFees::from_receipts(block.as_ref(), readable(record, RECEIPTS)?.as_ref())
        }
    };
    fees.map_err(|_| NotRead::Miss(Miss::Unreadable(record.height())))
}

/// The base fee after the last block: the next header's, or what the head's clock says. The next header may be at the
/// node and not here yet.
fn next_fee(
    context: &QueryContext<'_>,
    heights: &Range<u64>,
    (head, node_head): (u64, u64),
    rule: FeeRule,
) -> Result<Option<U256>, NotRead> {
    // Before Helicon the last value follows from the last block alone: see `FeeHistory::write`.
    if rule == FeeRule::BeforeHelicon || heights.is_empty() {
        return Ok(None);
    }
    if heights.end <= head {
        let next = header(context, heights.end)?;
        return Ok(Some(next.base_fee_per_gas.unwrap_or_default()));
    }
    if node_head > head {
        return Err(Miss::Height(heights.end).into());
    }
    // The price follows from the gas clocks of the headers since then (ACP-194).
    let from = settled(context.serving)?;
    let headers: Vec<Header> =
        (from..=head).map(|height| header(context, height)).collect::<Result<_, _>>()?;
    Ok(next_base_fee(&headers))
}

fn header(context: &QueryContext<'_>, height: u64) -> Result<Header, NotRead> {
    let record = at_height(context.serving, height)?;
    let text = readable(&record, HEADER)?;
    let answer = ClaimedHeader::parse(text.as_ref()).map_err(|_| Miss::Unreadable(height))?;
    Ok(answer.header)
}
