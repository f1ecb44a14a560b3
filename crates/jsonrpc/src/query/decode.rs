//! From a call to a query.

use super::fees::fee_history;
use super::filters::new_filter;
use super::logs::{LogQuery, get_logs, log_query};
use super::query::{Query, Transactions};
use super::subscription::{id, unsubscribe};
use super::unserved;
use crate::arguments::{
    Arguments, BlockId, block_number, block_reference, boolean, bytes, hash, index,
};
use crate::error::{NoQuery, RpcError};
use crate::method::{Method, Rules};
use crate::request::Message;

impl Message<'_> {
    /// Decodes a call or a notification.
    pub fn query(&self, rules: Rules) -> Result<(Method, Query), NoQuery> {
        if let Some(method) = self.served() {
            return decode(method, self.params(), rules).map(|query| (method, query));
        }
        let name = self.method();
        // Over HTTP only: over a WebSocket `Message::subscription` has taken these before.
        if name.ends_with("_subscribe") {
            return Err(RpcError::NO_NOTIFICATIONS.into());
        }
        if name.ends_with("_unsubscribe") {
            unsubscribe(self.params())?;
            return Err(RpcError::SUBSCRIPTION_NOT_FOUND.into());
        }
        Err(unserved::decode(&name, self.params(), rules))
    }
}

/// Query of decoded arguments, or the method's own error about them: that comes after
/// the complaint about arguments that are too many.
type Asked = Result<Query, NoQuery>;

fn decode(method: Method, params: Option<&[u8]>, rules: Rules) -> Asked {
    let mut arguments = Arguments::new(params)?;
    let asked = match without_arguments(method) {
        Some(query) => Ok(query),
        None => Taker { arguments: &mut arguments, rules }.take(method)?,
    };
    // Before errors of the method itself: libevm parses all arguments, and then calls it.
    arguments.end()?;
    asked
}

fn without_arguments(method: Method) -> Option<Query> {
    Some(match method {
        Method::BlockNumber => Query::BlockNumber,
        Method::ChainId => Query::ChainId,
        Method::NetVersion => Query::NetVersion,
        Method::ClientVersion => Query::ClientVersion,
        Method::Listening => Query::Listening,
        Method::PeerCount => Query::PeerCount,
        Method::Syncing => Query::Syncing,
        Method::ChainConfig => Query::ChainConfig,
        Method::Modules => Query::Modules,
        Method::GasPrice => Query::GasPrice,
        Method::BaseFee => Query::BaseFee,
        Method::MaxPriorityFeePerGas => Query::MaxPriorityFeePerGas,
        Method::SuggestPriceOptions => Query::SuggestPriceOptions,
        Method::NewBlockFilter => Query::NewBlockFilter,
        _ => return None,
    })
}

/// Takes the arguments of one method.
struct Taker<'a, 'b> {
    arguments: &'b mut Arguments<'a>,
    rules: Rules,
}

impl Taker<'_, '_> {
    /// Takes the arguments of a method that has some.
    fn take(&mut self, method: Method) -> Result<Asked, RpcError> {
        if let Some(query) = self.of_a_block(method)? {
            return Ok(Ok(query));
        }
        Ok(match method {
            Method::BlockReceipts => self.reference()?.map(Query::Receipts).ok_or(NoQuery::Null),
            Method::DebugRawHeader => self.known_reference(Query::RawHeader)?,
            Method::DebugRawBlock => self.known_reference(Query::RawBlock)?,
            Method::DebugRawReceipts => self.known_reference(Query::RawReceipts)?,
            Method::TransactionByHash => Ok(Query::Transaction(self.arguments.take(hash)?)),
            Method::TransactionReceipt => Ok(Query::Receipt(self.arguments.take(hash)?)),
            Method::RawTransactionByHash | Method::DebugRawTransaction => {
                Ok(Query::RawTransaction(self.arguments.take(hash)?))
            }
            Method::Sha3 => Ok(Query::Sha3(self.arguments.take(bytes)?)),
            Method::FeeHistory => fee_history(self.arguments, self.rules)?,
            Method::Logs => self.logs()?.and_then(|query| get_logs(query).map(Query::Logs)),
            Method::NewFilter => {
                let rules = self.rules;
                self.logs()?.and_then(|query| new_filter(query, rules).map(Query::NewFilter))
            }
            Method::NewPendingTransactionFilter => {
                self.arguments.optional(boolean)?;
                Ok(Query::NewPendingTransactionFilter)
            }
            Method::FilterChanges => Ok(Query::FilterChanges(self.id()?)),
            Method::FilterLogs => Ok(Query::FilterLogs(self.id()?)),
            Method::UninstallFilter => Ok(Query::UninstallFilter(self.id()?)),
            // `of_a_block` has taken these. All are named so that the compiler names a new method without an arm.
            Method::BlockByNumber
            | Method::BlockByHash
            | Method::HeaderByNumber
            | Method::HeaderByHash
            | Method::TransactionCountByNumber
            | Method::TransactionCountByHash
            | Method::UncleCountByNumber
            | Method::UncleCountByHash
            | Method::TransactionByNumberAndIndex
            | Method::TransactionByBlockHashAndIndex
            | Method::RawTransactionByNumberAndIndex
            | Method::RawTransactionByBlockHashAndIndex
            | Method::UncleByNumberAndIndex
            | Method::UncleByBlockHashAndIndex
            // `without_arguments` has these.
            | Method::BlockNumber
            | Method::ChainId
            | Method::NetVersion
            | Method::ClientVersion
            | Method::Listening
            | Method::PeerCount
            | Method::Syncing
            | Method::ChainConfig
            | Method::Modules
            | Method::GasPrice
            | Method::BaseFee
            | Method::MaxPriorityFeePerGas
            | Method::SuggestPriceOptions
            | Method::NewBlockFilter => Err(NoQuery::NotServed),
        })
    }

    /// Methods that begin with a number or a hash.
    fn of_a_block(&mut self, method: Method) -> Result<Option<Query>, RpcError> {
        Ok(Some(match method {
            Method::BlockByNumber => Query::Block(self.number()?, self.transactions()?),
            Method::BlockByHash => Query::Block(self.hash()?, self.transactions()?),
            Method::HeaderByNumber => Query::Header(self.number()?),
            Method::HeaderByHash => Query::Header(self.hash()?),
            Method::TransactionCountByNumber => Query::TransactionCount(self.number()?),
            Method::TransactionCountByHash => Query::TransactionCount(self.hash()?),
            Method::UncleCountByNumber => Query::UncleCount(self.number()?),
            Method::UncleCountByHash => Query::UncleCount(self.hash()?),
            Method::TransactionByNumberAndIndex => {
                Query::TransactionAt(self.number()?, self.index()?)
            }
            Method::TransactionByBlockHashAndIndex => {
                Query::TransactionAt(self.hash()?, self.index()?)
            }
            Method::RawTransactionByNumberAndIndex => {
                Query::RawTransactionAt(self.number()?, self.index()?)
            }
            Method::RawTransactionByBlockHashAndIndex => {
                Query::RawTransactionAt(self.hash()?, self.index()?)
            }
            Method::UncleByNumberAndIndex => Query::Uncle(self.number()?, self.index()?),
            Method::UncleByBlockHashAndIndex => Query::Uncle(self.hash()?, self.index()?),
            _ => return Ok(None),
        }))
    }

    fn number(&mut self) -> Result<BlockId, RpcError> {
        let rules = self.rules;
        self.arguments.take(|value| block_number(value, rules))
    }

    fn hash(&mut self) -> Result<BlockId, RpcError> {
        self.arguments.take(hash).map(BlockId::Hash)
    }

    fn index(&mut self) -> Result<u64, RpcError> {
        self.arguments.take(index)
    }

    fn transactions(&mut self) -> Result<Transactions, RpcError> {
        let full = self.arguments.take(boolean)?;
        Ok(if full { Transactions::Full } else { Transactions::Hashes })
    }

    fn reference(&mut self) -> Result<Option<BlockId>, RpcError> {
        let rules = self.rules;
        self.arguments.take(|value| block_reference(value, rules))
    }

    /// A reference of which the method minds that it names no block.
    fn known_reference(&mut self, query: fn(BlockId) -> Query) -> Result<Asked, RpcError> {
        let at = self.reference()?;
        Ok(at.map(query).ok_or_else(|| RpcError::neither(self.rules).into()))
    }

    fn logs(&mut self) -> Result<Result<LogQuery, NoQuery>, RpcError> {
        let rules = self.rules;
        self.arguments.take(|value| log_query(value, rules)).map(Ok)
    }

    fn id(&mut self) -> Result<String, RpcError> {
        self.arguments.take(id)
    }
}
