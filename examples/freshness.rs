//! Delay of a block here after the node: subscribed to both, on one clock.
//!
//! `cargo run --release --example freshness -- NODE_WS NEVE_WS NEVE_RPC HEADS` listens to `newHeads`
//! of a node and of the neve that follows it. When neve tells of a head, its newest block and that
//! block's receipts are asked for, and must be of that head. A line of JSON for each head: when the
//! node told of it, and how many milliseconds later neve did, and the two answers were there. With
//! the node in neve's place too it says how soon the node itself answers. `bench-scripts/freshness`
//! runs it.

use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

type Failed = Box<dyn Error + Send + Sync>;

/// A node makes a block every two seconds.
const SILENCE_MAX: Duration = Duration::from_mins(2);
/// Time between attempts to subscribe.
const AGAIN: Duration = Duration::from_millis(100);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [node, neve, rpc, heads] = &arguments[..] else {
        return Err(
            "wanted: NODE_WS NEVE_WS NEVE_RPC HEADS, as in ws://127.0.0.1:9650/ext/bc/C/ws \
                    ws://127.0.0.1:8545/ http://127.0.0.1:8545/ 300"
                .into(),
        );
    };
    let heads: usize = heads.parse().map_err(|_| format!("HEADS: {heads} is no number"))?;
    // Here first, so that no head of the node is waited for in vain.
    let mut here = subscribe(neve).await?;
    let mut there = subscribe(node).await?;
    let (mut told, asking) = (HashMap::new(), Asking::new(rpc));
    let mut told_here: HashMap<u64, Here> = HashMap::new();
    let (mut shown, mut last) = (0, Instant::now());
    while shown < heads {
        let height = tokio::select! {
            biased;
            () = sleep_until((last + SILENCE_MAX).into()) => return Err("no head came from both".into()),
            head = there.recv() => {
                let (height, at) = head.ok_or("the node ended the subscription")?;
                told.insert(height, at);
                height
            }
            head = here.recv() => {
                let (height, at) = head.ok_or("neve ended the subscription")?;
                told_here.insert(height, asking.after(height, at).await?);
                height
            }
        };
        if told.contains_key(&height)
            && let Some(here) = told_here.remove(&height)
        {
            println!("{}", row(height, told[&height], unix_ms(told[&height])?, &here));
            (shown, last) = (shown + 1, Instant::now());
        }
    }
    Ok(())
}

/// Times when a head was pushed here, and when its block and its receipts had been answered.
struct Here {
    pushed: Instant,
    block: Instant,
    receipts: Instant,
}

fn unix_ms(at: Instant) -> Result<f64, Failed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(now.saturating_sub(at.elapsed()).as_secs_f64() * 1e3)
}

fn row(height: u64, there: Instant, unix_ms: f64, here: &Here) -> Value {
    // Here may be first: then it is not late.
    let later = |at: Instant| at.saturating_duration_since(there).as_secs_f64() * 1e3;
    json!({
        "height": height,
        "unix_ms": unix_ms,
        "pushed_ms": later(here.pushed),
        "block_ms": later(here.block),
        "receipts_ms": later(here.receipts),
    })
}

/// Opens a subscription. A neve that has just begun refuses one until it is at the head.
async fn opened(socket: &mut Socket) -> Result<(), Failed> {
    let subscribe = r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}"#;
    loop {
        socket.send(Message::text(subscribe)).await?;
        let answer = loop {
            // Pings come too.
            if let Message::Text(text) =
                socket.next().await.ok_or("no answer to the subscription")??
            {
                break serde_json::from_str::<Value>(&text)?;
            }
        };
        if answer["result"].is_string() {
            return Ok(());
        }
        sleep(AGAIN).await;
    }
}

/// Heads from a WebSocket, each with the moment when it came.
async fn subscribe(url: &str) -> Result<mpsc::Receiver<(u64, Instant)>, Failed> {
    let mut socket = connect_async(url).await?.0;
    timeout(SILENCE_MAX, opened(&mut socket))
        .await
        .map_err(|_| format!("{url}: no subscription"))??;
    let (out, heads) = mpsc::channel(1024);
    tokio::spawn(async move {
        while let Some(Ok(message)) = socket.next().await {
            let at = Instant::now();
            let Message::Text(text) = message else { continue };
            let Some(height) = height(&text) else { return };
            if out.send((height, at)).await.is_err() {
                return;
            }
        }
    });
    Ok(heads)
}

fn height(notification: &str) -> Option<u64> {
    let notification: Value = serde_json::from_str(notification).ok()?;
    quantity(&notification["params"]["result"]["number"])
}

fn quantity(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

/// Asks neve over as many connections as there are questions.
struct Asking<'u> {
    client: Client<HttpConnector, Full<Bytes>>,
    url: &'u str,
}

impl<'u> Asking<'u> {
    fn new(url: &'u str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self { client: Client::builder(TokioExecutor::new()).build(connector), url }
    }

    /// Asks for what was pushed, both at once.
    async fn after(&self, height: u64, pushed: Instant) -> Result<Here, Failed> {
        let number = format!("{height:#x}");
        let (of_latest, of_it) = (json!(["latest", false]), json!([number]));
        let block = self.call("eth_getBlockByNumber", &of_latest);
        let receipts = self.call("eth_getBlockReceipts", &of_it);
        let ((block, at), (receipts, all)) = tokio::try_join!(block, receipts)?;
        let newest = quantity(&block["number"]);
        if newest.is_none_or(|newest| newest < height) {
            return Err(format!("{height} was pushed and {newest:?} is the newest").into());
        }
        let of_it = |receipt: &Value| quantity(&receipt["blockNumber"]) == Some(height);
        if receipts.as_array().is_none_or(|all| !all.iter().all(of_it)) {
            return Err(format!("no receipts of {height}: {receipts}").into());
        }
        Ok(Here { pushed, block: at, receipts: all })
    }

    /// The result, and when it was there, not read yet.
    async fn call(&self, method: &str, params: &Value) -> Result<(Value, Instant), Failed> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = Request::post(self.url).header("content-type", "application/json");
        let request = request.body(Full::from(body.to_string()))?;
        let answer = self.client.request(request).await?.into_body().collect().await?.to_bytes();
        let at = Instant::now();
        let mut answer: Value = serde_json::from_slice(&answer)?;
        Ok((answer["result"].take(), at))
    }
}
