//! Calls of a connection that an upstream answers, and subscriptions that it has: opened there, and passed
//! on as they come.

use std::collections::HashSet;
use std::future::ready;

use neve_jsonrpc::RpcError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::close::CloseReason;
use super::connection::{WsConnection, busy};
use super::notification::answer;
use super::upstream::{Pending, RelayedMessage, Relaying, UpstreamSocket, open, origin};
use crate::body::ResponseBody;
use crate::http::access::AccessEntry;
use crate::http::relay::{CallOrigin, Held, NotFilled, NotRelayed, Relayer};
use crate::relay::Failure;
use crate::relay::sockets::{SocketEnd, SocketEvent, Unsent};
use crate::rpc::{Filling, Outbound, Split, WsResponse, framed};
use crate::shared::{Began, WsClose, WsKind};

/// Messages of an upstream that are passed on between two looks at what the client says.
const BURST: usize = 64;

impl<'r> WsConnection<'r> {
    /// Has an upstream answer a message.
    fn relay_calls(
        &self,
        relay: &'r Relayer,
        mut call: Outbound,
        origin: CallOrigin<'r>,
        entry: Option<AccessEntry>,
    ) -> Relaying<'r> {
        let (rpc, began) = (self.rpc, Began::now());
        let calls = call.count(&rpc.counters);
        note_source(entry.as_ref(), "relay");
        let asking = relay.whole(call, origin, self.offload);
        Box::pin(async move {
            let body = asking.await.map_err(|why| unfilled(&why));
            calls.time(&rpc.counters, began.elapsed());
            RelayedMessage { body, entry, frame: None }
        })
    }

    /// Has an upstream answer the rest of a batch, whose subscriptions wait if they have a number.
    fn relay_rest(
        &self,
        relay: &'r Relayer,
        mut split: Box<Split>,
        origin: CallOrigin<'r>,
        (entry, frame): (Option<AccessEntry>, Option<u64>),
    ) -> Relaying<'r> {
        let (rpc, began) = (self.rpc, Began::now());
        let calls = split.outbound.count(&rpc.counters);
        note_source(entry.as_ref(), "mixed");
        let mut changes = split.take_changes();
        split.outbound.says_behind = true;
        let filling = relay.fill(split, origin, self.offload);
        Box::pin(async move {
            let body = filling.await.map(|mixed| mixed.body).map_err(|why| unfilled(&why));
            if body.is_err() {
                changes.undo(&rpc.filters); // the client never gets the answers
            }
            calls.time(&rpc.counters, began.elapsed());
            RelayedMessage { body, entry, frame }
        })
    }
}

impl WsConnection<'_> {
    /// Takes the response of an upstream.
    pub(super) async fn take_relayed(
        &mut self,
        relayed: RelayedMessage,
    ) -> Result<(), CloseReason> {
        let RelayedMessage { body, entry, frame } = relayed;
        let body = body?;
        if body.len() > 0 {
            self.respond(framed(body), entry).await?;
        }
        // Only now does the client know the ids of its subscriptions.
        frame.into_iter().for_each(|frame| self.subscriptions.go_on(frame));
        Ok(())
    }

    /// Has an upstream asked; other messages are answered meanwhile.
    pub(super) fn relay(&mut self, frame: WsResponse, entry: Option<AccessEntry>) {
        let Some(relay) = self.relay else { return }; // nothing comes to this without a relay
        // A split batch may open subscriptions. The client must learn their ids before it gets
        // their notifications.
        let number = matches!(frame, WsResponse::Split(_)).then(|| self.subscriptions.hold_back());
        let hops = match self.hops.clone() {
            Ok(hops) => hops,
            Err(failure) => {
                let body = self.unrelayed(frame, failure).ok_or_else(CloseReason::no_memory);
                let relayed = RelayedMessage { body, entry, frame: number };
                return self.relaying.push(Box::pin(ready(relayed)));
            }
        };
        let trace = entry.as_ref().map(AccessEntry::trace).unwrap_or_default();
        let origin = origin(self.rpc, self.address, hops).in_trace(trace);
        self.relaying.push(match frame {
            WsResponse::Relay(call) => self.relay_calls(relay, call, origin, entry),
            WsResponse::Split(split) => self.relay_rest(relay, split, origin, (entry, number)),
            _ => return,
        });
    }

    /// The error of calls that may not be relayed.
    fn unrelayed(&self, frame: WsResponse, failure: Failure) -> Option<ResponseBody> {
        let account = self.rpc.memory.account(self.address);
        match frame {
            WsResponse::Relay(call) if call.is_silent() => Some(ResponseBody::default()),
            WsResponse::Relay(call) => Some(call.error(&failure.error()).into()),
            WsResponse::Split(split) => {
                let mixed = split.fill(&[Filling::failed(failure.error())])?.reserved(account);
                mixed.map(|mixed| mixed.body)
            }
            _ => None,
        }
    }

    /// Has an upstream open a subscription. Other messages are answered meanwhile.
    pub(super) async fn subscribe_upstream(
        &mut self,
        mut call: Outbound,
        entry: Option<AccessEntry>,
    ) -> Result<(), CloseReason> {
        let calls = call.count(&self.rpc.counters);
        // Openings in flight count too: otherwise a client exceeds its limit by sending many at
        // once.
        if let Some(refusal) = self.subscriptions.refusal(self.opening()) {
            return self.write_error(&call, &refusal, entry).await;
        }
        match self.place(&call) {
            Ok((upstream, held)) => {
                upstream.socket.subscribe(std::mem::take(&mut call.body).into());
                let began = Began::now();
                note_source(entry.as_ref(), "relay");
                upstream.pending.push_back(Pending { call, calls, began, entry, _held: held });
                Ok(())
            }
            Err(NotRelayed::NoMemory) => Err(CloseReason::no_memory()),
            Err(NotRelayed::Failure(failure)) => self.write_failure(&call, failure, entry).await,
        }
    }

    /// Number of subscriptions that the upstream is about to open.
    fn opening(&self) -> usize {
        self.upstream.as_ref().map_or(0, |upstream| upstream.pending.len())
    }

    /// The socket, which is opened if there is none, and the place of a call.
    fn place(&mut self, call: &Outbound) -> Result<(&mut UpstreamSocket, Held), NotRelayed> {
        let relay = self.relay.ok_or(Failure::NoUpstream)?;
        let origin = origin(self.rpc, self.address, self.hops.clone()?);
        let held = relay.admit(&origin)?;
        let upstream = match self.upstream.take() {
            Some(upstream) => upstream,
            None => open(relay, self.rpc, origin, call)?,
        };
        Ok((self.upstream.insert(upstream), held))
    }

    async fn write_failure(
        &mut self,
        call: &Outbound,
        why: Failure,
        entry: Option<AccessEntry>,
    ) -> Result<(), CloseReason> {
        self.write_error(call, &why.error(), entry).await
    }

    /// Writes an error, unless the call is a notification.
    async fn write_error(
        &mut self,
        call: &Outbound,
        error: &RpcError,
        entry: Option<AccessEntry>,
    ) -> Result<(), CloseReason> {
        if call.is_silent() {
            return Ok(());
        }
        self.finish(call.error(error).into(), entry).await
    }

    /// Passes on an event of the socket, and more that are there.
    pub(super) async fn pass_on(&mut self, event: SocketEvent) -> Result<(), CloseReason> {
        self.check_key()?;
        self.take_event(event).await?;
        // Bounded: the client's own messages have their turn behind a flood of notifications.
        for _ in 1..BURST {
            let Some(upstream) = &mut self.upstream else { break };
            let Some(event) = upstream.socket.waiting() else { break };
            self.take_event(event).await?;
        }
        self.end_relayed();
        Ok(())
    }

    async fn take_event(&mut self, event: SocketEvent) -> Result<(), CloseReason> {
        match event {
            SocketEvent::Response(text, id) => self.take_response(text, id).await,
            SocketEvent::Refused(failure) => match self.owed() {
                Some(owed) => self.write_failure(&owed.call, failure, owed.entry).await,
                None => Ok(()),
            },
            SocketEvent::Notification(text, id) if self.subscriptions.have_relayed(&id) => {
                self.rpc.counters.ws_notified(WsKind::Relayed);
                self.write_unsent(text).await
            }
            SocketEvent::Notification(..) => Ok(()), // the client has ended it
            SocketEvent::Ended(end) => self.upstream_ended(end).await,
        }
    }

    /// The oldest call that the upstream owes a response to.
    fn owed(&mut self) -> Option<Pending> {
        let owed = self.upstream.as_mut()?.pending.pop_front()?;
        Some(owed)
    }

    async fn take_response(
        &mut self,
        text: Unsent,
        id: Option<Box<str>>,
    ) -> Result<(), CloseReason> {
        let Some(owed) = self.owed() else { return Ok(()) };
        owed.calls.time(&self.rpc.counters, owed.began.elapsed());
        if let (Some(id), Some(upstream)) = (id, &mut self.upstream) {
            let account = self.rpc.memory.account(self.address);
            // The client could not end what it does not know: the upstream would send for ever.
            if !self.subscriptions.add_relayed(&id, account) {
                upstream.socket.unsubscribe(id);
                return self.write_failure(&owed.call, Failure::Limited, owed.entry).await;
            }
            upstream.ids.push(id);
        }
        let len = text.text.len() as u64;
        let written = self.write_unsent(text).await;
        if let Some(entry) = &owed.entry {
            entry.ends(if written.is_ok() { len } else { 0 }, written.is_ok());
        }
        written
    }

    /// Writes a message of the upstream to the byte. Until it is written it counts as waiting.
    async fn write_unsent(&mut self, unsent: Unsent) -> Result<(), CloseReason> {
        let Unsent { text, reservation, waiting } = unsent;
        let mut body = ResponseBody::from(text);
        body.keep(Some(reservation));
        let written = self.write(answer(body)).await;
        drop(waiting);
        written
    }

    /// Ends subscriptions at the upstream that the client has ended, and the socket with the last.
    pub(super) fn end_relayed(&mut self) {
        let Some(UpstreamSocket { socket, pending, ids }) = &mut self.upstream else { return };
        // The client has no others, and each message comes here: mostly none has ended.
        if self.subscriptions.relayed().count() < ids.len() {
            let open: HashSet<&str> = self.subscriptions.relayed().collect();
            let ended = ids.extract_if(.., |id| !open.contains(&**id));
            ended.for_each(|id| socket.unsubscribe(id));
        }
        // Each socket takes a place of the client's address, and a connection of the upstream.
        if ids.is_empty() && pending.is_empty() {
            self.upstream = None;
        }
    }

    /// Tells the client. With a subscription its connection ends, as with the death of a node:
    /// clients then connect and subscribe again, and no gap goes unnoticed.
    async fn upstream_ended(&mut self, end: SocketEnd) -> Result<(), CloseReason> {
        let Some(upstream) = self.upstream.take() else { return Ok(()) };
        match end {
            // Without a subscription nothing is lost but the calls, which get errors; the
            // connection stays.
            SocketEnd::Failed(failure) if upstream.ids.is_empty() => {
                for owed in upstream.pending {
                    self.write_failure(&owed.call, failure, owed.entry).await?;
                }
                Ok(())
            }
            SocketEnd::Failed(failure) => Err(closed_by(failure)),
            SocketEnd::TooSlow(max) => {
                let reason = format!("too slow: over {max} bytes of notifications wait");
                Err(CloseReason::told(WsClose::Lagging, CloseCode::Policy, reason))
            }
            SocketEnd::NoMemory => Err(CloseReason::no_memory()),
        }
    }
}

fn closed_by(failure: Failure) -> CloseReason {
    let (code, reason) = match failure {
        Failure::TooLong(max) => {
            (CloseCode::Error, format!("relay: a notification is longer than {max} bytes"))
        }
        _ => (CloseCode::Restart, "relay: the upstream of a subscription left".to_owned()),
    };
    CloseReason::told(WsClose::Upstream, code, reason)
}

fn unfilled(why: &NotFilled) -> CloseReason {
    match why {
        NotFilled::NoMemory => CloseReason::no_memory(),
        NotFilled::NotDone => busy(),
    }
}

fn note_source(entry: Option<&AccessEntry>, source: &'static str) {
    if let Some(entry) = entry {
        entry.note_source(Some(source));
    }
}
