//! `eth_getLogs`: which heights are meant, whether all of them are here, and their logs.

use std::ops::RangeInclusive;

use neve_jsonrpc::{LogHeads, LogRange, RpcError, Rules, log_heights};
use neve_store::{Hash, residency};

use super::answer::{Asking, DROPPED, Miss, NoAnswer, settled};
use super::reply::Builder;
use crate::logs::Wanted;

/// Appends the logs that are asked for, as a list.
pub(super) fn logs(
    asking: &Asking<'_>,
    range: LogRange,
    wanted: Wanted,
    out: &mut Builder,
) -> Result<(), NoAnswer> {
    if let Some(heights) = heights(asking, range)? {
        list(asking, heights, wanted, out)
    } else {
        out.text().extend_from_slice(b"[]");
        Ok(())
    }
}

/// The heights that are meant, all of which are here; `None` if there are none.
fn heights(asking: &Asking<'_>, range: LogRange) -> Result<Option<RangeInclusive<u64>>, NoAnswer> {
    let reader = &asking.serving.reader;
    let (from, to) = match range {
        LogRange::Block(hash) => {
            let Some(record) = reader.block(&Hash(hash)) else { return Err(unknown(asking, hash)) };
            return Ok(Some(record.height()..=record.height()));
        }
        LogRange::Range { from, to } => (from, to),
    };
    let held = reader.range().ok_or(Miss::Empty)?;
    let head = *held.end();
    // What the upstream has and we do not have yet is missing, not beyond the head.
    let upstream = asking.status.upstream_head().unwrap_or(head).max(head);
    let ahead = |bound: neve_jsonrpc::LogBound| {
        bound.number().filter(|n| (head + 1..=upstream).contains(n))
    };
    if let Some(height) = ahead(from).or_else(|| ahead(to)) {
        return Err(Miss::Height(height).into());
    }
    let rules = asking.serving.rules();
    let settled = if rules == Rules::Helicon { settled(asking.serving)? } else { head };
    let Some(heights) = log_heights(from, to, rules, LogHeads { latest: head, settled })? else {
        return Ok(None);
    };
    if !held.contains(heights.start()) {
        return Err(Miss::Height(*heights.start()).into());
    }
    let max = asking.limits.logs_blocks_max;
    if heights.end() - heights.start() >= max {
        return Err(RpcError::too_many_blocks(&heights, max).into());
    }
    Ok(Some(heights))
}

/// A block that is not held: unknown to the node too, if all that it has is held.
fn unknown(asking: &Asking<'_>, hash: [u8; 32]) -> NoAnswer {
    let held = asking.serving.reader.range();
    let all = held.is_some_and(|held| {
        *held.start() == 0 && asking.status.upstream_head().is_some_and(|head| head <= *held.end())
    });
    if all { RpcError::UNKNOWN_BLOCK.into() } else { Miss::Hash(hash).into() }
}

/// More logs take too long for a thread that serves others. It is a choice: so many take about a
/// millisecond or two (docs/BENCHMARKING.md: some 5,100 without a filter).
const LONG_LOGS: usize = 2048;

/// A search of more heights, times what is looked for, takes too long as well, however little it finds: some
/// 0.1 µs each (docs/DECISIONS.md has a frequent address and topic).
const LONG_SEARCH: u64 = 10_000;

/// Appends the logs of heights that are all here, or nothing of them.
pub(super) fn list(
    asking: &Asking<'_>,
    heights: RangeInclusive<u64>,
    wanted: Wanted,
    out: &mut Builder,
) -> Result<(), NoAnswer> {
    let count = heights.end().saturating_sub(*heights.start()) + 1;
    if count.saturating_mul(wanted.terms()) > LONG_SEARCH && residency::give_up() {
        return Err(DROPPED.into());
    }
    let limit = asking.limits.logs_bytes_max;
    let mut list = Builder::default();
    list.text().push(b'[');
    for (at, log) in crate::logs::logs(&asking.serving.reader, wanted, heights).enumerate() {
        if at == LONG_LOGS && residency::give_up() {
            return Err(DROPPED.into());
        }
        let log = log.map_err(|unreadable| Miss::Unreadable(unreadable.height))?;
        if list.len() > 1 {
            list.next_stored(log);
        } else {
            list.stored(log);
        }
        if list.len() > limit {
            return Err(too_long(limit).into());
        }
    }
    list.text().push(b']');
    out.append(list);
    Ok(())
}

fn too_long(limit: usize) -> RpcError {
    let what = format!("the logs are longer than {limit} bytes; ask for fewer blocks at a time");
    RpcError { code: -32005, message: what.into() }
}
