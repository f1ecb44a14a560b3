//! The script over HTTP.

use alloy_eips::{BlockId, BlockNumberOrTag};
use alloy_network::primitives::HeaderResponse as _;
use alloy_network::{AnyNetwork, BlockResponse as _, TransactionResponse as _};
use alloy_primitives::{Address, B256, address};
use alloy_provider::Provider;
use alloy_rpc_client::BatchRequest;
use alloy_rpc_types_eth::{Filter, Log};
use alloy_transport::TransportResult;
use serde_json::{Value, json};

use crate::lines::{Settings, explain, step};

const UNKNOWN: B256 = B256::repeat_byte(0x7e);
const FUNDED: Address = address!("0x8db97C7cEcE249c2b98bDC0226Cc4C2A57BF52FC");
const NOBODY: Address = Address::repeat_byte(1);
const TAGS: [BlockNumberOrTag; 5] = [
    BlockNumberOrTag::Latest,
    BlockNumberOrTag::Safe,
    BlockNumberOrTag::Finalized,
    BlockNumberOrTag::Pending,
    BlockNumberOrTag::Earliest,
];

pub async fn run(provider: &impl Provider<AnyNetwork>, settings: &Settings) {
    step("chain id", provider.get_chain_id()).await;
    step("network id", provider.get_net_version()).await;
    let head = step("head", provider.get_block_number()).await.expect("there is a head");
    let mut logs = Vec::new();
    for height in 0..=head {
        let hashes = block(provider, height).await;
        for (index, hash) in hashes.into_iter().enumerate() {
            logs.extend(transaction(provider, (height, index), hash, settings.raw).await);
        }
    }
    tags(provider).await;
    batch(provider, "batch", &held(head)).await;
    errors(provider).await;
    if settings.logs {
        read_logs(provider, head, &logs).await;
    }
    misses(provider, head).await;
}

/// All about a block; returns its transactions' hashes.
async fn block(provider: &impl Provider<AnyNetwork>, height: u64) -> Vec<B256> {
    let number = BlockNumberOrTag::Number(height);
    step(format!("block {height}"), provider.get_block_by_number(number)).await;
    let full = provider.get_block_by_number(number).full();
    let block = step(format!("block {height} full"), full).await.flatten().expect("it is held");
    let hash = block.header().hash();
    step(format!("block {height} by hash"), provider.get_block_by_hash(hash)).await;
    step(format!("block {height} by hash full"), provider.get_block_by_hash(hash).full()).await;
    step(format!("header {height}"), provider.get_header_by_number(number)).await;
    step(format!("header {height} by hash"), provider.get_header_by_hash(hash)).await;
    let count = provider.get_block_transaction_count_by_number(number);
    step(format!("count {height}"), count).await;
    let count = provider.get_block_transaction_count_by_hash(hash);
    step(format!("count {height} by hash"), count).await;
    step(format!("receipts {height}"), provider.get_block_receipts(number.into())).await;
    let receipts = provider.get_block_receipts(BlockId::hash(hash));
    step(format!("receipts {height} by hash"), receipts).await;
    let hashes: Vec<_> = block.transactions().hashes().collect();
    let beyond = provider.get_transaction_by_block_hash_and_index(hash, hashes.len());
    step(format!("transaction {height} beyond"), beyond).await;
    hashes
}

/// All about a transaction; returns its logs.
async fn transaction(
    provider: &impl Provider<AnyNetwork>,
    (height, index): (u64, usize),
    hash: B256,
    raw: bool,
) -> Vec<Log> {
    let name = format!("{height}/{index}");
    let found = step(format!("transaction {name}"), provider.get_transaction_by_hash(hash)).await;
    let number = BlockNumberOrTag::Number(height);
    let by_index = provider.get_transaction_by_block_number_and_index(number, index);
    step(format!("transaction {name} by index"), by_index).await;
    if let Some(block) = found.flatten().and_then(|found| found.block_hash()) {
        let by_hash = provider.get_transaction_by_block_hash_and_index(block, index);
        step(format!("transaction {name} by hash and index"), by_hash).await;
    }
    if raw {
        step(format!("raw transaction {name}"), provider.get_raw_transaction_by_hash(hash)).await;
        let by_index = provider.get_raw_transaction_by_block_number_and_index(number, index);
        step(format!("raw transaction {name} by index"), by_index).await;
    }
    let receipt = step(format!("receipt {name}"), provider.get_transaction_receipt(hash)).await;
    let receipt = receipt.flatten().expect("the transaction is in a block");
    receipt.inner.inner.logs().to_vec()
}

async fn tags(provider: &impl Provider<AnyNetwork>) {
    for tag in TAGS {
        step(format!("block {tag}"), provider.get_block_by_number(tag)).await;
        step(format!("block {tag} full"), provider.get_block_by_number(tag).full()).await;
        step(format!("count {tag}"), provider.get_block_transaction_count_by_number(tag)).await;
        step(format!("receipts {tag}"), provider.get_block_receipts(tag.into())).await;
    }
}

fn held(head: u64) -> Vec<(&'static str, Value)> {
    let head = format!("{head:#x}");
    vec![
        ("eth_chainId", json!([])),
        ("eth_getBlockByNumber", json!([head, true])),
        ("eth_getBlockReceipts", json!([head])),
        ("eth_getBlockByNumber", json!(["nonsense", true])),
        ("eth_blockNumber", json!([])),
    ]
}

/// Calls in one request.
async fn batch(provider: &impl Provider<AnyNetwork>, name: &str, calls: &[(&'static str, Value)]) {
    let ask = async {
        let mut batch = BatchRequest::new(provider.client());
        let mut waiting = Vec::new();
        for (method, params) in calls {
            waiting.push(batch.add_call::<_, Value>(*method, params)?);
        }
        batch.send().await?;
        let mut answers = Vec::new();
        let mut refused = None;
        for answer in waiting {
            match answer.await {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    answers.push(explain(&error));
                    refused = Some(error);
                }
            }
        }
        // All refused is one refusal.
        let held = answers.iter().any(|answer| answer.get("code").is_none());
        refused.filter(|_| !held).map_or(Ok(Value::Array(answers)), Err)
    };
    step(name, ask).await;
}

async fn raw(
    provider: &impl Provider<AnyNetwork>,
    method: &'static str,
    params: Value,
) -> TransportResult<Value> {
    provider.raw_request(method.into(), params).await
}

async fn errors(provider: &impl Provider<AnyNetwork>) {
    let nonsense = raw(provider, "eth_getBlockByNumber", json!(["nonsense", false]));
    step("error: nonsense number", nonsense).await;
    step("error: missing argument", raw(provider, "eth_getBlockByNumber", json!(["0x0"]))).await;
    step("error: short hash", raw(provider, "eth_getTransactionByHash", json!(["0x12"]))).await;
}

async fn read_logs(provider: &impl Provider<AnyNetwork>, head: u64, logs: &[Log]) {
    let log = logs.iter().find(|log| log.topics().len() > 1).expect("the chain has logs");
    let span = || Filter::new().from_block(0).to_block(head);
    let addresses: Vec<_> = logs.iter().map(Log::address).collect();
    let topics = log.topics();
    let block = log.block_hash.expect("the log is in a block");
    let either = vec![topics[1], UNKNOWN];
    step("logs of a block", provider.get_logs(&Filter::new().at_block_hash(block))).await;
    step("logs of the chain", provider.get_logs(&span())).await;
    step("logs by address", provider.get_logs(&span().address(log.address()))).await;
    step("logs by addresses", provider.get_logs(&span().address(addresses))).await;
    step("logs by topic", provider.get_logs(&span().event_signature(topics[0]))).await;
    step("logs by topics", provider.get_logs(&span().topic1(either))).await;
    step("logs of nobody", provider.get_logs(&span().address(NOBODY))).await;
}

/// Calls that a cache misses and a node behind it answers.
async fn misses(provider: &impl Provider<AnyNetwork>, head: u64) {
    let future = BlockNumberOrTag::Number(head + 1000);
    step("miss: future block", provider.get_block_by_number(future)).await;
    step("miss: unknown block", provider.get_block_by_hash(UNKNOWN)).await;
    step("miss: unknown transaction", provider.get_transaction_by_hash(UNKNOWN)).await;
    step("miss: unknown receipt", provider.get_transaction_receipt(UNKNOWN)).await;
    step("miss: balance", provider.get_balance(FUNDED).number(head)).await;
    let head = format!("{head:#x}");
    let calls =
        [("eth_getBlockByNumber", json!([head, false])), ("eth_getCode", json!([NOBODY, head]))];
    batch(provider, "miss: batch", &calls).await;
}
