//! The script over WebSocket.

use std::time::Duration;

use alloy_network::{AnyNetwork, AnyRpcHeader};
use alloy_provider::{Provider, ProviderBuilder, WsConnect};
use alloy_pubsub::Subscription;
use alloy_rpc_types_eth::{Filter, Log};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};
use tokio::time::timeout;

use crate::lines::{step, write};

/// Longest time until heads and logs that the harness announced come.
const LIMIT: Duration = Duration::from_secs(60);

/// Two subscriptions, and what came on them since the last report, in the order in which it came.
struct Following {
    stdin: Lines<BufReader<Stdin>>,
    heads: Subscription<AnyRpcHeader>,
    logs: Subscription<Log>,
    seen_heads: Vec<AnyRpcHeader>,
    seen_logs: Vec<Log>,
}

pub async fn run(url: &str, reconnect: bool) {
    let builder = ProviderBuilder::new().disable_recommended_fillers().network::<AnyNetwork>();
    let provider = builder.connect_ws(WsConnect::new(url)).await.expect("it connects");
    step("socket: chain id", provider.get_chain_id()).await;
    step("socket: block", provider.get_block_by_number(Default::default()).full()).await;
    let nonsense = json!(["nonsense", false]);
    let error = provider.raw_request::<_, Value>("eth_getBlockByNumber".into(), nonsense);
    step("socket: error", error).await;
    let mut following = Following {
        stdin: BufReader::new(tokio::io::stdin()).lines(),
        heads: provider.subscribe_blocks().await.expect("heads can be subscribed to"),
        logs: provider.subscribe_logs(&Filter::new()).await.expect("logs can be subscribed to"),
        seen_heads: Vec::new(),
        seen_logs: Vec::new(),
    };
    write(&json!({ "step": "subscribed" }));
    following.report().await;
    if reconnect {
        write(&json!({ "step": "waiting for the cut" }));
        let word = following.stdin.next_line().await.expect("the harness speaks");
        assert_eq!(word.as_deref(), Some("cut"));
        // alloy connects and subscribes again by itself, and repeats this call when it has.
        provider.get_chain_id().await.expect("alloy connects again");
        write(&json!({ "step": "reconnected" }));
        following.report().await;
    }
    let ids = [*following.heads.local_id(), *following.logs.local_id()];
    for id in ids {
        step("unsubscribed", provider.unsubscribe(id)).await;
    }
    // A call after it: the connection has outlived both subscriptions.
    step("socket: still there", provider.get_chain_id()).await;
    std::process::exit(0); // the thread that reads standard input would hold the runtime
}

impl Following {
    /// Waits until all that the harness announces is here, prints and forgets it.
    async fn report(&mut self) {
        let (height, logs) = self.announced().await;
        if timeout(LIMIT, self.collect(height, logs)).await.is_err() {
            let (heads, logs) = (self.seen_heads.len(), self.seen_logs.len());
            panic!("until {height} {logs}: not in time; seen: {heads} heads, {logs} logs");
        }
        for head in self.seen_heads.drain(..) {
            write(&json!({ "step": format!("head {}", head.number), "value": head }));
        }
        for log in self.seen_logs.drain(..) {
            let number = log.block_number.unwrap_or_default();
            write(&json!({ "step": format!("log of {number}"), "value": log }));
        }
    }

    /// The harness's next `until HEIGHT LOGS`. Subscriptions are read meanwhile: alloy keeps only
    /// so many messages.
    async fn announced(&mut self) -> (u64, usize) {
        loop {
            tokio::select! {
                line = self.stdin.next_line() => {
                    let line = line.expect("the harness speaks").expect("the harness is there");
                    let mut words = line.strip_prefix("until ").expect("it says until").split(' ');
                    let mut number = || words.next()?.parse::<u64>().ok();
                    let height = number().expect("a height");
                    return (height, number().expect("a count") as usize);
                }
                head = self.heads.recv() => self.seen_heads.push(head.expect("heads go on")),
                log = self.logs.recv() => self.seen_logs.push(log.expect("logs go on")),
            }
        }
    }

    async fn collect(&mut self, height: u64, logs: usize) {
        while self.seen_logs.len() < logs || self.seen_heads.iter().all(|head| head.number < height)
        {
            tokio::select! {
                head = self.heads.recv() => self.seen_heads.push(head.expect("heads go on")),
                log = self.logs.recv() => self.seen_logs.push(log.expect("logs go on")),
            }
        }
    }
}
