//! The methods that stored blocks can answer, and their arguments.

use crate::arguments::{
    Arguments, At, block_number, block_reference, boolean, hash, index, or_null,
};
use crate::error::{NoQuery, RpcError};
use crate::request::Message;

/// Under which rules the node answers: decided by whether it has gone over to Helicon, for old
/// blocks too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rules {
    /// As avalanchego v1.14: one accepted head, `totalDifficulty` is the number.
    #[default]
    BeforeHelicon,
    /// As v1.15 since the switch (ACP-194): executed and settled heads, `totalDifficulty` is 0.
    Helicon,
}

macro_rules! methods {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        /// A method that is served. Also the label under which it is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method {
            $(#[doc = concat!("`", $name, "`")] $variant,)+
        }

        impl Method {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The method of this name, exactly.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

methods! {
    BlockNumber = "eth_blockNumber",
    ChainId = "eth_chainId",
    NetVersion = "net_version",
    BlockByNumber = "eth_getBlockByNumber",
    BlockByHash = "eth_getBlockByHash",
    HeaderByNumber = "eth_getHeaderByNumber",
    HeaderByHash = "eth_getHeaderByHash",
    TransactionCountByNumber = "eth_getBlockTransactionCountByNumber",
    TransactionCountByHash = "eth_getBlockTransactionCountByHash",
    TransactionByHash = "eth_getTransactionByHash",
    TransactionByNumberAndIndex = "eth_getTransactionByBlockNumberAndIndex",
    TransactionByBlockHashAndIndex = "eth_getTransactionByBlockHashAndIndex",
    TransactionReceipt = "eth_getTransactionReceipt",
    BlockReceipts = "eth_getBlockReceipts",
}

/// A question that stored blocks can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Query {
    /// The head's number.
    BlockNumber,
    /// The chain id, in hex.
    ChainId,
    /// The chain id, in decimal.
    NetVersion,
    /// A block, with transactions or with their hashes.
    Block(At, Transactions),
    /// A header.
    Header(At),
    /// How many transactions a block has.
    TransactionCount(At),
    /// A transaction by block and position.
    TransactionAt(At, u64),
    /// A transaction by hash.
    Transaction([u8; 32]),
    /// A receipt by transaction hash.
    Receipt([u8; 32]),
    /// All receipts of a block.
    Receipts(At),
}

/// How a block shows its transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transactions {
    /// Their hashes.
    Hashes,
    /// Whole.
    Full,
}

impl Message<'_> {
    /// What a call or a notification asks.
    pub fn query(&self, rules: Rules) -> Result<(Method, Query), NoQuery> {
        let name = self.method();
        match Method::from_name(name) {
            Some(method) => Ok((method, decode(method, self.params(), rules)?)),
            None if name.ends_with("_subscribe") => Err(RpcError::NO_NOTIFICATIONS.into()),
            None => Err(NoQuery::NotServed),
        }
    }
}

fn decode(method: Method, params: Option<&[u8]>, rules: Rules) -> Result<Query, NoQuery> {
    let mut arguments = Arguments::new(params, arity(method))?;
    let query = take(method, &mut arguments, rules)?;
    arguments.end()?;
    Ok(match query {
        Taken::Query(query) => query,
        Taken::Receipts(at) => Query::Receipts(or_null(at)?),
    })
}

fn arity(method: Method) -> usize {
    match method {
        Method::BlockNumber | Method::ChainId | Method::NetVersion => 0,
        Method::BlockByNumber
        | Method::BlockByHash
        | Method::TransactionByNumberAndIndex
        | Method::TransactionByBlockHashAndIndex => 2,
        _ => 1,
    }
}

/// Decoded arguments, before it is known that there are not too many.
enum Taken {
    Query(Query),
    Receipts(Option<At>),
}

fn take(method: Method, arguments: &mut Arguments<'_>, rules: Rules) -> Result<Taken, RpcError> {
    let number = |value: &[u8]| block_number(value, rules);
    let by_hash = |value: &[u8]| hash(value).map(At::Hash);
    let query = match method {
        Method::BlockNumber => Query::BlockNumber,
        Method::ChainId => Query::ChainId,
        Method::NetVersion => Query::NetVersion,
        Method::BlockByNumber => Query::Block(arguments.take(number)?, transactions(arguments)?),
        Method::BlockByHash => Query::Block(arguments.take(by_hash)?, transactions(arguments)?),
        Method::HeaderByNumber => Query::Header(arguments.take(number)?),
        Method::HeaderByHash => Query::Header(arguments.take(by_hash)?),
        Method::TransactionCountByNumber => Query::TransactionCount(arguments.take(number)?),
        Method::TransactionCountByHash => Query::TransactionCount(arguments.take(by_hash)?),
        Method::TransactionByHash => Query::Transaction(arguments.take(hash)?),
        Method::TransactionByNumberAndIndex => {
            Query::TransactionAt(arguments.take(number)?, arguments.take(index)?)
        }
        Method::TransactionByBlockHashAndIndex => {
            Query::TransactionAt(arguments.take(by_hash)?, arguments.take(index)?)
        }
        Method::TransactionReceipt => Query::Receipt(arguments.take(hash)?),
        Method::BlockReceipts => {
            let at = arguments.take(|value| block_reference(value, rules))?;
            return Ok(Taken::Receipts(at));
        }
    };
    Ok(Taken::Query(query))
}

fn transactions(arguments: &mut Arguments<'_>) -> Result<Transactions, RpcError> {
    let full = arguments.take(boolean)?;
    Ok(if full { Transactions::Full } else { Transactions::Hashes })
}
