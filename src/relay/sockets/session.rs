//! The task of a socket: sends calls one after the other, and reads what the upstream sends.

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use metrics::gauge;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, Interval, interval_at, sleep_until, timeout};
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::connecting::{Connected, connect};
use super::event::{Command, Opening, SocketEnd, SocketEvent, Unsent};
use super::message::{Incoming, unsubscribe};
use super::metered::NO_MEMORY;
use crate::relay::{Counted, Failure, RelayState};
use crate::rpc::{is_same_id, members_of};
use crate::shared::Holder;

/// Bytes of a message that waits, besides its text.
const OVERHEAD: usize = 256;

/// Counts a socket for as long as it lives.
struct Open;

impl Open {
    fn new() -> Self {
        gauge!("neve_relay_websocket_connections").increment(1.0);
        Self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        gauge!("neve_relay_websocket_connections").decrement(1.0);
    }
}

/// A call whose response has not come.
struct Current {
    deadline: Instant,
    /// Id of a call of the client.
    id: Option<Box<str>>,
    /// `None` if it ends a subscription: the client has its response already.
    counted: Option<Counted>,
}

/// A socket and its subscriptions.
pub(super) struct SocketSession<'s> {
    state: &'s RelayState,
    opening: Opening,
    upstream: Connected,
    commands: mpsc::UnboundedReceiver<Command>,
    events: &'s mpsc::UnboundedSender<SocketEvent>,
    /// Ids of open subscriptions.
    ids: HashSet<Box<str>>,
    /// Bytes that may still wait for the client.
    unsent: Arc<Semaphore>,
    current: Option<Current>,
    /// Count of the first call, which the upstream has admitted with the handshake.
    first: Option<Counted>,
    ping: Interval,
    heard: Instant,
}

impl<'s> SocketSession<'s> {
    /// Serves a socket until it ends.
    pub(super) async fn run(
        state: &'s RelayState,
        opening: Opening,
        commands: mpsc::UnboundedReceiver<Command>,
        events: &'s mpsc::UnboundedSender<SocketEvent>,
    ) -> SocketEnd {
        let _open = Open::new();
        let mut counted = Counted::new(Instant::now());
        let upstream = match connect(state, &opening).await {
            Ok(upstream) => upstream,
            Err(end) => {
                if let SocketEnd::Failed(failure) = end {
                    counted.outcome = failure.label();
                }
                return end;
            }
        };
        let unsent = Arc::new(Semaphore::new(state.config.sockets.unsent_bytes_max));
        let (every, now) = (ping_interval(state), Instant::now());
        let mut session = Self {
            state,
            opening,
            upstream,
            commands,
            events,
            ids: HashSet::new(),
            unsent,
            current: None,
            first: Some(counted),
            ping: interval_at(now + every, every),
            heard: now,
        };
        loop {
            if let Err(end) = session.turn().await {
                if let (SocketEnd::Failed(failure), Some(counted)) =
                    (end, session.current.as_mut().and_then(|call| call.counted.as_mut()))
                {
                    counted.outcome = failure.label();
                }
                return end;
            }
        }
    }

    async fn turn(&mut self) -> Result<(), SocketEnd> {
        let deadline = self.current.as_ref().map(|call| call.deadline);
        tokio::select! {
            frame = self.upstream.socket.next() => match frame {
                Some(Ok(message)) => self.take(message),
                Some(Err(error)) => Err(self.end_of(&error)),
                None => Err(SocketEnd::Failed(Failure::Unreachable)),
            },
            // One call at a time: responses are matched to calls by their order, so that the
            // client's ids stay its own.
            command = self.commands.recv(), if deadline.is_none() => match command {
                Some(command) => self.begin(command).await,
                None => Err(SocketEnd::Failed(Failure::Unreachable)), // the client left
            },
            () = passed(deadline) => Err(SocketEnd::Failed(Failure::TimedOut)),
            _ = self.ping.tick() => self.keep_alive().await,
        }
    }

    /// Sends the next call.
    async fn begin(&mut self, command: Command) -> Result<(), SocketEnd> {
        let (text, id, counted) = match command {
            Command::Subscribe(text) => match self.admit(&text) {
                Ok((message, counted)) => (message, id_of(&text), Some(counted)),
                Err(failure) => {
                    self.tell(SocketEvent::Refused(failure));
                    return Ok(());
                }
            },
            Command::Unsubscribe(id) => {
                // Never refused: otherwise the upstream would go on sending to no reader.
                self.state.charge(&self.upstream.candidate, self.opening.address);
                self.ids.remove(&id);
                (Message::text(unsubscribe(&id)), None, None)
            }
        };
        let deadline = Instant::now() + self.state.config.timeout;
        self.current = Some(Current { deadline, id, counted });
        self.send(text).await
    }

    /// Makes a frame of a call, if the upstream may have it now.
    fn admit(&mut self, text: &Bytes) -> Result<(Message, Counted), Failure> {
        // The first call was admitted before the handshake; to enter again would count it twice.
        let (first, mut counted) = match self.first.take() {
            Some(counted) => (true, counted),
            None => (false, Counted::new(Instant::now())),
        };
        // An id that is not UTF-8 cannot be in a text frame.
        let text = text.clone().try_into().map(Message::Text).map_err(|_| Failure::NotJson);
        let entered = if first {
            Ok(())
        } else {
            let (candidate, now) = (&self.upstream.candidate, Instant::now().into_std());
            self.state.enter_socket(candidate, self.opening.address, now)
        };
        let admitted = entered.and(text).inspect_err(|failure| counted.outcome = failure.label());
        admitted.map(|text| (text, counted))
    }

    async fn send(&mut self, message: Message) -> Result<(), SocketEnd> {
        // What the upstream does not take for so long it will not take.
        match timeout(ping_interval(self.state), self.upstream.socket.send(message)).await {
            Ok(sent) => sent.map_err(|error| self.end_of(&error)),
            Err(_) => Err(SocketEnd::Failed(Failure::TimedOut)),
        }
    }

    async fn keep_alive(&mut self) -> Result<(), SocketEnd> {
        if self.heard.elapsed() >= self.state.config.sockets.idle_timeout {
            return Err(SocketEnd::Failed(Failure::TimedOut));
        }
        self.send(Message::Ping(Bytes::new())).await
    }

    fn take(&mut self, message: Message) -> Result<(), SocketEnd> {
        self.upstream.coming.ends();
        self.heard = Instant::now();
        let Some(text) = text_of(message)? else { return Ok(()) };
        let checked = self.state.check_text(self.upstream.candidate.place, text.as_bytes());
        match Incoming::read(&text).ok_or(SocketEnd::Failed(Failure::NotJson))? {
            // A response with a key fails its call only. A notification with one ends the socket:
            // to drop it would leave a gap that the client cannot see.
            Incoming::Response(..) if checked.is_err() => self.refuse(Failure::Secret),
            Incoming::Notification(_) if checked.is_err() => {
                return Err(SocketEnd::Failed(Failure::Secret));
            }
            Incoming::Notification(id) if self.ids.contains(&id) => {
                let unsent = self.unsent(&text)?;
                self.tell(SocketEvent::Notification(unsent, id));
            }
            Incoming::Notification(_) => {} // of one that was ended
            Incoming::Response(own, id) => self.respond(&text, own, id)?,
        }
        Ok(())
    }

    /// Takes the response to the current call.
    fn respond(&mut self, text: &str, own: &str, id: Option<Box<str>>) -> Result<(), SocketEnd> {
        // For the response to an `eth_unsubscribe` no client waits.
        let Some(Current { counted: Some(mut counted), id: called, .. }) = self.current.take()
        else {
            return Ok(());
        };
        // A client takes a response with another id for that of another call.
        let is_other = called.is_none_or(|called| !is_same_id(&called, own));
        // The notifications of two subscriptions with one id cannot be told apart.
        if is_other || id.as_ref().is_some_and(|id| self.ids.contains(id)) {
            counted.outcome = Failure::NotJson.label();
            return Err(SocketEnd::Failed(Failure::NotJson));
        }
        counted.outcome = "ok";
        self.ids.extend(id.clone());
        let unsent = self.unsent(text)?;
        self.tell(SocketEvent::Response(unsent, id));
        Ok(())
    }

    /// Gives the current call no response.
    fn refuse(&mut self, failure: Failure) {
        if let Some(Current { counted: Some(mut counted), .. }) = self.current.take() {
            counted.outcome = failure.label();
            self.tell(SocketEvent::Refused(failure));
        }
    }

    /// Has a message wait for the client, if it may.
    fn unsent(&self, text: &str) -> Result<Unsent, SocketEnd> {
        let max = self.state.config.sockets.unsent_bytes_max;
        let len = u32::try_from(text.len()).map_err(|_| SocketEnd::TooSlow(max))?;
        let waiting = Arc::clone(&self.unsent).try_acquire_many_owned(len);
        let waiting = waiting.map_err(|_| SocketEnd::TooSlow(max))?;
        let account = self.opening.memory.account(self.opening.address);
        let reservation = account.reserve(Holder::Relay, text.len() + OVERHEAD);
        let reservation = reservation.ok_or(SocketEnd::NoMemory)?;
        // Shared with the buffer of the socket, a short text would keep all of it.
        let text = Bytes::copy_from_slice(text.as_bytes());
        Ok(Unsent { text, reservation, waiting })
    }

    fn tell(&self, event: SocketEvent) {
        let _ = self.events.send(event); // a client that left ends this task
    }

    fn end_of(&self, error: &Error) -> SocketEnd {
        match error {
            Error::Capacity(CapacityError::MessageTooLong { .. }) => {
                let max = self.state.config.sockets.message_bytes_max;
                SocketEnd::Failed(Failure::TooLong(max))
            }
            Error::Io(error) if error.kind() == NO_MEMORY => SocketEnd::NoMemory,
            _ => SocketEnd::Failed(Failure::Unreachable),
        }
    }
}

/// Waits until a deadline has passed; for ever if there is none.
async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

/// Text of a message; `None` for a ping or a pong.
fn text_of(message: Message) -> Result<Option<Utf8Bytes>, SocketEnd> {
    match message {
        Message::Text(text) => Ok(Some(text)),
        Message::Close(_) => Err(SocketEnd::Failed(Failure::Unreachable)),
        Message::Binary(_) => Err(SocketEnd::Failed(Failure::NotJson)),
        _ => Ok(None),
    }
}

/// Id of a call that neve wrote.
fn id_of(call: &[u8]) -> Option<Box<str>> {
    let [id] = members_of(call, ["id"])?;
    id.map(|id| id.get().into())
}

fn ping_interval(state: &RelayState) -> Duration {
    // So an upstream gets two or three pings before its silence ends the socket.
    state.config.sockets.idle_timeout / 3
}
