//! A miss as an error: its words, and the served range as its data.

use std::ops::RangeInclusive;

use neve_jsonrpc::RpcError;

use crate::rpc::methods::Miss;

/// Reason why a message has no answer in the batch or body that it is in. An error of the node is an answer, so it is
/// none of these; a message that is no call has a [`Unanswered::Silent`] and no [`QueryError`](crate::rpc::methods::QueryError).
pub(super) enum Unanswered {
    /// The message is a notification or a response.
    Silent,
    /// A full node must be asked.
    Missed(Missing),
    /// Clients use too much memory.
    NoMemory,
    /// Another thread does all of the work again.
    Cold,
}

/// Cause of a missed message: a [`Miss`] is of a query, and a method that is not served has no query.
pub(super) enum Missing {
    /// Data that neve does not have.
    Data(Miss),
    /// Name of a method that neve does not serve.
    Method(String),
}

pub(crate) fn missing_data(miss: Miss, range: Option<&RangeInclusive<u64>>) -> RpcError {
    let what = match miss {
        Miss::Empty => "nothing is served yet".to_owned(),
        Miss::Height(height) => format!("block {height:#x} is not served"),
        Miss::Unreadable(height) => format!("block {height:#x} cannot be read"),
        Miss::Hash(hash) => format!("{} is not served", neve_store::Hash(hash)),
        Miss::Disk => "stored data cannot be read now".to_owned(),
        Miss::NotRelayed(method) => format!("{method} is not known now"),
        Miss::Filter => "the filter was not made here".to_owned(),
        Miss::InBatch => "a call of the batch is not served here".to_owned(),
        Miss::StaleHead => "the newest block is too old".to_owned(),
        Miss::CatchingUp => "the newest block is not known yet, neve is catching up".to_owned(),
        Miss::NoUpstream => "the newest block is not known, no upstream is followed".to_owned(),
    };
    missing(&what, range)
}

pub(super) fn missing(what: &str, range: Option<&RangeInclusive<u64>>) -> RpcError {
    let held = range.map_or_else(String::new, |range| {
        format!(" (served: {:#x} to {:#x})", range.start(), range.end())
    });
    let message = format!("header not found: {what}{held}; {}", RpcError::NOT_AVAILABLE);
    RpcError { code: -32000, message: message.into() }
}

/// The served range as the error's `data`.
pub(crate) fn range_json(range: Option<&RangeInclusive<u64>>) -> String {
    match range {
        Some(range) => {
            format!("{{\"firstHeight\":\"{:#x}\",\"head\":\"{:#x}\"}}", range.start(), range.end())
        }
        None => "{\"firstHeight\":null,\"head\":null}".to_owned(),
    }
}
