//! `eth_subscribe` and `eth_unsubscribe`, which a WebSocket has and HTTP has not.
//!
//! One thing is ours: subscriptions that resume. `eth_subscribe("newHeads", {"fromBlock": "0x10"})`
//! begins with block 16, which a node refuses; and `eth_subscribe("logs", {"fromBlock": "0x10"})`,
//! where a node sends logs of new blocks alone, begins with those of block 16. Both want a number:
//! with a tag, or without anything, a subscription begins with what comes next. So do logs from
//! `0x0` on, which Go clients send by themselves; the genesis block has none, so that `0x1` stands
//! for all.

use super::filters::new_filter;
use super::logs::{LogQuery, log_query};
use crate::arguments::{
    Arguments, BlockId, Decoded, LogBound, LogRange, block_number, boolean, string,
};
use crate::error::{NoQuery, RpcError};
use crate::json::{is_key, members};
use crate::method::Rules;
use crate::request::Message;

/// Request to a WebSocket to begin or end a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subscription {
    /// Headers of new blocks.
    NewHeads {
        /// The first block to send, if it is not the next one.
        from_block: Option<u64>,
    },
    /// Logs of new blocks.
    Logs {
        /// Filter of the logs. A block hash in it means nothing to a node.
        query: LogQuery,
        /// The first block to send logs of, if it is not the next one.
        from_block: Option<u64>,
    },
    /// No longer the one of this id.
    Unsubscribe(String),
}

impl Message<'_> {
    /// Decodes the subscription of a call on a WebSocket; `None` if it is about something else,
    /// which [`Self::query`] knows. Of the subscriptions that a node has, those of transactions and
    /// of traces are not served. A node ignores all between the first `_` and the last, so that
    /// `eth_x_subscribe` subscribes there (libevm, `rpc/json.go`). neve compares the whole name.
    pub fn subscription(&self, rules: Rules) -> Result<Option<Subscription>, NoQuery> {
        let name = self.method();
        if name.ends_with("_unsubscribe") {
            return Ok(Some(Subscription::Unsubscribe(unsubscribe(self.params())?)));
        }
        match name.strip_suffix("_subscribe") {
            None => Ok(None),
            Some(namespace) if !namespace.contains('_') => {
                subscribe(namespace, self.params(), rules).map(Some)
            }
            Some(_) => Err(NoQuery::NotServed),
        }
    }
}

/// The id of what is to end, whatever the namespace.
pub(crate) fn unsubscribe(params: Option<&[u8]>) -> Result<String, RpcError> {
    let mut arguments = Arguments::new(params)?;
    let id = arguments.take(id)?;
    arguments.end()?;
    Ok(id)
}

fn subscribe(
    namespace: &str,
    params: Option<&[u8]>,
    rules: Rules,
) -> Result<Subscription, NoQuery> {
    // The node looks for the name first, and drops what a number of any size gives (json.go).
    let mut arguments = Arguments::new(params).map_err(|_| RpcError::NON_ARRAY)?;
    let name = subscription_name(&mut arguments)?;
    match (namespace, name.as_str()) {
        ("eth", "newHeads") => Ok(new_heads(arguments, rules)?),
        ("eth", "logs") => logs(arguments, rules),
        ("eth", "newPendingTransactions" | "newAcceptedTransactions") => {
            // Wrong parameters are the node's error, although the subscription is not served.
            arguments.optional(boolean)?;
            arguments.end()?;
            Err(NoQuery::NotServed)
        }
        ("debug", "traceChain") => Err(NoQuery::NotServed),
        _ => Err(RpcError::no_subscription(&name, namespace).into()),
    }
}

fn subscription_name(arguments: &mut Arguments<'_>) -> Result<String, RpcError> {
    if arguments.is_absent() {
        return Err(RpcError::NON_ARRAY); // here a node wants an array
    }
    match arguments.peek() {
        Some([b'"', ..]) => arguments.take(|value| string(value, "string")),
        _ => Err(RpcError::params("expected subscription name as first argument")),
    }
}

fn new_heads(mut arguments: Arguments<'_>, rules: Rules) -> Result<Subscription, RpcError> {
    let resumes = arguments.peek().is_some_and(|value| from_block(value).is_some());
    let mut from_block = None;
    if resumes {
        from_block = Some(arguments.take(|value| number_to_resume_from(value, rules))?);
    }
    arguments.end()?;
    Ok(Subscription::NewHeads { from_block })
}

/// The member by which heads resume. Without it the argument is one too many, as for a node.
fn from_block(value: &[u8]) -> Option<&[u8]> {
    let object = Some(value).filter(|value| value.first() == Some(&b'{'))?;
    members(object).filter(|(key, _)| is_key(key, "fromblock")).map(|(_, value)| value).last()
}

fn number_to_resume_from(value: &[u8], rules: Rules) -> Decoded<u64> {
    match block_number(from_block(value).unwrap_or_default(), rules)? {
        BlockId::Number(number) => Ok(number),
        BlockId::Tag(_) | BlockId::Hash(_) => Err("fromBlock must be a number".into()),
    }
}

fn logs(mut arguments: Arguments<'_>, rules: Rules) -> Result<Subscription, NoQuery> {
    let query = arguments.take(|value| log_query(value, rules))?;
    arguments.end()?;
    let query = new_filter(query, rules)?;
    let from_block = match query.range {
        // go-ethereum's client and coreth's send 0 when they were given no height.
        LogRange::Range { from: LogBound::Number(number), .. } if number > 0 => Some(number),
        _ => None,
    };
    Ok(Subscription::Logs { query, from_block })
}

/// An `rpc.ID` of a filter or of a subscription.
pub(crate) fn id(value: &[u8]) -> Decoded<String> {
    string(value, "rpc.ID")
}
