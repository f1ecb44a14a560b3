//! The everyday steps of ../../everyday, with alloy's own fillers and wallet.

use std::error::Error;
use std::fmt::Display;
use std::fs;
use std::time::Duration;

use alloy_json_rpc::RpcRecv;
use alloy_network::TransactionResponse as _;
use alloy_primitives::{Address, B256, U256};
use alloy_provider::{FilterPollerBuilder, Provider, ProviderBuilder, WsConnect};
use alloy_rpc_client::PollChannel;
use alloy_rpc_types_eth::{Filter, TransactionReceipt, TransactionRequest};
use alloy_signer_local::PrivateKeySigner;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use crate::lines::write;

/// Longest time until a transaction is in a block, and until a filter or a subscription tells of it.
const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The chain as the harness filled it.
#[derive(Deserialize)]
struct Facts {
    node: String,
    height: u64,
    contract: Address,
    transaction: B256,
    address: Address,
    key: B256,
}

impl Facts {
    fn signer(&self) -> PrivateKeySigner {
        PrivateKeySigner::from_bytes(&self.key).expect("the harness makes keys")
    }

    fn provider(&self, url: &str) -> impl Provider {
        let url = url.parse().expect("the harness gives an address");
        ProviderBuilder::new().wallet(self.signer()).connect_http(url)
    }
}

pub async fn run(url: &str, file: &str) {
    let text = fs::read_to_string(file).expect("the harness wrote the facts");
    let facts: Facts = serde_json::from_str(&text).expect("facts are JSON");
    let provider = facts.provider(url);
    chain(&provider, &facts).await;
    state(&provider, &facts).await;
    filters(&provider, &facts).await;
    sockets(&url.replacen("http", "ws", 1).replace("/rpc", "/ws"), &facts).await;
}

/// Does one step and prints what came of it.
async fn step<T: Display>(name: &str, ask: impl Future<Output = Outcome<T>>) {
    write(&match ask.await {
        Ok(value) => json!({ "step": name, "value": value.to_string() }),
        Err(error) => json!({ "step": name, "error": error.to_string() }),
    });
}

fn some<T>(found: Option<T>) -> Outcome<T> {
    found.ok_or_else(|| "null".into())
}

async fn chain(provider: &impl Provider, facts: &Facts) {
    let (height, hash) = (facts.height, facts.transaction);
    let block = || provider.get_block_by_number(height.into());
    step("chain id", async { Ok(provider.get_chain_id().await?) }).await;
    step("head", async { Ok(provider.get_block_number().await? >= height) }).await;
    step("block", async { Ok(some(block().await?)?.header.hash) }).await;
    step("block, full", async { Ok(some(block().full().await?)?.transactions.len()) }).await;
    let transaction = provider.get_transaction_by_hash(hash);
    step("transaction", async { Ok(some(transaction.await?)?.from()) }).await;
    let receipt = provider.get_transaction_receipt(hash);
    step("receipt", async { Ok(some(receipt.await?)?.gas_used) }).await;
    let receipts = provider.get_block_receipts(height.into());
    step("receipts", async { Ok(some(receipts.await?)?.len()) }).await;
    let wanted = Filter::new().address(facts.contract).from_block(0).to_block(height);
    step("logs", async { Ok(provider.get_logs(&wanted).await?.len()) }).await;
}

async fn state(provider: &impl Provider, facts: &Facts) {
    let (height, address, contract) = (facts.height, facts.address, facts.contract);
    let call = TransactionRequest::default().from(address).to(contract);
    step("balance", async { Ok(provider.get_balance(address).number(height).await?) }).await;
    let nonce = provider.get_transaction_count(address).number(height);
    step("nonce", async { Ok(nonce.await?) }).await;
    step("code", async { Ok(provider.get_code_at(contract).number(height).await?) }).await;
    let slot = provider.get_storage_at(contract, U256::ZERO).number(height);
    step("storage", async { Ok(slot.await?) }).await;
    step("call", async { Ok(provider.call(call.clone()).number(height).await?) }).await;
    step("estimate", async { Ok(provider.estimate_gas(call.clone()).await?) }).await;
    step("price", async { Ok(provider.get_gas_price().await? > 0) }).await;
    let fees = provider.estimate_eip1559_fees();
    step("prices of EIP-1559", async { Ok(fees.await?.max_fee_per_gas > 0) }).await;
    let receipt = sent(provider, facts.address);
    step("send and wait", async { Ok(receipt.await?.status()) }).await;
}

/// Sends a transaction that alloy fills and signs, and waits for its receipt.
async fn sent(provider: &impl Provider, to: Address) -> Outcome<TransactionReceipt> {
    let draft = TransactionRequest::default().to(to).value(U256::ONE);
    let pending = provider.send_transaction(draft).await?;
    Ok(pending.with_timeout(Some(LIMIT)).get_receipt().await?)
}

/// Filters of a server that tell of transactions sent to the node: the steps need nothing else of it.
async fn filters(provider: &impl Provider, facts: &Facts) {
    // A wallet counts its nonces by itself, so this one begins after those of the other.
    let node = facts.provider(&facts.node);
    step("blocks by a filter", async {
        let mut blocks = polled(provider.watch_blocks().await?);
        let block = sent(&node, facts.address).await?.block_hash;
        told(async || Ok(blocks.recv().await?), |seen| seen.iter().any(|hash| Some(*hash) == block))
            .await
    })
    .await;
    step("logs by a filter", async {
        let wanted = Filter::new().address(facts.contract);
        let mut logs = polled(provider.watch_logs(&wanted).await?);
        let hash = Some(sent(&node, facts.contract).await?.transaction_hash);
        told(
            async || Ok(logs.recv().await?),
            |seen| seen.iter().any(|log| log.transaction_hash == hash),
        )
        .await
    })
    .await;
    step("pending by a filter", async {
        let mut pending = polled(provider.watch_pending_transactions().await?);
        let hash = sent(&node, facts.address).await?.transaction_hash;
        told(async || Ok(pending.recv().await?), |seen| seen.contains(&hash)).await
    })
    .await;
}

fn polled<T>(filter: FilterPollerBuilder<T>) -> PollChannel<Vec<T>>
where
    T: RpcRecv + Clone,
{
    // Room for all answers that come while a transaction is waited for.
    filter.with_poll_interval(POLL).with_channel_size(1024).spawn()
}

/// Waits until a filter or a subscription tells of what is wanted.
async fn told<T>(
    mut next: impl AsyncFnMut() -> Outcome<T>,
    wanted: impl Fn(T) -> bool,
) -> Outcome<bool> {
    let wait = async {
        while !wanted(next().await?) {}
        Ok(true)
    };
    timeout(LIMIT, wait).await?
}

async fn sockets(url: &str, facts: &Facts) {
    let connect = ProviderBuilder::new().wallet(facts.signer()).connect_ws(WsConnect::new(url));
    let provider = connect.await.expect("every server has WebSockets");
    let node = facts.provider(&facts.node);
    step("heads by a subscription", async {
        let mut heads = provider.subscribe_blocks().await?;
        let block = sent(&node, facts.address).await?.block_hash;
        told(async || Ok(heads.recv().await?), |head| Some(head.hash) == block).await
    })
    .await;
    step("logs by a subscription", async {
        let mut logs = provider.subscribe_logs(&Filter::new().address(facts.contract)).await?;
        let hash = Some(sent(&node, facts.contract).await?.transaction_hash);
        told(async || Ok(logs.recv().await?), |log| log.transaction_hash == hash).await
    })
    .await;
    step("pending by a subscription", async {
        let mut pending = provider.subscribe_pending_transactions().await?;
        let hash = sent(&node, facts.address).await?.transaction_hash;
        told(async || Ok(pending.recv().await?), |seen| seen == hash).await
    })
    .await;
    let receipt = sent(&provider, facts.address);
    step("send and wait over a socket", async { Ok(receipt.await?.status()) }).await;
}
