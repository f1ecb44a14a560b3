//! From a question to its result, by the rules of the node.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use neve_jsonrpc::{BlockId, Query, RpcError, Rules, Tag, Transactions};

use crate::chain::{Block, Part};
use crate::faults::{Fault, Subject, edit, false_block};
use crate::node::{Node, Place, Prices};

/// Time that an answer waits for an execution: the node's write timeout less a tenth of a second.
const EXECUTION_WAIT: Duration = Duration::from_millis(29_900);

const NULL: &[u8] = b"null";

/// Answers a query about the chain.
pub(crate) async fn answer(node: &Node, method: &str, query: Query) -> Result<Bytes, RpcError> {
    let subject = [Subject { method: method.into(), height: node.subject(&query) }];
    let receipts = matches!(query, Query::Receipts(_));
    // Older nodes have no such method: clients must take the error for that.
    if receipts && node.faults.strikes(&Fault::NoBlockReceipts, &subject) {
        return Err(RpcError::no_method(method));
    }
    let asked = Asked { node, subject: &subject, query: &query };
    let result = asked.result().await?;
    Ok(node.faults.change(&subject, result, |fault, result| edit(fault, &query, result)))
}

struct Asked<'n> {
    node: &'n Node,
    subject: &'n [Subject<'n>; 1],
    query: &'n Query,
}

impl Asked<'_> {
    async fn result(&self) -> Result<Bytes, RpcError> {
        #[allow(
            unreachable_patterns,
            clippy::match_wildcard_for_single_variants,
            reason = "the table of queries may grow"
        )]
        match *self.query {
            Query::BlockNumber => Ok(quantity(self.node.latest())),
            Query::ChainId => Ok(quantity(self.chain_id())),
            Query::NetVersion => Ok(format!("\"{}\"", self.chain_id()).into()),
            Query::Block(at, Transactions::Full) => self.block(at, Part::Full),
            Query::Block(at, Transactions::Hashes) => self.block(at, Part::Hashes),
            Query::Header(at) => self.block(at, Part::Header),
            Query::TransactionCount(at) => {
                let count = |block: &Block| quantity(block.transactions().len() as u64);
                Ok(self.found(at).map_or(NULL.into(), |block| count(&block)))
            }
            Query::TransactionAt(at, index) => Ok(transaction(self.found(at), index)),
            Query::Transaction(hash) => Ok(self.transaction_by_hash(hash)),
            Query::Receipts(at) => self.receipts(at).await,
            Query::Receipt(hash) => self.receipt(hash).await,
            Query::GasPrice => self.price(|prices| format!("\"{:#x}\"", prices.gas_price())),
            Query::BaseFee => self.price(|prices| format!("\"{:#x}\"", prices.base_fee)),
            Query::MaxPriorityFeePerGas => self.price(|prices| format!("\"{:#x}\"", prices.tip)),
            Query::SuggestPriceOptions => self.price(|prices| prices.options(self.node.rules())),
            _ => Err(RpcError::no_method(&self.subject[0].method)),
        }
    }

    fn price(&self, show: impl FnOnce(Prices) -> String) -> Result<Bytes, RpcError> {
        let prices = self.node.prices().ok_or_else(|| error(-32000, "no header"))?;
        Ok(show(prices).into())
    }

    fn chain_id(&self) -> u64 {
        self.node.config().chain.chain_id
    }

    /// A block or header. Before Helicon a number that is not accepted is an error.
    fn block(&self, at: BlockId, part: Part) -> Result<Bytes, RpcError> {
        let rules = self.node.rules();
        let height = match self.node.place(at) {
            Place::Height(height) => height,
            Place::Future if rules == Rules::BeforeHelicon => return Err(unfinalized()),
            Place::Future | Place::Unknown => return Ok(NULL.into()),
        };
        let Some(block) = self.at_height(height) else { return Ok(NULL.into()) };
        let pending = at == BlockId::Tag(Tag::Pending) && rules == Rules::Helicon;
        let mut out = Vec::with_capacity(block.text().len() + 16);
        block.append(&mut out, part, rules, pending);
        Ok(out.into())
    }

    fn found(&self, at: BlockId) -> Option<Arc<Block>> {
        self.at_height(self.node.place(at).height()?)
    }

    /// The block of a height, or what a fault shows instead.
    fn at_height(&self, height: u64) -> Option<Arc<Block>> {
        let block = self.node.block(height)?;
        if self.node.faults.is_empty() {
            return Some(block);
        }
        let generator = self.node.generator();
        let falsify = |fault: &Fault| false_block(fault, self.query, &block, &generator);
        let other = self.node.faults.take(self.subject, falsify);
        Some(other.map_or_else(|| Arc::clone(&block), Arc::new))
    }

    fn transaction_by_hash(&self, hash: [u8; 32]) -> Bytes {
        let Some((height, index)) = self.node.transaction(hash) else { return NULL.into() };
        transaction(self.at_height(height), index as u64)
    }

    async fn receipts(&self, at: BlockId) -> Result<Bytes, RpcError> {
        let Some(height) = self.node.place(at).height() else { return Ok(NULL.into()) };
        self.until_executed(height).await?;
        let block = self.at_height(height);
        Ok(block.map_or(NULL.into(), |block| block.receipts().clone()))
    }

    async fn receipt(&self, hash: [u8; 32]) -> Result<Bytes, RpcError> {
        let Some((height, index)) = self.node.transaction(hash) else { return Ok(NULL.into()) };
        self.until_executed(height).await?;
        let receipt = self.at_height(height).and_then(|block| block.receipt(index));
        Ok(receipt.unwrap_or(NULL.into()))
    }

    async fn until_executed(&self, height: u64) -> Result<(), RpcError> {
        let executed = self.node.until_executed(height, EXECUTION_WAIT).await;
        if executed { Ok(()) } else { Err(error(-32002, "request timed out")) }
    }
}

fn transaction(block: Option<Arc<Block>>, index: u64) -> Bytes {
    let transaction = block.and_then(|block| block.transaction(usize::try_from(index).ok()?));
    transaction.unwrap_or(NULL.into())
}

pub(crate) fn quantity(number: u64) -> Bytes {
    format!("\"{number:#x}\"").into()
}

fn unfinalized() -> RpcError {
    error(-32000, "cannot query unfinalized data")
}

pub(crate) fn error(code: i32, message: &'static str) -> RpcError {
    RpcError { code, message: Cow::Borrowed(message) }
}
