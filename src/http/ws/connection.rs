//! A WebSocket: answers its messages, sends notifications of its subscriptions, and detects when
//! its client is gone.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use neve_store::residency::{self, Cold};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::close::CloseReason;
use super::message_reader::{MessageReader, Socket};
use super::notification::answer;
use super::upgrade::Accepted;
use super::upstream::{Relaying, UpstreamSocket, next};
use super::write_stall::{WriteStall, write};
use crate::body::{BodyBuilder, ResponseBody};
use crate::config::settings::WsLimits;
use crate::http::access::{AccessEntry, CalledMethods, MessageAccess};
use crate::http::answer::{Lender, Responder};
use crate::http::keys::{ClientKey, KeyRefusal};
use crate::http::relay::Relayer;
use crate::http::response::ResponseWriter;
use crate::http::socket::HyperSocket;
use crate::http::{NotDone, Offload, draining};
use crate::relay::{Failure, Hops};
use crate::rpc::cursors::Subscriptions;
use crate::rpc::{Calls, LONG_BODY, Purpose, Rpc, WsResponse};
use crate::shared::{Began, ClientAddress, Reservation, Work, WsClose, add};

/// Read buffer that a connection keeps; a longer message takes more while it comes.
const READ_BUFFER: usize = 1 << 10;
/// Bytes that the kernel keeps unsent for a client that does not read. Its default would be megabytes.
const UNSENT_MAX: u32 = 128 << 10;
/// Maximum time of the closing handshake when neve ends.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Serves a connection until it ends.
pub(crate) async fn run(
    accepted: Accepted,
    (socket, read): (HyperSocket, Bytes),
    responder: &Responder,
    limits: WsLimits,
    relay: Option<&Relayer>,
    mut drain: watch::Receiver<bool>,
) {
    let rpc = &responder.rpc;
    let socket = open(socket, read, accepted.client, limits).await;
    add(&rpc.counters.ws_opened, 1);
    let mut session = WsConnection::new(accepted, socket, responder, limits, relay);
    // Draining ends the session at any point: a client that does not read must not delay the end.
    let ended = tokio::select! {
        Err(ended) = session.serve() => ended,
        () = draining(&mut drain) => CloseReason::told(WsClose::Drain, CloseCode::Away, "the server stops"),
    };
    rpc.counters.ws_end(ended.reason());
    session.subscriptions = Subscriptions::default(); // no notifications during the close
    session.upstream = None;
    close(ended, &mut session.socket, drain).await;
}

/// Closes a connection. Once neve drains, the client has little time for the closing handshake.
async fn close(ended: CloseReason, socket: &mut Socket, mut drain: watch::Receiver<bool>) {
    let soon = async {
        draining(&mut drain).await;
        sleep(CLOSE_WITHIN).await;
    };
    tokio::select! {
        () = ended.close(socket) => {}
        () = soon => {}
    }
}

/// Turns a connection into a WebSocket that begins with the bytes `read`.
async fn open(
    mut tcp: HyperSocket,
    read: Bytes,
    client: ClientAddress,
    limits: WsLimits,
) -> Socket {
    tcp.turn_into_websocket(client, UNSENT_MAX);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        // Each write goes to the socket at once, so tungstenite keeps no unsent bytes outside the budget.
        .write_buffer_size(0)
        .max_message_size(Some(limits.message_bytes_max))
        .max_frame_size(Some(limits.message_bytes_max));
    // A copy: hyper's buffer has the capacity of a whole request head, and would live as long as the socket.
    let (io, begin) = (MessageReader::new(tcp, &read), read.to_vec());
    drop(read);
    WebSocketStream::from_partially_read(io, begin, Role::Server, Some(config)).await
}

/// A WebSocket, its subscriptions, and its work in flight.
pub(super) struct WsConnection<'r> {
    pub(super) rpc: &'r Arc<Rpc>,
    pub(super) offload: &'r Offload,
    /// Lender of heights below the served range, if there is one.
    pub(super) lender: Option<&'r Lender>,
    /// Messages that wait for such heights.
    pub(super) lending: FuturesUnordered<LendingMessage<'r>>,
    pub(super) address: ClientAddress,
    pub(super) socket: Socket,
    pub(super) subscriptions: Subscriptions,
    pub(super) limits: WsLimits,
    /// Notifications that are not written yet.
    pub(super) news: BodyBuilder,
    /// Time when a frame was last sent.
    pub(super) sent: Instant,
    /// Time of the last ping, if nothing came since.
    asked: Option<Instant>,
    pub(super) pace: WriteStall,
    pub(super) relay: Option<&'r Relayer>,
    /// Responses of upstreams that are waited for; nothing if clients use too much memory.
    pub(super) relaying: FuturesUnordered<Relaying<'r>>,
    /// The socket to an upstream, if it has subscriptions there.
    pub(super) upstream: Option<UpstreamSocket>,
    /// Neves that the client came through, unless it may not be relayed.
    pub(super) hops: Result<Hops, Failure>,
    /// The key that the client named, if it needs one.
    key: Option<ClientKey>,
    /// Entries of its messages, if they have any.
    access: Option<MessageAccess>,
}

/// A message that was lent heights.
pub(super) struct LentMessage {
    /// Parts with which a thread answers the message.
    pub(super) rpc: Rpc,
    pub(super) body: Bytes,
    pub(super) began: Began,
    pub(super) entry: Option<AccessEntry>,
    pub(super) _held: Option<Reservation>,
}

/// Heights of a message in flight.
type LendingMessage<'r> = Pin<Box<dyn Future<Output = LentMessage> + Send + 'r>>;

impl<'r> WsConnection<'r> {
    fn new(
        accepted: Accepted,
        socket: Socket,
        responder: &'r Responder,
        limits: WsLimits,
        relay: Option<&'r Relayer>,
    ) -> Self {
        let rpc = &responder.rpc;
        Self {
            rpc,
            offload: &responder.offload,
            lender: responder.lender.as_ref(),
            lending: FuturesUnordered::new(),
            address: accepted.client,
            socket,
            subscriptions: Subscriptions::new(limits.subscriptions_max, Arc::clone(&rpc.counters)),
            limits,
            news: BodyBuilder::default(),
            sent: Instant::now(),
            asked: None,
            pace: WriteStall::default(),
            relay,
            relaying: FuturesUnordered::new(),
            upstream: None,
            hops: accepted.hops,
            key: accepted.key,
            access: accepted.access,
        }
    }
}

impl WsConnection<'_> {
    /// Serves until there is a reason to close. Each turn takes a frame, or waits for news, and then sends a burst of
    /// notifications: neither side can starve the other.
    async fn serve(&mut self) -> Result<Infallible, CloseReason> {
        let mut heads = self.rpc.serving.heads();
        let mut more = false;
        loop {
            let alarm = self.alarm();
            let turn = tokio::select! {
                biased;
                // Responses come before frames, which may arrive without a pause and would starve them.
                Some(relayed) = self.relaying.next() => self.take_relayed(relayed).await,
                // Boxed because it is rare: otherwise the future of each connection has space for it.
                Some(lent) = self.lending.next() => Box::pin(self.answer_lent(lent)).await,
                frame = self.socket.next() => self.take_next(frame).await,
                event = next(&mut self.upstream) => self.pass_on(event).await,
                // A replay of a long range waits for nothing else, so it takes turns with the others.
                () = self.rpc.replays.turn(), if more => Ok(()),
                _ = heads.changed(), if !more && !self.subscriptions.is_empty() => Ok(()),
                () = sleep_until(alarm) => self.keep_alive().await,
            };
            turn?;
            more = self.announce().await?;
        }
    }

    fn alarm(&self) -> Instant {
        self.asked.unwrap_or(self.sent) + self.limits.ping_interval
    }

    /// Sends a ping. If the last one had no answer, the connection ends.
    async fn keep_alive(&mut self) -> Result<(), CloseReason> {
        self.check_key()?;
        if self.asked.is_some() {
            return Err(CloseReason::Silently(WsClose::PingTimeout));
        }
        self.send(Message::Ping(Vec::new().into())).await?;
        self.asked = Some(self.sent);
        Ok(())
    }

    /// Ends the connection if a reload has removed its key.
    pub(super) fn check_key(&self) -> Result<(), CloseReason> {
        match &self.key {
            Some(key) if !key.is_known() => Err(CloseReason::key()),
            _ => Ok(()),
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), CloseReason> {
        self.socket.send(message).await?;
        self.sent = Instant::now();
        Ok(())
    }

    /// Takes the next frame, if the client has not left.
    async fn take_next(
        &mut self,
        frame: Option<Result<Message, Error>>,
    ) -> Result<(), CloseReason> {
        let frame = frame.ok_or(CloseReason::Silently(WsClose::Client))??;
        self.asked = None; // any frame shows that the client is there, not the pong alone
        match frame {
            Message::Text(text) => self.take_message(text.into()).await,
            Message::Binary(bytes) => self.take_message(bytes).await,
            Message::Close(frame) => Err(CloseReason::Closed(frame.map(|frame| frame.code))),
            // tungstenite queued a pong. It must be sent before the next read: otherwise pongs
            // for a client that does not read pile up.
            _ => Ok(self.socket.flush().await?),
        }
    }

    /// Answers a message, unless the client's key does not allow it.
    async fn take_message(&mut self, body: Bytes) -> Result<(), CloseReason> {
        let entry = self.begin_entry(&body).await;
        if let Some(refusal) = self.refusal(&body).await? {
            // The reservation ends with the bytes that it covers.
            drop(body);
            self.socket.get_mut().message_ends();
            return self.finish(ResponseBody::from(refusal), entry).await;
        }
        self.answer_message(body, entry).await
    }

    /// Begins the entry of a message in the access log, if it has one.
    async fn begin_entry(&mut self, body: &Bytes) -> Option<AccessEntry> {
        let entry = self.access.as_ref()?.begin(body.len());
        if entry.is_logged() {
            let called = CalledMethods::read(self.rpc, self.offload, body, self.address).await;
            entry.note_body(body.len(), called);
        }
        Some(entry)
    }

    /// Answers a message. Prices that an upstream gives, and lent heights, are fetched if it needs them.
    async fn answer_message(
        &mut self,
        body: Bytes,
        entry: Option<AccessEntry>,
    ) -> Result<(), CloseReason> {
        let began = Began::now();
        let mut priced = None;
        let (mut frame, mut calls) = self.answer(self.rpc, &body, began).await?;
        if matches!(frame, WsResponse::Prices) {
            let rpc = priced.insert(Arc::new(self.rpc.with_prices(began).await));
            (frame, calls) = self.answer(rpc, &body, began).await?;
        }
        if matches!(frame, WsResponse::Below) {
            let rpc = priced.as_ref().unwrap_or(self.rpc);
            let lent = self.lend(rpc, &body, began, entry);
            self.socket.get_mut().message_ends();
            return lent;
        }
        drop(body);
        self.socket.get_mut().message_ends();
        self.conclude(frame, calls, began, entry).await
    }

    /// Counts the calls of a message, and sends its response.
    pub(super) async fn conclude(
        &mut self,
        frame: WsResponse,
        calls: Calls,
        began: Began,
        entry: Option<AccessEntry>,
    ) -> Result<(), CloseReason> {
        if let Some(entry) = &entry {
            entry.note_source(calls.source());
        }
        calls.count(&self.rpc.counters, began.elapsed());
        // Before the response: an `eth_unsubscribe` of the message ends a subscription at the
        // upstream, too.
        self.end_relayed();
        self.respond(frame, entry).await
    }

    /// Returns the response to a message that the client's key does not allow.
    async fn refusal(&mut self, body: &Bytes) -> Result<Option<Vec<u8>>, CloseReason> {
        let Some(key) = self.key.clone() else { return Ok(None) };
        self.check_key()?;
        let items_max = self.rpc.limits.batch_items_max;
        // A longer body takes long to parse: the other connections of this thread would wait.
        if body.len() <= LONG_BODY {
            return Ok(key.admit(body, items_max).err().map(KeyRefusal::text));
        }
        let (class, body) = (self.rpc.class(body), body.clone());
        let admit = move || key.admit(&body, items_max);
        match self.offload.run(class, self.address, admit).await {
            Ok(admitted) => Ok(admitted.err().map(KeyRefusal::text)),
            Err(NotDone::Full) => Err(busy()),
            Err(NotDone::Failed) => Err(CloseReason::Silently(WsClose::Malformed)),
        }
    }

    pub(super) async fn respond(
        &mut self,
        frame: WsResponse,
        entry: Option<AccessEntry>,
    ) -> Result<(), CloseReason> {
        match frame {
            WsResponse::Relay(call) if call.purpose == Purpose::Subscription => {
                self.subscribe_upstream(call, entry).await
            }
            relayed @ (WsResponse::Relay(_) | WsResponse::Split(_)) => {
                self.relay(relayed, entry);
                Ok(())
            }
            WsResponse::Served(body) => self.finish(body, entry).await,
            WsResponse::Nothing => Ok(()),
            WsResponse::Last(body) => self.finish_last(body, entry).await,
            // Both were fetched before, once for a message.
            WsResponse::Prices | WsResponse::Below => Err(busy()),
            WsResponse::NotUtf8 => Err(CloseReason::not_utf8()),
            WsResponse::NoMemory => Err(CloseReason::no_memory()),
        }
    }

    /// Writes the last response of a connection, if there is one, and ends the connection.
    async fn finish_last(
        &mut self,
        body: Option<ResponseBody>,
        entry: Option<AccessEntry>,
    ) -> Result<(), CloseReason> {
        if let Some(body) = body {
            self.finish(body, entry).await?;
        }
        Err(CloseReason::Silently(WsClose::Malformed))
    }

    /// Answers a message by `rpc`, here or on a thread that may wait for the disk.
    async fn answer(
        &mut self,
        rpc: &Arc<Rpc>,
        body: &Bytes,
        began: Began,
    ) -> Result<(WsResponse, Calls), CloseReason> {
        match self.answer_if_resident(rpc, body) {
            Ok(answered) => Ok(answered), // nearly always
            Err(Cold) => self.answer_offloaded(Arc::clone(rpc), body.clone(), began).await,
        }
    }

    /// Answers a message unless that takes the disk or long.
    fn answer_if_resident(&mut self, rpc: &Rpc, body: &[u8]) -> Result<(WsResponse, Calls), Cold> {
        if body.len() > LONG_BODY {
            return Err(Cold);
        }
        let work = Work::here(rpc.limits.work);
        let (subscriptions, address) = (&mut self.subscriptions, self.address);
        let answer = || rpc.answer_frame(body, subscriptions, address, &work);
        residency::if_sendable(answer)
    }

    /// Writes the response to a message, which ends its entry.
    pub(super) async fn finish(
        &mut self,
        body: ResponseBody,
        entry: Option<AccessEntry>,
    ) -> Result<(), CloseReason> {
        let len = body.len() as u64;
        let written = self.write(answer(body)).await;
        if let Some(entry) = entry {
            entry.ends(if written.is_ok() { len } else { 0 }, written.is_ok());
        }
        written
    }

    /// Writes a response, and notes the time, from which on the next ping is due.
    pub(super) async fn write(&mut self, out: ResponseWriter) -> Result<(), CloseReason> {
        write(&mut self.socket, out).await?;
        self.sent = Instant::now();
        Ok(())
    }
}

/// Closes because too much waits.
pub(super) fn busy() -> CloseReason {
    let reason = "too many requests wait for an answer; try again later";
    CloseReason::told(WsClose::Busy, CloseCode::Again, reason)
}
