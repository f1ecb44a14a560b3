//! One connection: answers what it asks, sends what it has subscribed to, and knows when it is
//! dead.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tracing::debug;

use super::subscriptions::{Held, Subscriptions, Topic};
use crate::http::{Frame, Rpc, draining};
use crate::logs::logs;

/// What a connection may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "a limit's name ends in max, everywhere")]
pub(crate) struct Limits {
    /// Bytes of a message that comes in (libevm, `rpc/websocket.go`: 32 MiB).
    pub(crate) message_bytes_max: usize,
    /// Subscriptions.
    pub(crate) subscriptions_max: usize,
    /// Heights that a subscriber who was at the head may fall behind.
    pub(crate) lag_max: u64,
}

/// As the node: a ping after so long without a frame to the client…
const PING_AFTER: Duration = Duration::from_secs(30);
/// … and the end after so long without a frame from it.
const PONG_WITHIN: Duration = Duration::from_secs(30);
/// A message is written when a height is told, not before; this bounds what is kept until then.
const BUFFER: usize = 16 << 10;
/// Heights that are told between two looks at what the client says.
const BURST: usize = 64;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Why a connection ends.
enum Ended {
    /// The client, or the network, ended it.
    Gone(Error),
    /// It is told why, in a close frame.
    Told(CloseCode, String),
    /// Without a word, as the node.
    Silently,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        match error {
            Error::Capacity(CapacityError::MessageTooLong { .. }) => {
                Self::Told(CloseCode::Size, String::new())
            }
            error => Self::Gone(error),
        }
    }
}

/// Serves a connection until it ends.
pub(crate) async fn run(
    upgrade: OnUpgrade,
    rpc: &Rpc,
    limits: Limits,
    drain: watch::Receiver<bool>,
) {
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => return debug!(%error, "a WebSocket was not opened"),
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(4 << 10)
        .write_buffer_size(BUFFER)
        .max_message_size(Some(limits.message_bytes_max))
        .max_frame_size(Some(limits.message_bytes_max));
    let io = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let subscriptions = Subscriptions::new(limits.subscriptions_max);
    let mut session =
        Session { rpc, socket, subscriptions, limits, sent: Instant::now(), heard: Instant::now() };
    let ended = session.serve(drain).await;
    session.end(ended).await;
}

struct Session<'r> {
    rpc: &'r Rpc,
    socket: Socket,
    subscriptions: Subscriptions,
    limits: Limits,
    /// When a frame was last sent, and last came.
    sent: Instant,
    heard: Instant,
}

impl Session<'_> {
    async fn serve(&mut self, mut drain: watch::Receiver<bool>) -> Ended {
        let mut heads = self.rpc.serving.heads();
        let mut more = false;
        loop {
            let alarm = self.alarm();
            let told = tokio::select! {
                frame = self.socket.next() => match frame {
                    Some(Ok(frame)) => self.take(frame).await,
                    Some(Err(error)) => Err(error.into()),
                    None => Err(Ended::Silently),
                },
                // Whether the head has moved, or there was more than one burst to tell.
                Ok(()) = heads.changed(), if !more && !self.subscriptions.is_empty() => {
                    more = true;
                    Ok(())
                }
                () = std::future::ready(()), if more => {
                    self.announce().await.map(|left| more = left)
                }
                () = sleep_until(alarm) => self.keep_alive().await,
                () = draining(&mut drain) => {
                    Err(Ended::Told(CloseCode::Away, "the server stops".to_owned()))
                }
            };
            if let Err(ended) = told {
                return ended;
            }
            // A subscription may have been opened below the head.
            more |= !self.subscriptions.is_empty() && self.is_due();
        }
    }

    fn is_due(&self) -> bool {
        let range = self.rpc.serving.reader.range();
        range.is_some_and(|range| self.subscriptions.due(*range.start(), *range.end()).is_some())
    }

    fn alarm(&self) -> Instant {
        self.sent.max(self.heard) + PING_AFTER
    }

    /// Asks whether anybody is there; after a while without an answer, nobody is.
    async fn keep_alive(&mut self) -> Result<(), Ended> {
        if self.heard.elapsed() >= PING_AFTER + PONG_WITHIN {
            return Err(Ended::Silently);
        }
        self.send(Message::Ping(Vec::new().into())).await
    }

    async fn send(&mut self, message: Message) -> Result<(), Ended> {
        self.socket.send(message).await?;
        self.sent = Instant::now();
        Ok(())
    }

    async fn take(&mut self, message: Message) -> Result<(), Ended> {
        self.heard = Instant::now();
        let body = match &message {
            Message::Text(text) => text.as_bytes(),
            Message::Binary(bytes) => bytes,
            Message::Close(_) => return Err(Ended::Silently), // which answers it
            _ => return Ok(()),
        };
        match self.rpc.answer_frame(body, &mut self.subscriptions) {
            Frame::Answer(text) => self.send(Message::text(text)).await,
            Frame::Nothing => Ok(()),
            Frame::Last(text) => {
                if let Some(text) = text {
                    self.send(Message::text(text)).await?;
                }
                Err(Ended::Silently)
            }
        }
    }

    /// Tells what is due, up to a burst of it. True if there is more.
    async fn announce(&mut self) -> Result<bool, Ended> {
        for _ in 0..BURST {
            let Some(range) = self.rpc.serving.reader.range() else { return Ok(false) };
            let (first, head) = (*range.start(), *range.end());
            let Some(height) = self.subscriptions.due(first, head) else {
                self.socket.flush().await?;
                return Ok(false);
            };
            let lag = self.subscriptions.lag(head);
            if height < first || lag > self.limits.lag_max {
                return Err(Ended::Told(
                    CloseCode::Policy,
                    format!("too slow: {lag} blocks behind"),
                ));
            }
            self.tell(height, first, head).await?;
        }
        self.socket.flush().await?;
        Ok(true)
    }

    async fn tell(&mut self, height: u64, first: u64, head: u64) -> Result<(), Ended> {
        let serving = &self.rpc.serving;
        // It may have gone since: evicted, which the next look finds, or withdrawn.
        let Some(record) = serving.reader.record(height) else { return Ok(()) };
        for held in self.subscriptions.tell(height, first, head) {
            match &held.topic {
                Topic::Heads => {
                    let text = serving.head_texts.of(&record, serving.rules());
                    let text = text.ok_or_else(|| unreadable(height))?;
                    self.socket.feed(notification(held, &text)).await?;
                }
                Topic::Logs(filter, _) if held.topic.covers(height) => {
                    for log in logs(&serving.reader, filter.clone(), height..=height) {
                        let log = log.map_err(|_| unreadable(height))?;
                        let text =
                            std::str::from_utf8(log.as_ref()).map_err(|_| unreadable(height))?;
                        self.socket.feed(notification(held, text)).await?;
                    }
                }
                Topic::Logs(..) => {}
            }
        }
        self.sent = Instant::now();
        Ok(())
    }

    /// Ends the connection, with a reason if there is one to tell. A client that reads nothing is
    /// cut off by the socket.
    async fn end(&mut self, ended: Ended) {
        let frame = match ended {
            Ended::Gone(error) => return debug!(%error, "a WebSocket ended"),
            Ended::Silently => None,
            Ended::Told(code, reason) => Some(CloseFrame { code, reason: reason.into() }),
        };
        if let Err(error) = self.socket.close(frame).await {
            debug!(%error, "a WebSocket did not close cleanly");
        }
    }
}

fn unreadable(height: u64) -> Ended {
    Ended::Told(CloseCode::Error, format!("block {height:#x} cannot be read"))
}

fn notification(held: &Held, result: &str) -> Message {
    let mut text = String::with_capacity(result.len() + 128);
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{{\"jsonrpc\":\"2.0\",\"method\":\"eth_subscription\",\"params\":{{\"subscription\":\"{}\",\"result\":{result}}}}}",
        held.id
    );
    Message::text(text)
}
