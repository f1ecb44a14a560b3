//! Answers about filters.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use neve_jsonrpc::{LogBound, LogRange, RpcError};
use neve_store::{Hash, Wanted};

use super::lending::Want;
use super::logs;
use super::miss::{Miss, NotRead, QueryError};
use super::query_context::QueryContext;
use super::stored::{at_height, fresh};
use crate::body::BodyBuilder;
use crate::rpc::cursors::{Change, FilterKind, is_filter_id, new_filter_id};

/// Makes a filter and appends its id.
pub(crate) fn open(
    context: &QueryContext<'_>,
    topic: FilterKind,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    // Before the checks: a block that comes during them is news to the filter.
    let held = context.serving.reader.range().ok_or(Miss::Empty)?;
    admit(context, &topic, &held)?;
    let (head, account) = (Some(*held.end()), context.memory.account());
    let id = new_filter_id(&context.serving.identity().ok_or(Miss::Empty)?);
    let id = context.filters.open(id, topic, head, Instant::now(), account)?;
    context.changes.note(Change::Opened(id.clone()));
    out.text().extend_from_slice(format!("\"{id}\"").as_bytes());
    Ok(())
}

/// Fails for a filter that a full node must keep: its logs are not all here, or its head is too old.
fn admit(
    context: &QueryContext<'_>,
    topic: &FilterKind,
    held: &RangeInclusive<u64>,
) -> Result<(), NotRead> {
    let FilterKind::Logs(range, _) = topic else { return Ok(fresh(context.serving)?) };
    match *range {
        LogRange::Block(hash) => {
            let reader = context.serving.reader.resident();
            let found = reader.read_block(&Hash(hash), Wanted::Count, &mut Vec::new())?;
            found.ok_or(Miss::Hash(hash))?;
        }
        LogRange::Range { from, to } => {
            if let Some(height) = missing_below(context, from, to, held) {
                return Err(Miss::Height(height).into());
            }
        }
    }
    Ok(fresh(context.serving)?)
}

/// Bound of a range that lies below the served range, and that no other place has.
fn missing_below(
    context: &QueryContext<'_>,
    from: LogBound,
    to: LogBound,
    held: &RangeInclusive<u64>,
) -> Option<u64> {
    let below = |bound: LogBound| bound.number().filter(|n| n < held.start());
    let height = below(from).or_else(|| below(to))?;
    // Two looks are enough for the archive: its heights have no gap.
    let is_there = is_archived(context, height) && is_archived(context, held.start() - 1);
    (!is_there).then_some(height)
}

/// True if another place has a height below the served range. Its heights have no gap.
fn is_archived(context: &QueryContext<'_>, height: u64) -> bool {
    context.below.is_some_and(|below| below.may_have(&Want::Height(height)))
}

/// Appends what came since the filter was last asked.
pub(crate) fn changes(
    context: &QueryContext<'_>,
    id: &str,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    let held = context.serving.reader.range().ok_or(Miss::Empty)?;
    let (first, head) = (*held.start(), *held.end());
    // Before the poll: a miss must neither keep the filter open nor move its cursor.
    fresh(context.serving)?;
    let filter = context.filters.poll(id, Instant::now());
    let filter = filter.ok_or_else(|| not_found(context, id))?;
    let (before, after) = filter.take(|next| {
        let next = next.unwrap_or(first);
        if next < first {
            // Heights that the client did not get yet were evicted, so it must start again.
            return Err(RpcError::FILTER_NOT_FOUND.into());
        }
        append_new(context, &filter.topic, next..=head, out)
    })?;
    context.changes.note(Change::Told { filter: Arc::clone(&filter), before, after });
    Ok(())
}

/// Appends what new heights have for a filter. Returns the height at which its next poll begins.
fn append_new(
    context: &QueryContext<'_>,
    topic: &FilterKind,
    heights: RangeInclusive<u64>,
    out: &mut BodyBuilder,
) -> Result<u64, QueryError> {
    let (next, head) = (*heights.start(), *heights.end());
    match topic {
        FilterKind::Blocks => hashes(context, heights, out).map(|()| head + 1),
        FilterKind::Logs(range, wanted) => {
            let heights = within(range, next, head);
            // What is too long for one response is left for the next poll.
            let left = logs::list_whole_heights(context, heights, wanted.clone(), out)?;
            Ok(left.unwrap_or(head + 1))
        }
    }
}

/// The new heights that a filter is about: numbers bound it, tags do not.
fn within(range: &LogRange, next: u64, head: u64) -> RangeInclusive<u64> {
    match range {
        LogRange::Range { from, to } => {
            let from = from.number().filter(|_| !matches!(from, LogBound::Tag(_))).unwrap_or(0);
            next.max(from)..=to.number().unwrap_or(head).min(head)
        }
        LogRange::Block(_) => next..=head,
    }
}

fn hashes(
    context: &QueryContext<'_>,
    heights: RangeInclusive<u64>,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    let mut list = vec![b'['];
    for height in heights {
        let record = at_height(context.serving, height)?;
        if list.len() > 1 {
            list.push(b',');
        }
        list.extend_from_slice(format!("\"{}\"", record.header()?.hash).as_bytes());
        // Twice: the list grows by doubling, and is copied into the response.
        if !context.memory.covers(out.held() + 2 * list.capacity()) {
            return Err(QueryError::NoMemory);
        }
    }
    list.push(b']');
    out.text().append(&mut list);
    Ok(())
}

/// Appends all logs that a filter of logs asks for, as `eth_getLogs` gives them.
pub(crate) fn all_logs(
    context: &QueryContext<'_>,
    id: &str,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    let filter = context.filters.get(id, Instant::now());
    match filter.as_deref().map(|filter| &filter.topic) {
        Some(FilterKind::Logs(range, wanted)) => {
            let first = context.serving.reader.range().map_or(0, |range| *range.start());
            let listed = logs::logs(context, *range, wanted.clone(), out);
            listed.map_err(|why| without_logs(context, first, why))
        }
        Some(FilterKind::Blocks) => Err(RpcError::FILTER_NOT_FOUND.into()),
        None => Err(not_found(context, id)),
    }
}

/// Error of a filter whose logs were not listed; `first` is the lowest served height.
fn without_logs(context: &QueryContext<'_>, first: u64, why: QueryError) -> QueryError {
    let is_gone = match &why {
        QueryError::Miss(Miss::Height(height)) => *height < first && !is_archived(context, *height),
        QueryError::Miss(Miss::Hash(hash)) => {
            !context.below.is_some_and(|below| below.may_have(&Want::Hash(*hash)))
        }
        _ => false,
    };
    // They were here when the filter was made, and may be lent. Otherwise the caller begins anew, as a full node does
    // not know the filter.
    if is_gone { RpcError::FILTER_NOT_FOUND.into() } else { why }
}

/// A filter that is not here: gone if neve made it, else perhaps at a full node.
fn not_found(context: &QueryContext<'_>, id: &str) -> QueryError {
    match context.serving.identity() {
        Some(chain) if is_filter_id(id, &chain) => RpcError::FILTER_NOT_FOUND.into(),
        _ => Miss::Filter.into(),
    }
}

/// Removes a filter and appends whether there was one.
pub(crate) fn close(
    context: &QueryContext<'_>,
    id: &str,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    let closed = context.filters.close(id, Instant::now());
    // Another place made it, perhaps a full node: only that one can remove it.
    if let (None, QueryError::Miss(miss)) = (&closed, not_found(context, id)) {
        return Err(miss.into());
    }
    out.text().extend_from_slice(if closed.is_some() { b"true" } else { b"false" });
    if let Some(closed) = closed {
        context.changes.note(Change::Closed(id.to_owned(), closed));
    }
    Ok(())
}
