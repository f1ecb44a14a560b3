//! From what a request names to a height.

use alloy_primitives::B256;
use neve_jsonrpc::{BlockId, Query, Rules, Tag};

use super::node::Node;
use crate::lock::read;

/// Block that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A block that is accepted.
    Height(u64),
    /// A number that is not.
    Future,
    /// A hash that the node does not know.
    Unknown,
}

impl Place {
    pub(crate) fn height(self) -> Option<u64> {
        match self {
            Self::Height(height) => Some(height),
            Self::Future | Self::Unknown => None,
        }
    }
}

impl Node {
    /// The block that is named.
    pub(crate) fn place(&self, at: BlockId) -> Place {
        match at {
            BlockId::Number(number) => self.number(number),
            BlockId::Hash(hash) => {
                let height = read(&self.state).shelf.height(&B256::new(hash));
                let known = height.filter(|height| *height <= self.accepted());
                known.map_or(Place::Unknown, Place::Height)
            }
            BlockId::Tag(tag) => Place::Height(self.tagged(tag)),
        }
    }

    fn number(&self, number: u64) -> Place {
        if number > self.accepted() { Place::Future } else { Place::Height(number) }
    }

    fn tagged(&self, tag: Tag) -> u64 {
        match tag {
            Tag::Earliest => 0,
            Tag::Safe | Tag::Finalized if self.rules() == Rules::Helicon => self.settled(),
            _ => self.latest(),
        }
    }

    /// Height and index of a transaction that is accepted.
    pub(crate) fn transaction(&self, hash: [u8; 32]) -> Option<(u64, usize)> {
        let state = read(&self.state);
        let found = state.shelf.transaction(&B256::new(hash));
        found.filter(|(height, _)| *height <= state.accepted)
    }

    /// The height that a query is about, if it is about one.
    pub(crate) fn subject(&self, query: &Query) -> Option<u64> {
        #[allow(unreachable_patterns, reason = "the table of queries may grow")]
        match *query {
            Query::Block(at, _)
            | Query::Header(at)
            | Query::TransactionCount(at)
            | Query::TransactionAt(at, _)
            | Query::Receipts(at) => self.place(at).height(),
            Query::Transaction(hash) | Query::Receipt(hash) => {
                self.transaction(hash).map(|(height, _)| height)
            }
            _ => None,
        }
    }
}
