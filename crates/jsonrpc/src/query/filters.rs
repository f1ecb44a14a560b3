//! `eth_newFilter`, and subscriptions of logs, which follow the same rules.

use super::logs::{LogQuery, TOPICS_MAX};
use crate::arguments::{LogBound, LogRange, Tag};
use crate::error::{NoQuery, RpcError};
use crate::method::Rules;

/// Takes a filter as the node does (`SubscribeAcceptedLogs` in coreth's
/// `eth/filters/filter_system.go`, `SubscribeLogs` in libevm's). A block hash is never refused:
/// changes are then those of all new blocks, and only `eth_getFilterLogs` goes by it.
pub(crate) fn new_filter(query: LogQuery, rules: Rules) -> Result<LogQuery, NoQuery> {
    let helicon = rules == Rules::Helicon;
    if helicon && query.filter.topics.len() > TOPICS_MAX {
        return Err(RpcError::TOO_MANY_TOPICS.into());
    }
    match query.range {
        LogRange::Range { from, to } if !goes_together(from, to) => {
            // coreth and libevm differ in their words.
            let error = if helicon { RpcError::INVALID_RANGE } else { RpcError::FROM_ABOVE_TO };
            Err(error.into())
        }
        // libevm takes it for one of pending logs, which SAE nodes do not send: only a node keeps it as it is.
        LogRange::Range { from, to } if helicon && is_pending(from) && is_pending(to) => {
            Err(NoQuery::NotServed)
        }
        _ => Ok(query),
    }
}

fn is_pending(bound: LogBound) -> bool {
    bound == LogBound::Tag(Tag::Pending)
}

/// Begin or end of a filter. Everything is a number to the node, some below 0.
#[derive(PartialEq)]
enum End {
    Number(u64),
    Latest,
    Pending,
    Other,
}

impl From<LogBound> for End {
    fn from(bound: LogBound) -> Self {
        match bound {
            LogBound::Number(number) => Self::Number(number),
            LogBound::Absent | LogBound::Tag(Tag::Latest) => Self::Latest,
            LogBound::Tag(Tag::Pending) => Self::Pending,
            LogBound::Tag(Tag::Earliest) => Self::Number(0),
            LogBound::Tag(Tag::Safe | Tag::Finalized | Tag::Accepted) => Self::Other,
        }
    }
}

fn goes_together(from: LogBound, to: LogBound) -> bool {
    match (End::from(from), End::from(to)) {
        (End::Number(from), End::Number(to)) => from <= to,
        // The orders that both nodes accept: numbers before the head, and the head before pending.
        (End::Number(_) | End::Latest, End::Latest) => true,
        (from, End::Pending) => from != End::Other,
        _ => false,
    }
}
