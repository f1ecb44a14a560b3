//! A connection: answers what it asks, sends what it has subscribed to, and knows when it is
//! dead.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use neve_chain::HeaderForm;
use neve_jsonrpc::Rules;
use neve_record::log_matcher::{LogText, logs};
use neve_record::parts::{HEADER, RECEIPTS, SPANS, readable_part};
use neve_store::residency;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tracing::debug;

use super::close::CloseReason;
use super::message_reader::{MessageReader, Socket};
use super::notification::{answer, notify};
use super::write_stall::WriteStall;
use crate::body::{BodyBuilder, ResponseBody};
use crate::config::settings::WsLimits;
use crate::http::answer::Responder;
use crate::http::relay::Relayer;
use crate::http::response::ResponseWriter;
use crate::http::socket::Socket as Tcp;
use crate::http::{Gone, NotDone, Offload, draining};
use crate::rpc::cursors::{OpenSubscription, SubscriptionKind, Subscriptions};
use crate::rpc::{Calls, LONG_BODY, Rpc, WsResponse, framed};
use crate::shared::{Began, Class, ClientAddress, Work, WsClose, WsKind, add};

/// What a connection keeps to read into; a longer message takes what it needs while it comes.
const READ_BUFFER: usize = 1 << 10;
/// Bytes after which notifications are written though more are to come. A height's are written when
/// it is told in any case; this bounds what a range that is replayed keeps in memory.
const WRITE_BUFFER: usize = 64 << 10;
/// Bytes that the system may keep unsent for a client that does not read: it would take megabytes.
const UNSENT_MAX: u32 = 128 << 10;
/// Heights that are told between two looks at what the client says, and the time after which no
/// further one is begun: others of the thread wait.
const BURST: usize = 64;
const BURST_TIME: Duration = Duration::from_micros(100);
/// Heights below the head that are in memory, as they were written a moment ago.
const LATELY: u64 = 16;
/// Highest time for closing at the end.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Serves a connection until it ends.
pub(crate) async fn run(
    upgrade: OnUpgrade,
    responder: &Responder,
    limits: WsLimits,
    relay: Option<&Relayer>,
    address: ClientAddress,
    mut drain: watch::Receiver<bool>,
) {
    let rpc = &responder.rpc;
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => return debug!(%error, "a WebSocket was not opened"),
    };
    let Some(socket) = open(upgraded, address, limits).await else { return };
    add(&rpc.tally.ws_opened, 1);
    let subscriptions = Subscriptions::new(limits.subscriptions_max, Arc::clone(&rpc.tally));
    let (sent, pace) = (Instant::now(), WriteStall::default());
    let (asked, news, offload) = (None, BodyBuilder::default(), &*responder.offload);
    let relaying = FuturesUnordered::new();
    let mut session = WsConnection {
        rpc,
        offload,
        address,
        socket,
        subscriptions,
        limits,
        news,
        sent,
        asked,
        pace,
        relay,
        relaying,
    };
    // Whatever it is doing: a client that does not read must not hold up the end.
    let ended = tokio::select! {
        ended = session.serve() => ended,
        () = draining(&mut drain) => CloseReason::told(WsClose::Drain, CloseCode::Away, "the server stops"),
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
async fn open(upgraded: Upgraded, client: ClientAddress, limits: WsLimits) -> Option<Socket> {
    let parts = upgraded.downcast::<TokioIo<Tcp>>().ok()?;
    let mut tcp = parts.io.into_inner();
    tcp.turn_into_websocket(client, UNSENT_MAX);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(limits.message_bytes_max))
        .max_frame_size(Some(limits.message_bytes_max));
    let (io, read) = (MessageReader::new(tcp, &parts.read_buf), parts.read_buf.into());
    Some(WebSocketStream::from_partially_read(io, read, Role::Server, Some(config)).await)
}

struct WsConnection<'r> {
    rpc: &'r Arc<Rpc>,
    offload: &'r Offload,
    address: ClientAddress,
    socket: Socket,
    subscriptions: Subscriptions,
    limits: WsLimits,
    /// Notifications that are not written yet.
    news: BodyBuilder,
    /// Time when a frame was last sent.
    sent: Instant,
    /// Time when it was asked whether anybody is there, if nothing came since.
    asked: Option<Instant>,
    pace: WriteStall,
    relay: Option<&'r Relayer>,
    /// Responses of upstreams that are waited for; nothing if clients use too much memory.
    relaying: FuturesUnordered<Relaying<'r>>,
}

/// A response of an upstream.
type Relaying<'r> = Pin<Box<dyn Future<Output = Option<ResponseBody>> + Send + 'r>>;

impl WsConnection<'_> {
    /// Each turn takes a frame, or waits for a reason to tell something, and then tells a burst:
    /// neither side can starve the other.
    async fn serve(&mut self) -> CloseReason {
        let mut heads = self.rpc.serving.heads();
        let mut more = false;
        loop {
            let alarm = self.alarm();
            let turn = tokio::select! {
                biased;
                frame = self.socket.next() => match frame {
                    Some(Ok(frame)) => self.take(frame).await,
                    Some(Err(error)) => Err(error.into()),
                    None => Err(CloseReason::Silently(WsClose::Client)),
                },
                // Others have their turn: a long range may have nothing to wait for.
                () = self.rpc.replays.turn(), if more => Ok(()),
                _ = heads.changed(), if !more && !self.subscriptions.is_empty() => Ok(()),
                Some(relayed) = self.relaying.next() => self.take_relayed(relayed).await,
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
    async fn keep_alive(&mut self) -> Result<(), CloseReason> {
        if self.asked.is_some() {
            return Err(CloseReason::Silently(WsClose::PingTimeout));
        }
        self.send(Message::Ping(Vec::new().into())).await?;
        self.asked = Some(self.sent);
        Ok(())
    }

    async fn send(&mut self, message: Message) -> Result<(), CloseReason> {
        self.socket.send(message).await?;
        self.sent = Instant::now();
        Ok(())
    }

    async fn take(&mut self, message: Message) -> Result<(), CloseReason> {
        self.asked = None;
        let body: Bytes = match message {
            Message::Text(text) => text.into(),
            Message::Binary(bytes) => bytes,
            Message::Close(_) => return Err(CloseReason::Closed),
            _ => {
                // A ping was answered: nothing more is read before that is sent, or answers that
                // the client does not read would pile up.
                return Ok(self.socket.flush().await?);
            }
        };
        let (frame, calls) = match self.answer_if_resident(&body) {
            Some(answered) => answered, // nearly always
            None => self.answer_offloaded(body.clone()).await?,
        };
        drop(body);
        self.socket.get_mut().message_ends();
        calls.count(&self.rpc.tally);
        self.respond(frame).await
    }

    /// Takes the response of an upstream.
    async fn take_relayed(&mut self, body: Option<ResponseBody>) -> Result<(), CloseReason> {
        match body {
            Some(body) if body.len() == 0 => Ok(()),
            Some(body) => self.respond(framed(body)).await,
            None => Err(CloseReason::no_room()),
        }
    }

    /// Has an upstream asked; other messages are answered meanwhile.
    fn relay(&mut self, frame: WsResponse) {
        let Some(relay) = self.relay else { return }; // nothing comes to this without a relay
        let (address, account) = (self.address, self.rpc.memory.account(self.address));
        let head = self.rpc.serving.head().unwrap_or(0);
        self.relaying.push(match frame {
            WsResponse::Relay(mut call) => {
                call.count(&self.rpc.tally);
                Box::pin(relay.whole(call, address, account, head))
            }
            WsResponse::Split(mut split) => {
                split.outbound.count(&self.rpc.tally);
                let filling = relay.fill(split, address, account, head);
                Box::pin(async { Some(filling.await?.body) })
            }
            _ => return,
        });
    }

    async fn respond(&mut self, frame: WsResponse) -> Result<(), CloseReason> {
        match frame {
            relayed @ (WsResponse::Relay(_) | WsResponse::Split(_)) => {
                self.relay(relayed);
                Ok(())
            }
            WsResponse::Answer(body) => self.write(answer(body)).await,
            WsResponse::Nothing => Ok(()),
            WsResponse::Last(body) => {
                if let Some(body) = body {
                    self.write(answer(body)).await?;
                }
                Err(CloseReason::Silently(WsClose::Malformed))
            }
            WsResponse::NoRoom => Err(CloseReason::no_room()),
        }
    }

    /// Answers a message unless that takes the disk, or long.
    fn answer_if_resident(&mut self, body: &[u8]) -> Option<(WsResponse, Calls)> {
        if body.len() > LONG_BODY {
            return None;
        }
        let work = Work::here(self.rpc.limits.work);
        let (subscriptions, address) = (&mut self.subscriptions, self.address);
        let answer = || self.rpc.answer_frame(body, subscriptions, address, &work);
        residency::if_sendable(answer)
    }

    /// Writes a response.
    async fn write(&mut self, out: ResponseWriter) -> Result<(), CloseReason> {
        write(&mut self.socket, out).await?;
        self.sent = Instant::now();
        Ok(())
    }

    /// Writes the notifications that there are.
    async fn write_news(&mut self) -> Result<(), CloseReason> {
        write_news(&mut self.news, &mut self.socket, &mut self.pace).await?;
        self.sent = Instant::now();
        Ok(())
    }

    /// On a thread that may wait for the disk; nobody is told anything meanwhile.
    async fn answer_offloaded(&mut self, body: Bytes) -> Result<(WsResponse, Calls), CloseReason> {
        add(&self.rpc.tally.handed_over, 1);
        let (rpc, mut subscriptions) =
            (Arc::clone(self.rpc), std::mem::take(&mut self.subscriptions));
        let (class, began, gone) = (rpc.class(&body), Began::now(), Gone::default());
        let flag = gone.flag();
        let address = self.address;
        let answering = self.offload.run(class, address, move || {
            let has_gone = || flag.load(Ordering::Relaxed);
            let work = Work::elsewhere(rpc.limits.work, began, &has_gone);
            let answer = || rpc.answer_frame(&body, &mut subscriptions, address, &work);
            let answered = residency::loading_again(answer);
            let answered = answered.unwrap_or_else(|_| rpc.unreadable_frame(&body, address, &work));
            (answered, subscriptions)
        });
        let socket = self.socket.get_ref();
        let (answered, subscriptions) = match gone.watch(answering, || socket.has_gone()).await {
            Ok(done) => done,
            Err(NotDone::Full) => {
                let reason = "too many requests wait for an answer; try again later";
                return Err(CloseReason::told(WsClose::Busy, CloseCode::Again, reason));
            }
            Err(NotDone::Failed) => return Ok((WsResponse::Last(None), Calls::default())),
        };
        self.subscriptions = subscriptions;
        Ok(answered)
    }

    /// Has what is told of a height in memory. What was published just now is.
    async fn load(&mut self, height: u64, head: u64) {
        if height + LATELY > head {
            return;
        }
        let parts: &[usize] =
            if self.subscriptions.have_logs() { &[HEADER, SPANS, RECEIPTS] } else { &[HEADER] };
        let reader = self.rpc.serving.reader.clone();
        let look = move || {
            let record = reader.record(height)?;
            record.load_head();
            let looked = parts.iter().filter_map(|part| readable_part(&record, *part));
            looked.for_each(|slice| slice.load());
            Some(())
        };
        if residency::if_resident(&look).is_none() {
            // If it is refused, this thread waits when it reads. What the disk does not deliver is damaged then.
            let load = move || residency::with_blocking_reads(look);
            let _ = self.offload.run(Class::ColdRead, self.address, load).await;
        }
    }

    /// Tells what is due, up to a burst of it. True if there is more.
    async fn announce(&mut self) -> Result<bool, CloseReason> {
        if self.subscriptions.is_empty() {
            return Ok(false);
        }
        let began = Instant::now();
        for told in 0..BURST {
            if told > 0 && began.elapsed() > BURST_TIME {
                break;
            }
            let Some(range) = self.rpc.serving.reader.range() else { break };
            let (first, head) = (*range.start(), *range.end());
            let Some(height) = self.subscriptions.due(first, head) else {
                self.pace.at_head();
                if self.news.len() > 0 {
                    self.write_news().await?;
                }
                return Ok(false);
            };
            self.check_pace(height, first, head)?;
            self.load(height, head).await;
            self.tell(height, first, head).await?;
        }
        if self.news.len() > 0 {
            self.write_news().await?;
        }
        Ok(true)
    }

    /// Who does not keep up is cut off; it can come back and resume.
    fn check_pace(&mut self, height: u64, first: u64, head: u64) -> Result<(), CloseReason> {
        let lag = self.subscriptions.lag(head);
        if height < first {
            let reason = format!("too slow: block {height:#x} is not served any more");
            return Err(CloseReason::told(WsClose::Lagging, CloseCode::Policy, reason));
        }
        if self.pace.is_too_slow(lag, self.limits.lag_max) {
            let reason = format!("too slow: {lag} blocks behind");
            return Err(CloseReason::told(WsClose::Lagging, CloseCode::Policy, reason));
        }
        Ok(())
    }

    /// Tells a height to all who are to hear of it.
    async fn tell(&mut self, height: u64, first: u64, head: u64) -> Result<(), CloseReason> {
        let serving = &self.rpc.serving;
        let Some(record) = serving.reader.record(height) else {
            // Evicted or withdrawn in this moment, which the next look finds; or damaged.
            let held = serving.reader.range().is_some_and(|range| range.contains(&height));
            let damaged = held && serving.reader.record(height).is_none();
            return if damaged { Err(unreadable(height)) } else { Ok(()) };
        };
        let helicon = serving.rules() == Rules::Helicon || self.rpc.status.helicon_heads();
        let form = if helicon { HeaderForm::V1_15 } else { HeaderForm::V1_14 };
        let (socket, pace, news) = (&mut self.socket, &mut self.pace, &mut self.news);
        for OpenSubscription { id, topic, .. } in self.subscriptions.notify(height, first, head) {
            match topic {
                SubscriptionKind::Heads => {
                    let text = serving.head_texts.of(&record, form, head);
                    let text = text.ok_or_else(|| unreadable(height))?;
                    notify(news, id, text.len(), |out| {
                        out.text().extend_from_slice(text.as_bytes());
                    });
                    self.rpc.tally.ws_notified(WsKind::Heads);
                    write_much(news, socket, pace).await?;
                }
                SubscriptionKind::Logs(wanted, last) if last.is_none_or(|last| height <= last) => {
                    for log in logs(&serving.reader, wanted.clone(), height..=height) {
                        let log = log.map_err(|_| unreadable(height))?;
                        notify(news, id, log.len(), |out| match log {
                            LogText::Stored(log) => out.stored(log),
                            LogText::Unpacked(log) => out.text().extend_from_slice(&log),
                        });
                        self.rpc.tally.ws_notified(WsKind::Logs);
                        write_much(news, socket, pace).await?;
                    }
                }
                SubscriptionKind::Logs(..) => {}
            }
        }
        Ok(())
    }
}

/// Writes a response behind what tungstenite has to write. Should this be dropped before the end,
/// what tungstenite writes next comes behind the rest.
async fn write(socket: &mut Socket, out: ResponseWriter) -> Result<(), Error> {
    socket.flush().await?;
    socket.get_mut().begin(out);
    Ok(poll_fn(|context| socket.get_mut().poll_send(context)).await?)
}

/// Writes notifications if they are many.
async fn write_much(
    news: &mut BodyBuilder,
    socket: &mut Socket,
    pace: &mut WriteStall,
) -> Result<(), Error> {
    if news.len() < WRITE_BUFFER { Ok(()) } else { write_news(news, socket, pace).await }
}

async fn write_news(
    news: &mut BodyBuilder,
    socket: &mut Socket,
    pace: &mut WriteStall,
) -> Result<(), Error> {
    let body = std::mem::take(news).finish();
    pace.of(write(socket, ResponseWriter::with_head(Vec::new(), body))).await
}

fn unreadable(height: u64) -> CloseReason {
    CloseReason::told(
        WsClose::Unreadable,
        CloseCode::Error,
        format!("block {height:#x} cannot be read"),
    )
}
