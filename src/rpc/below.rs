//! Calls about heights below the served range, which another place has.

use std::sync::Arc;

use neve_jsonrpc::{BlockId, Message, Query, Request, Tag};

use super::call::Rpc;
use super::caller::{Caller, Transport};
use super::missing::Missing;
use crate::rpc::methods::Miss;
use crate::shared::{Lent, Want};

impl Rpc {
    /// True if the miss of a call may be an answer once another place has lent what it has.
    pub(super) fn is_below(&self, why: &Missing, caller: &Caller<'_>) -> bool {
        let (Some(below), Missing::Data(miss)) = (&self.below, why) else { return false };
        if matches!(caller.over, Transport::Socket(_)) {
            return false;
        }
        want_of(*miss).is_some_and(|want| self.is_wanted(want) && below.may_have(want))
    }

    /// Heights and hashes that the calls of a body name and the served range may not have.
    pub(crate) fn wants(&self, body: &[u8]) -> Vec<Want> {
        let mut wants = Vec::new();
        match self.parse(body) {
            Request::Single(message) => wants.extend(self.want(&message)),
            Request::Batch(messages) => {
                wants.extend(messages.iter().filter_map(|message| self.want(message)));
            }
            Request::Empty | Request::Malformed => {}
        }
        wants
    }

    fn want(&self, message: &Message<'_>) -> Option<Want> {
        let (_, query) = message.query(self.serving.rules()).ok()?;
        named(&query).filter(|want| self.is_wanted(*want))
    }

    /// True unless the height is in the served range or above.
    fn is_wanted(&self, want: Want) -> bool {
        let Want::Height(height) = want else { return true };
        self.serving.reader.range().is_some_and(|range| height < *range.start())
    }

    /// Answers also from heights that another place has lent. What they do not have is a miss.
    pub(crate) fn with_lent(&self, lent: Lent) -> Self {
        let reader = self.serving.reader.with_archived(lent.segments, lent.places);
        Self { serving: Arc::new(self.serving.over(reader)), below: None, ..self.clone() }
    }
}

/// Height or hash that was missed.
pub(crate) fn want_of(miss: Miss) -> Option<Want> {
    match miss {
        Miss::Height(height) => Some(Want::Height(height)),
        Miss::Hash(hash) => Some(Want::Hash(hash)),
        _ => None,
    }
}

/// Block or transaction that a query names.
fn named(query: &Query) -> Option<Want> {
    match *query {
        Query::Block(at, _)
        | Query::Header(at)
        | Query::TransactionCount(at)
        | Query::TransactionAt(at, _)
        | Query::Receipts(at)
        | Query::RawTransactionAt(at, _)
        | Query::UncleCount(at)
        | Query::Uncle(at, _)
        | Query::RawHeader(at)
        | Query::RawBlock(at)
        | Query::RawReceipts(at) => match at {
            BlockId::Number(height) => Some(Want::Height(height)),
            BlockId::Hash(hash) => Some(Want::Hash(hash)),
            BlockId::Tag(Tag::Earliest) => Some(Want::Height(0)),
            BlockId::Tag(_) => None,
        },
        Query::Transaction(hash) | Query::Receipt(hash) | Query::RawTransaction(hash) => {
            Some(Want::Hash(hash))
        }
        _ => None,
    }
}
