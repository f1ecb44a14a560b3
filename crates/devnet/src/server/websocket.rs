//! WebSockets: calls as over HTTP, and subscriptions.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{
        CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use neve_jsonrpc::{Request as Calls, parse};
use tokio::{
    sync::broadcast,
    task::JoinSet,
    time::{Interval, MissedTickBehavior, interval},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message,
        error::CapacityError,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::body::{HttpResponse, ReplyBody, text};
use super::shared::{CONNECTIONS_MAX, Shared};
use super::subscriptions::Subscriptions;
use crate::counters::add;
use crate::faults::{Fault, false_head};

/// Longest message, as avalanchego bounds it.
const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// Calls of a connection that are being answered; meanwhile nothing more is read.
const CALLS_MAX: usize = 64;
/// Time between pings.
const PING: Duration = Duration::from_secs(30);

type Stream = WebSocketStream<TokioIo<Upgraded>>;

/// Answers an attempt to open a WebSocket.
pub(crate) async fn upgrade(shared: Arc<Shared>, mut request: Request<Incoming>) -> HttpResponse {
    if shared.node.faults.strikes(&Fault::NoWebSocket, &[]) {
        return text(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    let Some(key) = key(&request) else { return refusal(&request) };
    shared.node.until_answering().await;
    let open = shared.counters.open_websockets.load(Ordering::Relaxed);
    if open >= CONNECTIONS_MAX as u64 {
        return text(StatusCode::SERVICE_UNAVAILABLE, "too many connections\n");
    }
    let upgraded = hyper::upgrade::on(&mut request);
    // The connection is handed over only once the answer below is sent.
    tokio::spawn(async move {
        if let Ok(upgraded) = upgraded.await {
            run(upgraded, &shared).await;
        }
    });
    switching(&derive_accept_key(&key))
}

/// The key of the handshake, if it is one.
fn key(request: &Request<Incoming>) -> Option<Vec<u8>> {
    let version = has(request.headers(), &SEC_WEBSOCKET_VERSION, "13");
    let shaken = request.method() == Method::GET && asks(request) && version;
    let key = request.headers().get(SEC_WEBSOCKET_KEY).filter(|_| shaken)?;
    Some(key.as_bytes().to_vec())
}

fn asks(request: &Request<Incoming>) -> bool {
    let headers = request.headers();
    has(headers, &CONNECTION, "upgrade") && has(headers, &UPGRADE, "websocket")
}

fn refusal(request: &Request<Incoming>) -> HttpResponse {
    let mut answer = if request.method() != Method::GET && asks(request) {
        text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n")
    } else {
        text(StatusCode::BAD_REQUEST, "Bad Request\n")
    };
    // gorilla's upgrader says it with each refusal.
    answer.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    answer
}

/// True if one of the comma-separated values of a header is this one.
fn has(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(wanted))
}

fn switching(accept: &str) -> HttpResponse {
    let mut answer = Response::new(ReplyBody::new(Bytes::new(), true));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(accept) = HeaderValue::from_str(accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    answer
}

/// Serves a WebSocket until it ends, or is cut: then without a word.
async fn run(upgraded: Upgraded, shared: &Arc<Shared>) {
    add(&shared.counters.websockets);
    let number = shared.counters.websockets.load(Ordering::Relaxed);
    let _open = Open::new(shared);
    let mut cuts = shared.node.cuts();
    let mut shutdown = shared.shutdown.clone();
    let socket = OpenWebSocket::of(upgraded, shared, number).await;
    tokio::select! {
        () = socket.serve() => {}
        _ = cuts.changed() => {}
        _ = shutdown.wait_for(|end| *end) => {}
        () = refused(shared) => {}
    }
}

/// Waits until the server refuses connections.
async fn refused(shared: &Shared) {
    let mut changes = shared.node.faults.changes();
    while !shared.refuses() && changes.changed().await.is_ok() {}
}

/// Waits while WebSockets are to be silent.
async fn until_speaking(shared: &Shared) {
    if shared.node.faults.strikes(&Fault::SilentWebSocket, &[]) {
        shared.node.faults.until_cleared(&Fault::SilentWebSocket).await;
    }
}

/// Clock of the pings.
fn pings() -> Interval {
    let mut pings = interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick would come at once.
    pings.reset();
    pings
}

/// Counts a WebSocket as long as it is open.
struct Open<'s>(&'s Shared);

impl<'s> Open<'s> {
    fn new(shared: &'s Shared) -> Self {
        add(&shared.counters.open_websockets);
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.counters.open_websockets.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open WebSocket.
struct OpenWebSocket<'s> {
    stream: Stream,
    shared: &'s Arc<Shared>,
    heads: broadcast::Receiver<Bytes>,
    subscriptions: Subscriptions,
    /// Calls that are being answered: they overtake one another, as on the node.
    calls: JoinSet<Vec<u8>>,
}

impl<'s> OpenWebSocket<'s> {
    /// Speaks WebSocket over a connection that was handed over. `number` is that of the WebSocket.
    async fn of(upgraded: Upgraded, shared: &'s Arc<Shared>, number: u64) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let socket = TokioIo::new(upgraded);
        Self {
            stream: Stream::from_raw_socket(socket, Role::Server, Some(config)).await,
            shared,
            heads: shared.node.heads(),
            subscriptions: Subscriptions::new(number),
            calls: JoinSet::new(),
        }
    }

    async fn serve(mut self) {
        let mut changes = self.shared.node.faults.changes();
        let mut pings = pings();
        loop {
            until_speaking(self.shared).await;
            let busy = self.calls.len() >= CALLS_MAX;
            // Answers first: that to a subscription comes before what is subscribed to.
            let goes_on = tokio::select! {
                biased;
                _ = changes.changed() => true,
                Some(Ok(answer)) = self.calls.join_next() => self.send(answer).await,
                head = self.heads.recv() => match head {
                    Ok(head) => self.notify(&head).await,
                    Err(_) => false, // too slow, or the node is gone
                },
                message = self.stream.next(), if !busy => self.incoming(message).await,
                _ = pings.tick() => self.stream.send(Message::Ping(Bytes::new())).await.is_ok(),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Takes a message, or the reason why none comes; false ends the connection.
    async fn incoming(&mut self, message: Option<tungstenite::Result<Message>>) -> bool {
        match message {
            Some(Ok(message)) => self.message(message).await,
            Some(Err(error)) => self.fail(&error).await,
            None => false,
        }
    }

    /// Takes a message; false ends the connection.
    async fn message(&mut self, message: Message) -> bool {
        let text = match message {
            Message::Text(text) => Bytes::from(text),
            Message::Binary(bytes) => bytes,
            Message::Close(_) => return false,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => return true,
        };
        let request = parse(&text);
        if matches!(request, Calls::Empty | Calls::Malformed) {
            return false;
        }
        let before = self.subscriptions.len();
        let given = self.subscriptions.calls(&request, &text);
        if given.is_empty() {
            let rpc = self.shared.rpc.clone();
            // Parsed again there: what was parsed borrows from the text, which moves.
            self.calls.spawn(async move { rpc.body(&parse(&text), &[]).await.body });
            return true;
        }
        self.note_subscription(before);
        let answer = self.shared.rpc.body(&request, &given).await.body;
        self.send(answer).await
    }

    /// Notes a new subscription, if there are more than `before`.
    fn note_subscription(&mut self, before: usize) {
        if self.subscriptions.len() <= before {
            return;
        }
        add(&self.shared.counters.subscriptions);
        // Heads from before the first subscription belong to none.
        if before == 0 {
            self.heads = self.heads.resubscribe();
        }
    }

    /// Sends an answer. Here every one ends with a newline.
    async fn send(&mut self, mut answer: Vec<u8>) -> bool {
        if answer.is_empty() {
            return true;
        }
        if !answer.ends_with(b"\n") {
            answer.push(b'\n');
        }
        let text = String::from_utf8_lossy(&answer).into_owned();
        self.stream.send(Message::text(text)).await.is_ok()
    }

    async fn notify(&mut self, head: &[u8]) -> bool {
        let ahead = self.shared.node.faults.take(&[], |fault| match fault {
            Fault::FalseHead(ahead) => Some(*ahead),
            _ => None,
        });
        let forged = ahead.and_then(|ahead| false_head(head, ahead));
        let head = forged.as_deref().unwrap_or(head);
        for notification in self.subscriptions.notifications(head) {
            // Before it is sent, so that who has received it finds it counted.
            add(&self.shared.counters.heads);
            if self.stream.send(Message::text(notification)).await.is_err() {
                return false;
            }
        }
        true
    }

    async fn fail(&mut self, error: &tungstenite::Error) -> bool {
        if let tungstenite::Error::Capacity(CapacityError::MessageTooLong { .. }) = error {
            let frame = CloseFrame { code: CloseCode::Size, reason: "".into() };
            // It ends in any case.
            let _ = self.stream.close(Some(frame)).await;
        }
        false
    }
}
