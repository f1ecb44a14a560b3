//! Feeds a node with transactions of every kind that a C-chain block can hold.
//!
//! The same seed makes the same transactions. Which block takes which of them is the node's
//! affair: it depends on when they arrive.

// Says that all of this is test code, where a panic is the finding.
#![cfg(test)]
#![allow(dead_code, reason = "every test binary includes this file and none uses all of it")]

mod atomic;
mod avax;
mod code;
mod kinds;
mod sign;

use std::cell::OnceCell;
use std::time::Duration;

use alloy_primitives::{Address, B256};
use serde_json::{Value, json};

use super::node::wait::Miss;
use super::node::{Node, rpc};
use atomic::Network;
use kinds::Seed;
pub(crate) use kinds::{Kind, Made};
use sign::{Account, Draft};

/// A transaction is accepted 1 to 4 s after it was sent; a burst of hundreds takes longer.
const ACCEPT_LIMIT: Duration = Duration::from_mins(1);
/// Transactions sent in one request; the node's own limit for a batch is 1000.
const BATCH: usize = 200;
/// Transfers in a burst of [`Feed::round`]: several land in one block, as the first of them has
/// that block's two seconds to itself.
const BURST: usize = 40;

/// A source of transactions for one node.
pub(crate) struct Feed<'n> {
    node: &'n Node,
    seed: Seed,
    /// Sends all ordinary transactions.
    funded: Account,
    /// Sends all exports, and gets all imports.
    exporter: Account,
    chain_id: u64,
    network: OnceCell<Network>,
}

impl<'n> Feed<'n> {
    /// A feeder with a fixed seed.
    pub(crate) fn new(node: &'n Node) -> Self {
        Self::with_seed(node, 1)
    }

    /// A feeder with a chosen seed.
    pub(crate) fn with_seed(node: &'n Node, seed: u64) -> Self {
        let chain_id = quantity(&rpc::call(&node.http_url(), "eth_chainId", &json!([])));
        let (funded, exporter) = (Account::local(), Account::named("exporter"));
        Self { node, seed: Seed(seed), funded, exporter, chain_id, network: OnceCell::new() }
    }

    /// Makes every [`Kind`] once (transfers: many times) and waits until all are accepted.
    ///
    /// In this order: a block with one transfer and no logs; one or two with everything that is
    /// not atomic; one with an import alone; then an export among a burst of transfers, as a rule
    /// in one block.
    pub(crate) fn round(&mut self) -> Vec<Made> {
        let quiet = kinds::legacy(&mut self.seed);
        let mut made = self.send(vec![quiet]);
        let each = self.one_of_each();
        made.extend(self.send(each));
        made.push(self.import());
        made.extend(self.fund_exporter());
        let export = self.issue_export();
        made.extend(self.transfers(BURST));
        made.push(self.accepted(&export));
        made
    }

    /// Sends `count` transfers at once, to as many addresses, and waits until all are accepted.
    pub(crate) fn transfers(&mut self, count: usize) -> Vec<Made> {
        let drafts = kinds::transfers(&mut self.seed, count);
        self.send(drafts)
    }

    /// Makes a draft of each kind that needs no other chain. Their contracts' addresses follow from
    /// the nonces that they will get.
    fn one_of_each(&mut self) -> Vec<Draft> {
        let (sender, nonce) = (self.funded.address(), self.nonce());
        kinds::one_of_each(&mut self.seed, |place| sender.create(nonce + place))
    }

    /// Signs drafts under consecutive nonces, sends them, waits until all are accepted.
    fn send(&mut self, drafts: Vec<Draft>) -> Vec<Made> {
        let signed: Vec<_> = (self.nonce()..)
            .zip(drafts)
            .map(|(nonce, draft)| self.funded.sign(draft, nonce, self.chain_id))
            .collect();
        for some in signed.chunks(BATCH) {
            let raw: Vec<Value> = some.iter().map(|tx| json!([tx.raw])).collect();
            rpc::try_batch(&self.node.http_url(), "eth_sendRawTransaction", &raw)
                .unwrap_or_else(|why| panic!("{}", self.node.with_log(&why)));
        }
        let sent: Vec<_> = signed.iter().map(|tx| (tx.kind, tx.hash)).collect();
        sent.chunks(BATCH).flat_map(|some| self.blocks_of(some)).collect()
    }

    /// Waits for the blocks of transactions.
    fn blocks_of(&self, sent: &[(Kind, B256)]) -> Vec<Made> {
        let what = format!("acceptance of {} transactions from {:?} on", sent.len(), sent.first());
        let hashes: Vec<Value> = sent.iter().map(|(_, hash)| json!([hash])).collect();
        let url = self.node.http_url();
        let receipts = self.node.wait_for(&what, ACCEPT_LIMIT, || {
            let receipts = rpc::try_batch(&url, "eth_getTransactionReceipt", &hashes);
            let receipts = receipts.map_err(Miss::NotYet)?;
            match receipts.iter().filter(|receipt| receipt.is_null()).count() {
                0 => Ok(receipts),
                open => Err(Miss::NotYet(format!("{open} without a receipt"))),
            }
        });
        let made = |(&(kind, hash), receipt): (&(Kind, B256), &Value)| Made {
            kind,
            block: quantity(&receipt["blockNumber"]),
            hash,
            cb58: None,
        };
        sent.iter().zip(&receipts).map(made).collect()
    }

    /// The next nonce of the account that sends ordinary transactions.
    fn nonce(&self) -> u64 {
        let sender: Address = self.funded.address();
        quantity(&self.node_call("eth_getTransactionCount", &json!([sender, "pending"])))
    }

    /// Calls the C-chain.
    fn node_call(&self, method: &str, params: &Value) -> Value {
        rpc::try_call(&self.node.http_url(), method, params)
            .unwrap_or_else(|why| panic!("{}", self.node.with_log(&why)))
    }

    /// Another of the node's APIs.
    fn url(&self, path: &str) -> String {
        self.node.base_url() + path
    }
}

/// The number in a hex quantity.
///
/// # Panics
/// If it is none that fits 64 bits.
pub(crate) fn quantity(value: &Value) -> u64 {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.unwrap_or_else(|| panic!("no quantity: {value}"))
}
