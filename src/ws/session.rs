//! One connection: answers what it asks, sends what it has subscribed to, and knows when it is
//! dead.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::{OnUpgrade, Upgraded};
use neve_chain::HeadForm;
use neve_jsonrpc::Rules;
use neve_store::residency;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tracing::debug;

use super::end::Ended;
use super::incoming::Incoming;
use super::notification::notification;
use super::pace::Pace;
use super::subscriptions::{Held, Subscriptions, Topic};
use crate::http::{Calls, Frame, Rpc, Socket as Tcp, draining};
use crate::logs::logs;
use crate::parts::{HEADER, RECEIPTS, SPANS, readable};
use crate::room::Room;
use crate::tally::{WsEnd, WsKind, add};

/// What a connection may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of a message that comes in (libevm, `rpc/websocket.go`: 32 MiB).
    pub(crate) message_bytes_max: usize,
    /// Bytes of messages that come in, of all connections together. A node has no such limit.
    pub(crate) messages_bytes_max: usize,
    /// Subscriptions.
    pub(crate) subscriptions_max: usize,
    /// Heights that a subscriber who was at the head may fall behind.
    pub(crate) lag_max: u64,
    /// A ping after so long without a frame to the client, and the end after so long without an
    /// answer to it (libevm, `rpc/websocket.go`: both 30 s).
    pub(crate) ping_interval: Duration,
}

/// What a connection keeps to read into; a longer message takes what it needs while it comes.
const READ_BUFFER: usize = 1 << 10;
/// Bytes after which messages are written though more are to come. A height's are written when it
/// is told in any case; this bounds what a range that is replayed keeps in memory.
const WRITE_BUFFER: usize = 4 << 10;
/// Bytes that the system may keep unsent for a client that does not read: it would take megabytes.
const UNSENT_MAX: u32 = 128 << 10;
/// Heights that are told between two looks at what the client says.
const BURST: usize = 64;
/// Heights below the head that are in memory, as they were written a moment ago.
const LATELY: u64 = 16;
/// What closing may take when all is to end.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

pub(super) type Socket = WebSocketStream<Incoming>;

/// Serves a connection until it ends.
pub(crate) async fn run(
    upgrade: OnUpgrade,
    rpc: &Arc<Rpc>,
    limits: Limits,
    room: &Arc<Room>,
    mut drain: watch::Receiver<bool>,
) {
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => return debug!(%error, "a WebSocket was not opened"),
    };
    let Some(socket) = open(upgraded, limits, room).await else { return };
    add(&rpc.tally.ws_opened, 1);
    let subscriptions = Subscriptions::new(limits.subscriptions_max, Arc::clone(&rpc.tally));
    let (sent, pace) = (Instant::now(), Pace::default());
    let mut session = Session { rpc, socket, subscriptions, limits, sent, asked: None, pace };
    // Whatever it is doing: a client that does not read must not hold up the end.
    let ended = tokio::select! {
        ended = session.serve() => ended,
        () = draining(&mut drain) => Ended::told(WsEnd::Drain, CloseCode::Away, "the server stops"),
    };
    rpc.tally.ws_end(ended.reason());
    session.subscriptions = Subscriptions::default(); // whoever lingers is told nothing
    let soon = async {
        draining(&mut drain).await;
        sleep(CLOSE_WITHIN).await;
    };
    tokio::select! {
        () = ended.close(&mut session.socket) => {}
        () = soon => {}
    }
}

/// The connection without what HTTP needs; `None` never happens.
async fn open(upgraded: Upgraded, limits: Limits, room: &Arc<Room>) -> Option<Socket> {
    let mut parts = upgraded.downcast::<Tcp>().ok()?;
    parts.io.turn_into_websocket(UNSENT_MAX);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(Some(limits.message_bytes_max))
        .max_frame_size(Some(limits.message_bytes_max));
    let (came, longest) = (parts.read_buf.len(), limits.message_bytes_max);
    let (io, read): (_, Vec<u8>) =
        (Incoming::new(parts.io, came, longest, room), parts.read_buf.into());
    Some(WebSocketStream::from_partially_read(io, read, Role::Server, Some(config)).await)
}

struct Session<'r> {
    rpc: &'r Arc<Rpc>,
    socket: Socket,
    subscriptions: Subscriptions,
    limits: Limits,
    /// When a frame was last sent.
    sent: Instant,
    /// When it was asked whether anybody is there, if nothing came since.
    asked: Option<Instant>,
    pace: Pace,
}

impl Session<'_> {
    /// Each turn takes a frame, or waits for a reason to tell something, and then tells a burst:
    /// neither side can starve the other.
    async fn serve(&mut self) -> Ended {
        let mut heads = self.rpc.serving.heads();
        let mut more = false;
        loop {
            let alarm = self.alarm();
            let turn = tokio::select! {
                biased;
                frame = self.socket.next() => match frame {
                    Some(Ok(frame)) => self.take(frame).await,
                    Some(Err(error)) => Err(error.into()),
                    None => Err(Ended::Silently(WsEnd::Client)),
                },
                // Others have their turn: a long range may have nothing to wait for.
                () = tokio::task::yield_now(), if more => Ok(()),
                _ = heads.changed(), if !more && !self.subscriptions.is_empty() => Ok(()),
                () = sleep_until(alarm) => self.keep_alive().await,
            };
            let told = match turn {
                Ok(()) => self.announce().await,
                Err(ended) => return ended,
            };
            match told {
                Ok(left) => more = left,
                Err(ended) => return ended,
            }
        }
    }

    fn alarm(&self) -> Instant {
        self.asked.unwrap_or(self.sent) + self.limits.ping_interval
    }

    /// Asks whether anybody is there; without an answer, nobody is.
    async fn keep_alive(&mut self) -> Result<(), Ended> {
        if self.asked.is_some() {
            return Err(Ended::Silently(WsEnd::Ping));
        }
        self.send(Message::Ping(Vec::new().into())).await?;
        self.asked = Some(self.sent);
        Ok(())
    }

    async fn send(&mut self, message: Message) -> Result<(), Ended> {
        self.socket.send(message).await?;
        self.sent = Instant::now();
        Ok(())
    }

    async fn take(&mut self, message: Message) -> Result<(), Ended> {
        self.asked = None;
        let body: Bytes = match message {
            Message::Text(text) => text.into(),
            Message::Binary(bytes) => bytes,
            Message::Close(_) => return Err(Ended::Closed),
            control => {
                self.socket.get_mut().control(&control.into_data());
                // A ping was answered: nothing more is read before that is sent, or answers that
                // the client does not read would pile up.
                return Ok(self.socket.flush().await?);
            }
        };
        self.socket.get_mut().message();
        let answer = || self.rpc.answer_frame(&body, &mut self.subscriptions);
        let (frame, calls) = match residency::if_resident(answer) {
            Some(answered) => answered, // nearly always
            None => self.answer_elsewhere(body).await,
        };
        calls.count(&self.rpc.tally);
        match frame {
            Frame::Answer(text) => self.send(Message::text(text)).await,
            Frame::Nothing => Ok(()),
            Frame::Last(text) => {
                if let Some(text) = text {
                    self.send(Message::text(text)).await?;
                }
                Err(Ended::Silently(WsEnd::Malformed))
            }
        }
    }

    /// On a thread that may wait for the disk; nobody is told anything meanwhile.
    async fn answer_elsewhere(&mut self, body: Bytes) -> (Frame, Calls) {
        add(&self.rpc.tally.handed_over, 1);
        let (rpc, mut subscriptions) =
            (Arc::clone(self.rpc), std::mem::take(&mut self.subscriptions));
        let answering = spawn_blocking(move || {
            let answered = residency::loading(|| rpc.answer_frame(&body, &mut subscriptions));
            (answered, subscriptions)
        });
        match answering.await {
            Ok((answered, subscriptions)) => {
                self.subscriptions = subscriptions;
                answered
            }
            // The pool takes nothing more when the server is about to end.
            Err(_) => (Frame::Last(None), Calls::default()),
        }
    }

    /// Has what is told of a height in memory. What was published just now is.
    async fn load(&self, height: u64, head: u64) {
        if height + LATELY > head {
            return;
        }
        let parts: &[usize] =
            if self.subscriptions.have_logs() { &[HEADER, SPANS, RECEIPTS] } else { &[HEADER] };
        let reader = self.rpc.serving.reader.clone();
        let look = move || {
            let record = reader.record(height)?;
            record.load_head();
            let looked = parts.iter().filter_map(|part| readable(&record, *part));
            looked.for_each(|slice| slice.load());
            Some(())
        };
        if residency::if_resident(&look).is_none() {
            // If it fails, this thread waits when it reads.
            let _ = spawn_blocking(move || residency::loading(look)).await;
        }
    }

    /// Tells what is due, up to a burst of it. True if there is more.
    async fn announce(&mut self) -> Result<bool, Ended> {
        if self.subscriptions.is_empty() {
            return Ok(false);
        }
        let mut fed = false;
        for _ in 0..BURST {
            let Some(range) = self.rpc.serving.reader.range() else { break };
            let (first, head) = (*range.start(), *range.end());
            let Some(height) = self.subscriptions.due(first, head) else {
                self.pace.at_head();
                if fed {
                    self.pace.of(self.socket.flush()).await?;
                }
                return Ok(false);
            };
            self.check_pace(height, first, head)?;
            self.load(height, head).await;
            fed |= self.tell(height, first, head).await?;
        }
        self.pace.of(self.socket.flush()).await?;
        Ok(true)
    }

    /// Who does not keep up is cut off; it can come back and resume.
    fn check_pace(&mut self, height: u64, first: u64, head: u64) -> Result<(), Ended> {
        let lag = self.subscriptions.lag(head);
        if height < first {
            let reason = format!("too slow: block {height:#x} is not held any more");
            return Err(Ended::told(WsEnd::Slow, CloseCode::Policy, reason));
        }
        if self.pace.is_too_slow(lag, self.limits.lag_max) {
            let reason = format!("too slow: {lag} blocks behind");
            return Err(Ended::told(WsEnd::Slow, CloseCode::Policy, reason));
        }
        Ok(())
    }

    /// Tells a height to all who are to hear of it. True if a frame came of it.
    async fn tell(&mut self, height: u64, first: u64, head: u64) -> Result<bool, Ended> {
        let serving = &self.rpc.serving;
        let Some(record) = serving.reader.record(height) else {
            // Evicted or withdrawn in this moment, which the next look finds; or damaged.
            let held = serving.reader.range().is_some_and(|range| range.contains(&height));
            let damaged = held && serving.reader.record(height).is_none();
            return if damaged { Err(unreadable(height)) } else { Ok(false) };
        };
        let helicon = serving.rules() == Rules::Helicon || self.rpc.status.helicon_heads();
        let form = if helicon { HeadForm::V1_15 } else { HeadForm::V1_14 };
        let mut fed = false;
        for Held { id, topic, .. } in self.subscriptions.tell(height, first, head) {
            match topic {
                Topic::Heads => {
                    let text = serving.head_texts.of(&record, form, head);
                    let text = text.ok_or_else(|| unreadable(height))?;
                    self.pace.of(self.socket.feed(notification(id, &text))).await?;
                    self.rpc.tally.ws_notified(WsKind::Heads);
                    fed = true;
                }
                Topic::Logs(wanted, last) if last.is_none_or(|last| height <= last) => {
                    for log in logs(&serving.reader, wanted.clone(), height..=height) {
                        let log = log.map_err(|_| unreadable(height))?;
                        let text =
                            std::str::from_utf8(log.as_ref()).map_err(|_| unreadable(height))?;
                        self.pace.of(self.socket.feed(notification(id, text))).await?;
                        self.rpc.tally.ws_notified(WsKind::Logs);
                        fed = true;
                    }
                }
                Topic::Logs(..) => {}
            }
        }
        if fed {
            self.sent = Instant::now();
        }
        Ok(fed)
    }
}

fn unreadable(height: u64) -> Ended {
    Ended::told(WsEnd::Damaged, CloseCode::Error, format!("block {height:#x} cannot be read"))
}
