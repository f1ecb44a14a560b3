//! Answers about filters.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use neve_jsonrpc::{LogBound, LogRange, RpcError};

use super::answer::{Asking, Miss, NoAnswer};
use super::logs;
use super::reply::Builder;
use crate::filters::{Change, Topic};

/// Makes a filter and appends its id.
pub(super) fn open(asking: &Asking<'_>, topic: Topic, out: &mut Builder) -> Result<(), NoAnswer> {
    let head = asking.serving.reader.range().map(|range| *range.end());
    let id = asking.filters.open(topic, head, Instant::now())?;
    asking.changes.note(Change::Opened(id.clone()));
    out.text().extend_from_slice(format!("\"{id}\"").as_bytes());
    Ok(())
}

/// Appends what came since the filter was last asked.
pub(super) fn changes(asking: &Asking<'_>, id: &str, out: &mut Builder) -> Result<(), NoAnswer> {
    let held = asking.serving.reader.range().ok_or(Miss::Empty)?;
    let (first, head) = (*held.start(), *held.end());
    let filter = asking.filters.ask(id, Instant::now()).ok_or(RpcError::FILTER_NOT_FOUND)?;
    let (before, after) = filter.take(head, |next| {
        let next = next.unwrap_or(first);
        if next < first {
            // Nobody knows any more what came first: the caller begins anew.
            return Err(RpcError::FILTER_NOT_FOUND.into());
        }
        match &filter.topic {
            Topic::Blocks => hashes(asking, next..=head, out),
            Topic::Logs(range, wanted) => {
                logs::list(asking, within(range, next, head), wanted.clone(), out)
            }
        }
    })?;
    asking.changes.note(Change::Told { filter: Arc::clone(&filter), before, after });
    Ok(())
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
    asking: &Asking<'_>,
    heights: RangeInclusive<u64>,
    out: &mut Builder,
) -> Result<(), NoAnswer> {
    let mut list = Vec::new();
    for height in heights {
        let record = asking.serving.reader.record(height).ok_or(Miss::Height(height))?;
        list.push(format!("\"{}\"", record.hash()));
    }
    out.text().extend_from_slice(format!("[{}]", list.join(",")).as_bytes());
    Ok(())
}

/// Appends all logs that a filter of logs asks for, as `eth_getLogs` gives them.
pub(super) fn all_logs(asking: &Asking<'_>, id: &str, out: &mut Builder) -> Result<(), NoAnswer> {
    let filter = asking.filters.get(id, Instant::now());
    match filter.as_deref().map(|filter| &filter.topic) {
        Some(Topic::Logs(range, wanted)) => logs::logs(asking, *range, wanted.clone(), out),
        _ => Err(RpcError::FILTER_NOT_FOUND.into()),
    }
}

/// Removes a filter and appends whether there was one.
pub(super) fn close(asking: &Asking<'_>, id: &str, out: &mut Builder) {
    let closed = asking.filters.close(id, Instant::now());
    out.text().extend_from_slice(if closed.is_some() { b"true" } else { b"false" });
    if let Some(closed) = closed {
        asking.changes.note(Change::Closed(id.to_owned(), closed));
    }
}
