//! `eth_getLogs`: which heights are meant, whether all of them are here, and their logs.

use std::ops::RangeInclusive;

use neve_jsonrpc::{LogBound, LogFilter, LogHeads, LogRange, RpcError, Rules, log_heights};
use neve_record::log_matcher::{FoundLogs, LogMatcher, logs as logs_of};
use neve_store::residency::{self, Cold};
use neve_store::{Hash, Wanted};

use super::lending::{LogsBeyond, Want};
use super::miss::{Miss, QueryError};
use super::query_context::QueryContext;
use super::stored::{fresh, settled};
use crate::body::{BodyBuilder, Mark};

/// Logs between two looks at the memory that a list takes.
const LOOK_EVERY: usize = 512;

/// Makes a filter ready, if there is memory for it.
pub(crate) fn wanted(
    context: &QueryContext<'_>,
    filter: &LogFilter,
    out: &BodyBuilder,
) -> Result<LogMatcher, QueryError> {
    // Before it is made: a client chooses how many addresses and topics there are.
    if !context.memory.covers(out.held() + LogMatcher::bytes_of(&filter.addresses, &filter.topics))
    {
        return Err(QueryError::NoMemory);
    }
    Ok(LogMatcher::new(&filter.addresses, &filter.topics))
}

/// Appends the logs that are asked for, as a list.
pub(crate) fn logs(
    context: &QueryContext<'_>,
    range: LogRange,
    wanted: LogMatcher,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    if let Some(heights) = heights(context, range, &wanted)? {
        list(context, heights, wanted, out)
    } else {
        out.text().extend_from_slice(b"[]");
        Ok(())
    }
}

/// The heights that are meant, all of which are here; `None` if there are none.
fn heights(
    context: &QueryContext<'_>,
    range: LogRange,
    wanted: &LogMatcher,
) -> Result<Option<RangeInclusive<u64>>, QueryError> {
    let (from, to) = match range {
        LogRange::Block(hash) => return height_of(context, hash).map(|at| Some(at..=at)),
        LogRange::Range { from, to } => (from, to),
    };
    let held = context.serving.reader.range().ok_or(Miss::Empty)?;
    let head = *held.end();
    check_head(context, from, to, head)?;
    let rules = context.serving.rules();
    let settled = if rules == Rules::Helicon { settled(context.serving)? } else { head };
    let heights = log_heights(from, to, rules, LogHeads { latest: head, settled })?;
    if let Some(heights) = &heights {
        check_held(context, heights, wanted, &held)?;
    }
    Ok(heights)
}

/// Height of a block. An unknown one is never an error here: the node may have it, or get it at any time.
fn height_of(context: &QueryContext<'_>, hash: [u8; 32]) -> Result<u64, QueryError> {
    let reader = context.serving.reader.resident();
    let found = reader.read_block(&Hash(hash), Wanted::Count, &mut Vec::new())?;
    Ok(found.ok_or(Miss::Hash(hash))?.height())
}

/// Fails if the answer for these bounds depends on a newer head than `head`.
fn check_head(
    context: &QueryContext<'_>,
    from: LogBound,
    to: LogBound,
    head: u64,
) -> Result<(), QueryError> {
    let is_past = |bound: LogBound| bound.number().is_some_and(|n| n <= head);
    // Between numbers up to the head there is one answer, however old the head is.
    if !(is_past(from) && is_past(to)) {
        fresh(context.serving)?;
    }
    // While the upstream's head is higher, an error about heights beyond the head would name another one.
    let is_behind = context.status.upstream_head().is_some_and(|upstream| upstream > head);
    let ahead = |bound: LogBound| bound.number().filter(|n| is_behind && *n > head);
    match ahead(from).or_else(|| ahead(to)) {
        Some(height) => Err(Miss::Height(height).into()),
        None => Ok(()),
    }
}

/// Fails if not all heights are here, or if they are too many.
fn check_held(
    context: &QueryContext<'_>,
    heights: &RangeInclusive<u64>,
    wanted: &LogMatcher,
    held: &RangeInclusive<u64>,
) -> Result<(), QueryError> {
    let max = context.limits.logs_blocks_max;
    let is_long = heights.end() - heights.start() >= max;
    let covers = || context.serving.reader.covers_logs(heights, wanted.criteria());
    // Only the start can be missing: the served range has no gap, and the end was checked against
    // the head.
    if !held.contains(heights.start()) && !covers() {
        return Err(not_here(context, heights, wanted, is_long));
    }
    if is_long {
        return Err(RpcError::too_many_blocks(heights, max).into());
    }
    Ok(())
}

/// Heights below the served range are a miss, unless another place has them and the call asks for too much of it.
fn not_here(
    context: &QueryContext<'_>,
    heights: &RangeInclusive<u64>,
    wanted: &LogMatcher,
    is_long: bool,
) -> QueryError {
    let first = *heights.start();
    let is_below = || context.below.is_some_and(|below| below.may_have(&Want::Height(first)));
    if is_long && is_below() {
        return RpcError::too_many_blocks(heights, context.limits.logs_blocks_max).into();
    }
    let is_it = |beyond: &&LogsBeyond| {
        beyond.first == first && beyond.criteria == wanted.criteria().lists()
    };
    context.fetched.beyond.iter().find(is_it).map_or(Miss::Height(first).into(), |beyond| {
        RpcError::too_many_reads(heights, beyond.reads_max, &beyond.passes).into()
    })
}

/// More logs take too long for a thread that serves others. It is a choice: so many take about a
/// millisecond or two (5,100 logs without a filter).
const LONG_LOGS: usize = 2048;

/// Product of heights and searched terms above which a search takes too long for a serving thread, even if it finds
/// nothing: some 0.1 µs each (docs/benchmarks/log/store.md has a frequent address and topic).
const LONG_SEARCH: u64 = 10_000;

/// Appends the logs of heights that are all here, or nothing of them.
fn list(
    context: &QueryContext<'_>,
    heights: RangeInclusive<u64>,
    wanted: LogMatcher,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    append_or_nothing(context, heights, wanted, out, None).map(|_: Option<u64>| ())
}

/// Appends the logs of as many whole heights as the response may have, which are all here, or nothing. Returns the
/// height at which the others begin; `None` if there are no others.
pub(crate) fn list_whole_heights(
    context: &QueryContext<'_>,
    heights: RangeInclusive<u64>,
    wanted: LogMatcher,
    out: &mut BodyBuilder,
) -> Result<Option<u64>, QueryError> {
    let division = Division { first: *heights.start(), last_begin: None };
    append_or_nothing(context, heights, wanted, out, Some(division))
}

/// Place at which a list can end before a height.
struct Division {
    /// First height of the search.
    first: u64,
    /// Height of the last log, and the end of the logs before that height.
    last_begin: Option<(u64, Mark)>,
}

impl Division {
    /// Notes that a log of `height` was appended at `before`.
    fn note(&mut self, height: u64, before: Mark) {
        // Slices of two heights are never joined, so the list can be cut between them.
        if self.last_begin.as_ref().is_none_or(|(last, _)| *last != height) {
            self.last_begin = Some((height, before));
        }
    }

    /// Ends a list that is too long before the height of its last log. Returns that height.
    fn cut(self, limit: usize, out: &mut BodyBuilder) -> Result<u64, RpcError> {
        let (height, begin) = self.last_begin.ok_or_else(|| too_long(limit))?;
        if height == self.first {
            return Err(height_too_long(height, limit));
        }
        out.back_to(begin);
        out.text().push(b']');
        Ok(height)
    }
}

fn append_or_nothing(
    context: &QueryContext<'_>,
    heights: RangeInclusive<u64>,
    wanted: LogMatcher,
    out: &mut BodyBuilder,
    division: Option<Division>,
) -> Result<Option<u64>, QueryError> {
    let count = heights.end().saturating_sub(*heights.start()) + 1;
    // Each height is probed for each term: beyond this, other connections would wait.
    if count.saturating_mul(wanted.terms()) > LONG_SEARCH {
        residency::not_here()?;
    }
    let before = out.mark();
    let appended = append(context, heights, wanted, out, division);
    if appended.is_err() {
        // An error after the first logs must leave none of them in the response.
        out.back_to(before);
    }
    appended
}

fn append(
    context: &QueryContext<'_>,
    heights: RangeInclusive<u64>,
    wanted: LogMatcher,
    out: &mut BodyBuilder,
    mut division: Option<Division>,
) -> Result<Option<u64>, QueryError> {
    let limit = context.limits.logs_bytes_max;
    out.text().push(b'[');
    let begin = out.len();
    let mut logs = logs_of(&context.serving.reader, wanted, heights);
    let (mut found, mut look_at) = (0, LOOK_EVERY);
    let examine = |bytes| context.work.examine(bytes);
    loop {
        let before = division.is_some().then(|| out.mark());
        let Some(log) = logs.next_into(out.text(), found == 0, &examine) else { break };
        if found >= LONG_LOGS {
            residency::not_here()?;
        }
        if matches!(log, Ok(FoundLogs::Appended(_))) {
            look_at = found; // their texts are in memory, and a few may be long
            out.make_room();
        }
        found += append_found(log?, found == 0, out)?;
        if let Some((division, before)) = division.as_mut().zip(before) {
            division.note(logs.height(), before);
        }
        if found >= look_at {
            look_at = found + LOOK_EVERY;
            if !context.memory.covers(out.held()) {
                return Err(QueryError::NoMemory);
            }
        }
        if out.len() - begin >= limit {
            let division = division.ok_or_else(|| too_long(limit))?;
            return Ok(Some(division.cut(limit, out)?));
        }
    }
    if context.work.is_stopped() {
        return Err(context.work.error().into()); // the search ended early
    }
    out.text().push(b']');
    Ok(None)
}

/// Appends what a step of a search found. Returns the number of logs.
#[inline]
fn append_found(found: FoundLogs, is_first: bool, out: &mut BodyBuilder) -> Result<usize, Cold> {
    match found {
        FoundLogs::Stored(log) if is_first => out.stored(log).map(|()| 1),
        FoundLogs::Stored(log) => out.next_stored(log).map(|()| 1),
        FoundLogs::Appended(logs) => Ok(logs),
    }
}

/// Error for a filter that can deliver nothing before this height.
fn height_too_long(height: u64, limit: usize) -> RpcError {
    let what = format!(
        "the logs of block {height:#x} are longer than {limit} bytes; \
         open a filter of fewer addresses and topics"
    );
    RpcError { code: -32005, message: what.into() }
}

fn too_long(limit: usize) -> RpcError {
    let what = format!("the logs are longer than {limit} bytes; ask for fewer blocks at a time");
    RpcError { code: -32005, message: what.into() }
}
