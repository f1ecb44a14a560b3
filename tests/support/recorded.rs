//! A node that was recorded: answers with the recorded bytes, and plays what a node goes through:
//! blocks accepted before they are executed, and the switch from v1.14's answers to v1.15's, with
//! WebSockets cut and requests held (see tests/corpus/README.md).

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Message;

use super::corpus::Set;
use super::once::Once;

/// A recorded height: the `result` texts.
#[derive(Debug, Clone)]
pub(crate) struct Height {
    pub(crate) block: String,
    pub(crate) receipts: String,
    pub(crate) hash: String,
}

/// State of the node.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// The newest height whose block is there.
    pub(crate) accepted: u64,
    /// The newest height whose receipts are there.
    pub(crate) executed: u64,
    /// True if it answers as v1.15 does.
    pub(crate) helicon: bool,
    /// True if it has `eth_getBlockReceipts`.
    pub(crate) block_receipts: bool,
    /// Heights whose receipts are told otherwise than they are.
    pub(crate) lies: HashMap<u64, String>,
    /// Heights of the block and of the receipts that it gives for `latest`, if not those of the newest.
    pub(crate) latest: Option<[u64; 2]>,
    /// Number of requests for `latest`.
    asked_for_latest: u64,
    /// Requests wait while this is set.
    pub(crate) hold: bool,
    /// Changes to cut every WebSocket, without a word.
    cuts: u64,
}

/// Address of the node behind TLS, and its authority.
pub(crate) struct Tls {
    pub(crate) https: String,
    pub(crate) wss: String,
    /// A certificate, PEM.
    pub(crate) authority: String,
}

fn certificate() -> (TlsAcceptor, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
    let made = made.expect("a key and a certificate can be made");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("the key is a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("key and certificate belong together");
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem())
}

/// Chains that were read, for all tests of a program.
static CHAINS: Once<Set, Chain> = Once::new();

struct Chain {
    id: Value,
    heights: Vec<Height>,
    /// Height and receipt by transaction hash.
    receipts: HashMap<String, (u64, String)>,
    /// True if the node is of v1.15, whose heads have keys that v1.14's have not.
    newer: bool,
}

/// The running node. Dropping it ends it.
pub(crate) struct Recorded {
    address: SocketAddr,
    tls: Tls,
    chain: Arc<Chain>,
    state: Arc<Mutex<State>>,
    changes: watch::Sender<u64>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Chain {
    fn load(set: Set) -> Self {
        let mut blocks: HashMap<u64, (String, String)> = HashMap::new();
        let mut receipts_of: HashMap<u64, String> = HashMap::new();
        for row in set.rows("blocks") {
            let answer = String::from_utf8(row.answer).expect("answers are text");
            let (Some(height), Some(result)) = (height_in(&row.name), result_of(&answer)) else {
                continue;
            };
            match row.name.rsplit('/').next() {
                Some("full") => {
                    let block: Value = serde_json::from_str(result).expect("a block is JSON");
                    let hash = block["hash"].as_str().expect("a block has a hash").to_owned();
                    blocks.insert(height, (result.to_owned(), hash));
                }
                Some("receipts") => drop(receipts_of.insert(height, result.to_owned())),
                _ => {}
            }
        }
        let height = |at: u64| {
            let (block, hash) = blocks.remove(&at)?;
            Some(Height { block, hash, receipts: receipts_of.remove(&at)? })
        };
        let heights: Vec<_> = (0..).map_while(height).collect();
        assert_eq!(heights.len() as u64, set.head + 1, "{set:?} is not whole");
        let newer = set.folder.starts_with("v1.15");
        Self { id: json!("0xa868"), receipts: single_receipts(&heights), heights, newer }
    }

    fn at(&self, height: u64) -> Option<&Height> {
        self.heights.get(height as usize)
    }
}

/// Each receipt's own text, cut from its block's.
fn single_receipts(heights: &[Height]) -> HashMap<String, (u64, String)> {
    let mut all = HashMap::new();
    for (at, height) in heights.iter().enumerate() {
        let texts: Vec<&serde_json::value::RawValue> =
            serde_json::from_str(&height.receipts).expect("receipts are a list");
        for text in texts {
            let receipt: Value = serde_json::from_str(text.get()).expect("a receipt is JSON");
            let hash = receipt["transactionHash"].as_str().expect("it names its transaction");
            all.insert(hash.to_owned(), (at as u64, text.get().to_owned()));
        }
    }
    all
}

/// `block/17/full` is about height 17.
fn height_in(name: &str) -> Option<u64> {
    name.split('/').nth(1)?.parse().ok()
}

fn result_of(answer: &str) -> Option<&str> {
    let at = answer.find(",\"result\":")?;
    answer[at + 10..].trim_end().strip_suffix('}')
}

impl Recorded {
    /// Starts it with its newest height.
    pub(crate) fn start(set: Set) -> Self {
        Self::start_at(set, set.head, set.folder.starts_with("v1.15"))
    }

    /// Starts it with an earlier head, before or after the switch.
    pub(crate) fn start_at(set: Set, head: u64, helicon: bool) -> Self {
        let chain = CHAINS.of(set, Chain::load);
        let state = Arc::new(Mutex::new(State {
            accepted: head,
            executed: head,
            helicon,
            block_receipts: true,
            lies: HashMap::new(),
            latest: None,
            asked_for_latest: 0,
            hold: false,
            cuts: 0,
        }));
        let (changes, changed) = watch::channel(0);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (report, addresses) = std::sync::mpsc::channel();
        let node = Node { chain: Arc::clone(&chain), state: Arc::clone(&state), changed };
        let (acceptor, authority) = certificate();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime starts").block_on(async {
                let listen = || TcpListener::bind("127.0.0.1:0");
                let all = [listen().await, listen().await, listen().await];
                let [plain, https, wss] = all.map(|bound| bound.expect("loopback can be bound"));
                let bound = [&plain, &https, &wss].map(TcpListener::local_addr);
                let bound = bound.map(|address| address.expect("it is bound"));
                report.send(bound).expect("start waits for it");
                tokio::select! {
                    () = node.accept(plain) => {}
                    () = node.accept_tls(https, &acceptor, false) => {}
                    () = node.accept_tls(wss, &acceptor, true) => {}
                    _ = stopped => {}
                }
            });
        });
        let [address, https, wss] = addresses.recv().expect("the node is up");
        let tls = Tls {
            https: format!("https://localhost:{}", https.port()),
            wss: format!("wss://localhost:{}/ext/bc/C/ws", wss.port()),
            authority,
        };
        Self { address, tls, chain, state, changes, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Puts the node behind TLS.
    pub(crate) fn tls(&self) -> &Tls {
        &self.tls
    }

    pub(crate) fn height(&self, at: u64) -> Height {
        self.chain.at(at).expect("it was recorded").clone()
    }

    /// Changes the state, and wakes what waits for a change.
    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changes.send_modify(|count| *count += 1);
    }

    /// The chain grows to `head`, executed at once.
    pub(crate) fn grow(&self, head: u64) {
        self.change(|state| (state.accepted, state.executed) = (head, head));
    }

    /// Returns the number of requests for `latest`.
    pub(crate) fn asked_for_latest(&self) -> u64 {
        lock(&self.state).asked_for_latest
    }

    /// Cuts every WebSocket without a word.
    pub(crate) fn cut(&self) {
        self.change(|state| state.cuts += 1);
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The serving side.
#[derive(Clone)]
struct Node {
    chain: Arc<Chain>,
    state: Arc<Mutex<State>>,
    changed: watch::Receiver<u64>,
}

impl Node {
    fn state(&self) -> State {
        lock(&self.state).clone()
    }

    async fn accept(&self, listener: TcpListener) {
        loop {
            let (stream, _) = listener.accept().await.expect("loopback accepts");
            tokio::spawn(self.clone().connection(stream));
        }
    }

    async fn accept_tls(&self, listener: TcpListener, acceptor: &TlsAcceptor, websocket: bool) {
        loop {
            let (stream, _) = listener.accept().await.expect("loopback accepts");
            let (node, acceptor) = (self.clone(), acceptor.clone());
            tokio::spawn(async move {
                match acceptor.accept(stream).await {
                    Ok(stream) if websocket => node.websocket(stream).await,
                    Ok(stream) => node.http(stream).await,
                    Err(_) => {} // the client does not trust us: a test wants that
                }
            });
        }
    }

    /// HTTP or WebSocket: the first bytes tell.
    async fn connection(self, stream: TcpStream) {
        let mut start = [0; 3];
        if stream.peek(&mut start).await.is_ok_and(|len| len == 3) && start == *b"GET" {
            return self.websocket(stream).await;
        }
        self.http(stream).await;
    }

    async fn http(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let answer = service_fn(|request: Request<Incoming>| {
            let node = self.clone();
            async move {
                let body =
                    request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
                let answer = node.body(&body.unwrap_or_default()).await;
                let response = Response::builder().header("content-type", "application/json");
                Ok::<_, Infallible>(
                    response.body(Full::new(Bytes::from(answer))).expect("constants"),
                )
            }
        });
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
    }

    async fn body(&self, body: &[u8]) -> String {
        while self.state().hold {
            let _ = self.changed.clone().changed().await;
        }
        match serde_json::from_slice(body).expect("neve sends JSON") {
            Value::Array(calls) => {
                let mut answers = Vec::new();
                for call in &calls {
                    answers.push(self.answer(call).await);
                }
                format!("[{}]\n", answers.join(","))
            }
            call => self.answer(&call).await + "\n",
        }
    }

    async fn answer(&self, call: &Value) -> String {
        let id = &call["id"];
        let rest = match self.result(call).await {
            Ok(result) => format!("\"result\":{result}"),
            Err((code, message)) => {
                format!("\"error\":{}", json!({ "code": code, "message": message }))
            }
        };
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{rest}}}")
    }

    async fn result(&self, call: &Value) -> Result<String, (i32, String)> {
        let method = call["method"].as_str().unwrap_or_default();
        let first = &call["params"][0];
        let state = self.state();
        let height = match first.as_str() {
            Some("latest") => {
                lock(&self.state).asked_for_latest += 1;
                if let Some([block, receipts]) = state.latest {
                    return Ok(self.latest(method, block, receipts));
                }
                Some(state.executed)
            }
            text => text.and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()),
        };
        match (method, height) {
            ("eth_chainId", _) => Ok(self.chain.id.to_string()),
            ("eth_blockNumber", _) => Ok(format!("\"{:#x}\"", state.executed)),
            ("eth_getBlockByNumber", Some(height)) => self.block(height, &state),
            ("eth_getHeaderByNumber", Some(height)) => Ok(header(&self.block(height, &state)?)),
            ("eth_getBlockReceipts", Some(height)) if state.block_receipts => {
                Ok(self.receipts(height).await)
            }
            ("eth_getTransactionReceipt", _) => {
                let found = first.as_str().and_then(|hash| self.chain.receipts.get(hash));
                let found = found.filter(|(height, _)| *height <= state.executed);
                Ok(found.map_or("null".to_owned(), |(_, receipt)| receipt.clone()))
            }
            _ => Err((-32601, format!("the method {method} does not exist/is not available"))),
        }
    }

    /// Returns the text for `latest` when it is told to.
    fn latest(&self, method: &str, block: u64, receipts: u64) -> String {
        let at = |height| self.chain.at(height).expect("it was recorded").clone();
        match method {
            "eth_getBlockReceipts" => at(receipts).receipts,
            _ => at(block).block,
        }
    }

    fn block(&self, height: u64, state: &State) -> Result<String, (i32, String)> {
        match self.chain.at(height).filter(|_| height <= state.accepted) {
            Some(found) => Ok(by_rules(&found.block, height, state.helicon)),
            None if state.helicon => Ok("null".to_owned()),
            None => Err((-32000, "cannot query unfinalized data".to_owned())),
        }
    }

    /// Waits until the height is executed, as v1.15 does, if it is accepted.
    async fn receipts(&self, height: u64) -> String {
        loop {
            let state = self.state();
            if height > state.accepted {
                return "null".to_owned();
            }
            if height <= state.executed {
                let lie = state.lies.get(&height).cloned();
                return lie.unwrap_or_else(|| self.chain.heights[height as usize].receipts.clone());
            }
            let _ = self.changed.clone().changed().await;
        }
    }

    /// Sends heads as they are executed, until cut.
    async fn websocket(mut self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
        let cuts = self.state().cuts;
        let mut announced = self.state().executed;
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() {
                break; // the subscription
            }
        }
        let subscribed = r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#;
        let mut alive = socket.send(Message::text(subscribed)).await.is_ok();
        while alive {
            let state = self.state();
            if state.cuts != cuts {
                return; // dropped without a close frame
            }
            while alive && announced < state.executed {
                announced += 1;
                let mut head = json!({ "number": format!("{announced:#x}") });
                if self.chain.newer {
                    head["targetExponent"] = Value::Null;
                }
                let params = json!({ "subscription": "0x1", "result": head });
                let frame =
                    json!({ "jsonrpc": "2.0", "method": "eth_subscription", "params": params });
                alive = socket.send(Message::text(frame.to_string())).await.is_ok();
            }
            tokio::select! {
                changed = self.changed.changed() => alive &= changed.is_ok(),
                frame = socket.next() => alive &= matches!(frame, Some(Ok(_))),
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }
}

/// Returns the block as a node of v1.14 or of v1.15 shows it: only the total difficulty differs.
pub(crate) fn by_rules(block: &str, height: u64, helicon: bool) -> String {
    let shown = if helicon { 0 } else { height };
    let at = block.find("\"totalDifficulty\":\"").expect("a block has it") + 19;
    let end = at + block[at..].find('"').expect("a string ends");
    format!("{}{shown:#x}{}", &block[..at], &block[end..])
}

/// The header of a block, as an answer: four members fewer, sorted.
fn header(block: &str) -> String {
    let mut block: Value = serde_json::from_str(block).expect("a block is JSON");
    if let Value::Object(members) = &mut block {
        for key in ["blockExtraData", "size", "transactions", "uncles"] {
            members.remove(key);
        }
    }
    block.to_string()
}
