//! JSON-RPC over a body: single calls, batches, misses. Everything here is computation on what is
//! mapped; nothing waits.

use std::ops::RangeInclusive;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use neve_jsonrpc::{
    Kind, Message, Method, NoQuery, Query, Request, RpcError, Subscription, envelope, excerpt,
    parse_at_most, syntax_error,
};
use neve_store::residency;
use smallvec::SmallVec;

use super::outbound::Outbound;
use super::split::{Mixed, Split};
use crate::body::{AcceptEncoding, BodyBuilder, ResponseBody};
use crate::config::settings::{Limits, MissPolicy};
use crate::http::Class;
use crate::rpc::cursors::{FilterKind, Filters, NotOpened, Replays, Subscriptions, UndoLog};
use crate::rpc::methods::{Miss, QueryContext, QueryError, execute};
use crate::shared::{
    Account, ClientAddress, MemoryBudget, Meter, MethodLabel, Outcome, Serving, Status, Stop,
    ThreadCounters, Work,
};

/// Bytes of a body whose reading alone takes too long for a thread that serves others: a list of
/// topics of 4.9 MB takes 40 ms.
pub(crate) const LONG_BODY: usize = 32 << 10;

/// Response to a body.
pub(crate) enum RpcResponse {
    /// The node's answer.
    Answer(ResponseBody),
    /// A full node must be asked. The body says so too.
    Miss(ResponseBody),
    /// A batch that neve answers in part: the rest is refused.
    Mixed(Mixed),
    /// An upstream must be asked.
    Relay(Outbound),
    /// A batch that neve answers in part: an upstream must be asked for the rest.
    Split(Box<Split>),
    /// Nothing: the client, or all clients together, use too much memory.
    NoRoom,
}

impl RpcResponse {
    /// True if an upstream must be asked.
    pub(crate) fn needs_upstream(&self) -> bool {
        matches!(self, Self::Relay(_) | Self::Split(_))
    }
}

/// Response to a frame of a WebSocket.
pub(crate) enum WsResponse {
    /// A response.
    Answer(ResponseBody),
    /// Nothing.
    Nothing,
    /// An upstream must be asked.
    Relay(Outbound),
    /// An upstream must be asked for the rest of a batch.
    Split(Box<Split>),
    /// A response, if any, and then the end of the connection.
    Last(Option<ResponseBody>),
    /// Nothing: the client, or all clients together, use too much memory.
    NoRoom,
}

/// Answers bodies.
pub(crate) struct Rpc {
    pub(crate) serving: Arc<Serving>,
    pub(crate) status: Arc<Status>,
    pub(crate) filters: Arc<Filters>,
    pub(crate) limits: Limits,
    /// Budget of the memory of clients.
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) tally: Arc<ThreadCounters>,
    /// Turns of this thread's subscribers that replay.
    pub(crate) replays: Replays,
    /// Treatment of misses.
    pub(crate) misses: MissPolicy,
}

/// Bytes of ids that a response repeats without a reservation made before.
const IDS_FREE_BYTES: usize = 4 << 10;

/// Client of a body, and its calls so far.
pub(super) struct Caller<'s> {
    over: Transport<'s>,
    pub(super) work: &'s Work<'s>,
    pub(super) calls: Calls,
    /// Meter of the response's memory.
    pub(super) memory: Meter<'s>,
    /// Changes to undo if the batch is refused.
    pub(super) changes: UndoLog,
}

/// Over what a message came, and how the answer may be.
enum Transport<'s> {
    /// A request and its answer, and nothing after it.
    Http(AcceptEncoding),
    /// A connection that can be sent more later.
    Socket(&'s mut Subscriptions),
}

/// How the calls of a body ended. They are counted when the answer goes out: what is given up to
/// be done again is not.
#[derive(Debug, Default)]
pub(crate) struct Calls(SmallVec<[(MethodLabel, Outcome); 4]>);

impl Calls {
    pub(super) fn note(&mut self, method: MethodLabel, outcome: Outcome) {
        self.0.push((method, outcome));
    }

    /// Counts them.
    pub(crate) fn count(self, tally: &ThreadCounters) {
        self.0.into_iter().for_each(|(method, outcome)| tally.call(method, outcome));
    }
}

/// Reason why a message has no answer in the batch or body that it is in.
pub(super) enum Unanswered {
    /// The message wants no response.
    Silent,
    /// A full node must be asked.
    Missed(Missing),
    /// Clients use too much memory.
    NoRoom,
}

/// A miss, with what names it.
pub(super) enum Missing {
    Data(Miss),
    Method(String),
}

impl<'s> Caller<'s> {
    fn new(over: Transport<'s>, work: &'s Work<'s>, account: Account<'s>) -> Self {
        let memory = Meter::new(account);
        Self { over, work, calls: Calls::default(), memory, changes: UndoLog::default() }
    }

    pub(super) fn accepts(&self) -> AcceptEncoding {
        match self.over {
            Transport::Http(accepts) => accepts,
            Transport::Socket(_) => AcceptEncoding::default(),
        }
    }
}

impl Rpc {
    /// Answers the body of a request.
    pub(crate) fn answer(
        &self,
        body: &[u8],
        accepts: AcceptEncoding,
        address: ClientAddress,
        work: &Work<'_>,
    ) -> (RpcResponse, Calls) {
        let mut caller = Caller::new(Transport::Http(accepts), work, self.memory.account(address));
        let reply = match self.parse(body) {
            Request::Empty => RpcResponse::Answer(BodyBuilder::default().finish()),
            Request::Malformed => RpcResponse::Answer(lone_error(b"null", &RpcError::PARSE)),
            Request::Single(message) => self.single(&message, &mut caller),
            Request::Batch(messages) => self.batch(&messages, &mut caller),
        };
        self.settle(reply, caller)
    }

    /// Has the body keep the memory that was reserved for it.
    fn settle(&self, reply: RpcResponse, caller: Caller<'_>) -> (RpcResponse, Calls) {
        let Caller { memory, mut changes, calls, .. } = caller;
        let reply = match reply {
            // The disk failed: all of it is done again.
            reply if residency::is_cold() => {
                changes.undo(&self.filters);
                reply
            }
            RpcResponse::Answer(mut body) if memory.covers(body.held()) => {
                body.keep(memory.into_reservation());
                RpcResponse::Answer(body)
            }
            RpcResponse::Miss(mut body) if memory.covers(body.held()) => {
                body.keep(memory.into_reservation());
                RpcResponse::Miss(body)
            }
            RpcResponse::Mixed(mut mixed) if memory.covers(mixed.body.held()) => {
                mixed.body.keep(memory.into_reservation());
                RpcResponse::Mixed(mixed)
            }
            RpcResponse::Split(mut split) if memory.covers(split.held()) => {
                split.keep(memory.into_reservation());
                split.outbound.calls = Some(calls);
                return (RpcResponse::Split(split), Calls::default());
            }
            RpcResponse::Relay(mut outbound) if memory.covers(outbound.held()) => {
                outbound.keep(memory.into_reservation());
                outbound.calls = Some(calls);
                return (RpcResponse::Relay(outbound), Calls::default());
            }
            _ => {
                changes.undo(&self.filters);
                RpcResponse::NoRoom
            }
        };
        (reply, calls)
    }

    /// The same on a thread that may wait for a disk. `None` if the client has gone.
    pub(crate) fn answer_waiting(
        &self,
        body: &[u8],
        accepts: AcceptEncoding,
        address: ClientAddress,
        work: &Work<'_>,
    ) -> Option<(RpcResponse, Calls)> {
        if work.check() == Some(Stop::Gone) {
            return None; // it was in the queue for long
        }
        let answered = residency::loading_again(|| self.answer(body, accepts, address, work));
        let answered = answered.unwrap_or_else(|_| self.unreadable(body, accepts, address, work));
        (work.ended() != Some(Stop::Gone)).then_some(answered)
    }

    /// A miss for all of a body, because the disk does not deliver what the answer needs.
    fn unreadable(
        &self,
        body: &[u8],
        accepts: AcceptEncoding,
        address: ClientAddress,
        work: &Work<'_>,
    ) -> (RpcResponse, Calls) {
        let mut caller = Caller::new(Transport::Http(accepts), work, self.memory.account(address));
        let why = Missing::Data(Miss::Disk);
        let reply = match self.parse(body) {
            Request::Single(message) => {
                caller.calls.note(MethodLabel::of(&message), Outcome::Miss);
                self.missed(&message, &why)
            }
            Request::Batch(messages) => self.missed_batch(&messages, &why, &mut caller),
            Request::Empty | Request::Malformed => dropped(), // the store is not needed for these
        };
        self.settle(reply, caller)
    }

    /// The same as a frame of a WebSocket.
    pub(crate) fn unreadable_frame(
        &self,
        body: &[u8],
        address: ClientAddress,
        work: &Work<'_>,
    ) -> (WsResponse, Calls) {
        let (reply, calls) = self.unreadable(body, AcceptEncoding::default(), address, work);
        let frame = match reply {
            RpcResponse::Answer(body) | RpcResponse::Miss(body) => framed(body),
            RpcResponse::Mixed(mixed) => framed(mixed.body),
            RpcResponse::Relay(call) => WsResponse::Relay(call),
            RpcResponse::Split(split) => WsResponse::Split(split),
            RpcResponse::NoRoom => WsResponse::NoRoom,
        };
        (frame, calls)
    }

    /// Returns the class of a body that cannot be answered on a serving thread.
    pub(crate) fn class(&self, body: &[u8]) -> Class {
        let searches = body.len() > LONG_BODY
            || match self.parse(body) {
                Request::Single(message) => self.searches(&message),
                Request::Batch(messages) => messages.iter().any(|message| self.searches(message)),
                Request::Empty | Request::Malformed => false,
            };
        if searches { Class::Search } else { Class::ColdRead }
    }

    fn searches(&self, message: &Message<'_>) -> bool {
        match message.served() {
            Some(Method::Logs | Method::FilterLogs | Method::FeeHistory) => true,
            Some(Method::FilterChanges) => match message.query(self.serving.rules()) {
                Ok((_, Query::FilterChanges(id))) => {
                    let filter = self.filters.get(&id, Instant::now());
                    filter.is_some_and(|filter| matches!(filter.topic, FilterKind::Logs(..)))
                }
                _ => false,
            },
            Some(method) => method.is_debug_raw(),
            None => false,
        }
    }

    /// Answers a frame of a WebSocket; what has no newline over HTTP has one here.
    pub(crate) fn answer_frame(
        &self,
        body: &[u8],
        subscriptions: &mut Subscriptions,
        address: ClientAddress,
        work: &Work<'_>,
    ) -> (WsResponse, Calls) {
        subscriptions.begin();
        work.check();
        let account = self.memory.account(address);
        let mut caller = Caller::new(Transport::Socket(&mut *subscriptions), work, account);
        let reply = match self.parse(body) {
            Request::Empty => return (WsResponse::Last(None), caller.calls),
            Request::Malformed => {
                return (WsResponse::Last(syntax_error(body).map(not_json)), caller.calls);
            }
            Request::Single(message) => self.single(&message, &mut caller),
            Request::Batch(messages) => self.batch(&messages, &mut caller),
        };
        let (reply, calls) = self.settle(reply, caller);
        let body = match reply {
            _ if residency::is_cold() => {
                subscriptions.undo(); // all of it is done again
                return (WsResponse::Nothing, calls);
            }
            _ if work.ended() == Some(Stop::Gone) => {
                subscriptions.undo();
                return (WsResponse::Last(None), calls);
            }
            RpcResponse::Answer(body) | RpcResponse::Mixed(Mixed { body, .. }) => {
                subscriptions.keep();
                body
            }
            RpcResponse::Split(split) => {
                subscriptions.keep();
                return (WsResponse::Split(split), calls);
            }
            RpcResponse::Miss(body) => {
                subscriptions.undo();
                body
            }
            RpcResponse::Relay(call) => {
                subscriptions.undo();
                return (WsResponse::Relay(call), calls);
            }
            RpcResponse::NoRoom => {
                subscriptions.undo();
                return (WsResponse::NoRoom, calls);
            }
        };
        if body.len() == 0 {
            return (WsResponse::Nothing, calls);
        }
        (framed(body), calls)
    }

    fn parse<'a>(&self, body: &'a [u8]) -> Request<'a> {
        parse_at_most(body, self.limits.batch_items_max)
    }

    fn single(&self, message: &Message<'_>, caller: &mut Caller<'_>) -> RpcResponse {
        if !ids_fit(slice::from_ref(message), caller) {
            return RpcResponse::NoRoom;
        }
        let mut out = BodyBuilder::new(1, caller.accepts());
        match self.message(message, caller, &mut out) {
            Ok(_) if caller.work.ended().is_some() => {} // the node's error has no newline then
            Ok(_) => out.text().extend_from_slice(envelope::NEWLINE),
            Err(Unanswered::Silent) => {}
            Err(Unanswered::NoRoom) => return RpcResponse::NoRoom,
            Err(Unanswered::Missed(why)) => return self.missed(message, &why),
        }
        RpcResponse::Answer(out.finish())
    }

    /// Has an upstream asked, or refuses a call that is not of a batch.
    fn missed(&self, message: &Message<'_>, why: &Missing) -> RpcResponse {
        if self.misses.relays(&message.method()) {
            return RpcResponse::Relay(Outbound::single(message));
        }
        self.refuse(message, why)
    }

    /// Refuses a call that is not of a batch.
    fn refuse(&self, message: &Message<'_>, why: &Missing) -> RpcResponse {
        let (mut out, (error, held)) = (Vec::new(), self.refusal(why));
        envelope::error_with_data(&mut out, message.id(), &error, &held);
        out.extend_from_slice(envelope::NEWLINE);
        RpcResponse::Miss(ResponseBody::from(out))
    }

    /// Appends the answer to one message; returns the length of its result, 0 for an error.
    pub(super) fn message(
        &self,
        message: &Message<'_>,
        caller: &mut Caller<'_>,
        out: &mut BodyBuilder,
    ) -> Result<usize, Unanswered> {
        match message.kind() {
            Kind::Call => self.call(message, caller, out),
            Kind::Notification => self.notification(message, caller),
            Kind::Response => Err(Unanswered::Silent),
            Kind::Invalid => {
                envelope::error(out.text(), message.id(), &RpcError::INVALID_REQUEST);
                Ok(0)
            }
        }
    }

    fn call(
        &self,
        message: &Message<'_>,
        caller: &mut Caller<'_>,
        out: &mut BodyBuilder,
    ) -> Result<usize, Unanswered> {
        if matches!(caller.over, Transport::Socket(_))
            && let Some(asked) = message.subscription(self.serving.rules()).transpose()
        {
            return self.subscribe(message, asked, caller, out);
        }
        match message.query(self.serving.rules()) {
            Ok((method, _)) if method.is_debug_raw() && !self.limits.debug_raw => {
                Err(not_served(message, caller))
            }
            Ok((method, query)) => self.ask(message, method, query, caller, out),
            Err(NoQuery::NotServed) => Err(not_served(message, caller)),
            Err(NoQuery::Error(error)) => {
                caller.calls.note(MethodLabel::of(message), Outcome::Error);
                envelope::error(out.text(), message.id(), &error);
                Ok(0)
            }
            Err(NoQuery::Null) => {
                caller.calls.note(MethodLabel::of(message), Outcome::Error);
                Ok(short(message, "null", out))
            }
        }
    }

    fn ask(
        &self,
        message: &Message<'_>,
        method: Method,
        query: Query,
        caller: &mut Caller<'_>,
        out: &mut BodyBuilder,
    ) -> Result<usize, Unanswered> {
        let start = out.text().len();
        envelope::write_prefix(out.text(), message.id());
        let before = out.len();
        let asking = self.asking(caller.work, &caller.memory);
        let answered = match caller.work.ended() {
            Some(_) => Err(caller.work.error().into()), // it waited for too long
            None => execute::result(&asking, query, out),
        };
        caller.changes.add(asking.changes);
        let outcome = match &answered {
            Ok(()) => Outcome::Hit,
            Err(QueryError::Error(_)) => Outcome::Error,
            Err(QueryError::Miss(_) | QueryError::NoRoom) => Outcome::Miss,
        };
        caller.calls.note(method.into(), outcome);
        match answered {
            Ok(()) => {
                let len = out.len() - before;
                out.text().extend_from_slice(envelope::SUFFIX);
                Ok(len)
            }
            Err(QueryError::Error(error)) => {
                out.text().truncate(start); // the lead, behind which nothing was appended
                envelope::error(out.text(), message.id(), &error);
                Ok(0)
            }
            Err(QueryError::Miss(miss)) => {
                out.text().truncate(start); // a batch that is split goes on
                Err(Unanswered::Missed(Missing::Data(miss)))
            }
            Err(QueryError::NoRoom) => Err(Unanswered::NoRoom),
        }
    }

    fn asking<'a>(&'a self, work: &'a Work<'a>, memory: &'a Meter<'a>) -> QueryContext<'a> {
        QueryContext {
            serving: &self.serving,
            status: &self.status,
            filters: &self.filters,
            limits: &self.limits,
            work,
            memory,
            changes: UndoLog::default(),
        }
    }

    /// Opens or ends a subscription.
    fn subscribe(
        &self,
        message: &Message<'_>,
        asked: Result<Subscription, NoQuery>,
        caller: &mut Caller<'_>,
        out: &mut BodyBuilder,
    ) -> Result<usize, Unanswered> {
        let Transport::Socket(subscriptions) = &mut caller.over else {
            return Err(not_served(message, caller));
        };
        let opened = match asked {
            Ok(Subscription::Unsubscribe(id)) if subscriptions.close(&id) => {
                return Ok(short(message, "true", out));
            }
            Ok(Subscription::Unsubscribe(_)) => {
                Err(NotOpened::Error(RpcError::SUBSCRIPTION_NOT_FOUND))
            }
            Ok(_) if self.serving.freshness.head_is_missed() => {
                return Err(Unanswered::Missed(Missing::Data(Miss::StaleHead)));
            }
            Ok(wanted) => {
                subscriptions.open(wanted, self.serving.reader.range(), caller.memory.account())
            }
            Err(NoQuery::Error(error)) => Err(NotOpened::Error(error)),
            Err(_) => return Err(not_served(message, caller)),
        };
        match opened {
            Ok(id) => Ok(short(message, &format!("\"{id}\""), out)),
            Err(NotOpened::Error(error)) => {
                envelope::error(out.text(), message.id(), &error);
                Ok(0)
            }
            Err(NotOpened::Missing(height)) => {
                Err(Unanswered::Missed(Missing::Data(Miss::Height(height))))
            }
        }
    }

    /// A read without an id has no effect; anything else may have one, at a full node.
    fn notification(
        &self,
        message: &Message<'_>,
        caller: &mut Caller<'_>,
    ) -> Result<usize, Unanswered> {
        match message.query(self.serving.rules()) {
            Err(NoQuery::NotServed) => Err(not_served(message, caller)),
            _ => Err(Unanswered::Silent),
        }
    }

    /// The error that goes with a miss, and its data. Its words are those by which routers know
    /// that another upstream may have the data: "header not found" and "requested data is not
    /// available". The node's own error for a method that it has not would make a router or a
    /// library give the method up for good.
    pub(super) fn refusal(&self, why: &Missing) -> (RpcError, String) {
        let range = self.serving.reader.range();
        let error = match why {
            Missing::Method(name) => {
                missing(&format!("the method {name} is not served"), range.as_ref())
            }
            Missing::Data(miss) => missing_data(*miss, range.as_ref()),
        };
        (error, range_json(range.as_ref()))
    }
}

/// A text frame. An id that is not UTF-8 cannot be echoed in one.
pub(crate) fn framed(mut body: ResponseBody) -> WsResponse {
    body.end_line();
    if body.is_utf8() { WsResponse::Answer(body) } else { WsResponse::Last(None) }
}

/// What work that is given up ends with (`neve_store::residency`): nobody sees it.
pub(super) fn dropped() -> RpcResponse {
    RpcResponse::Miss(BodyBuilder::default().finish())
}

/// True if work on this thread is given up, to be done again elsewhere.
pub(super) fn is_given_up() -> bool {
    residency::is_cold()
}

/// Reserves the text of ids before it is written: each `<` of an id becomes six bytes.
pub(super) fn ids_fit(messages: &[Message<'_>], caller: &Caller<'_>) -> bool {
    let ids = || messages.iter().map(Message::id);
    let bytes: usize = ids().map(<[u8]>::len).sum();
    bytes <= IDS_FREE_BYTES
        || caller.memory.covers(2 * ids().map(envelope::echoed_len).sum::<usize>())
}

fn not_served(message: &Message<'_>, caller: &mut Caller<'_>) -> Unanswered {
    caller.calls.note(MethodLabel::of(message), Outcome::Miss);
    Unanswered::Missed(Missing::Method(excerpt(&message.method()).into_owned()))
}

/// Appends an answer with a short result.
fn short(message: &Message<'_>, result: &str, out: &mut BodyBuilder) -> usize {
    envelope::write_prefix(out.text(), message.id());
    out.text().extend_from_slice(result.as_bytes());
    out.text().extend_from_slice(envelope::SUFFIX);
    result.len()
}

/// A frame that is not JSON, as the node says it over WebSocket: with Go's words.
fn not_json(words: String) -> ResponseBody {
    let error = RpcError { code: RpcError::PARSE.code, message: words.into() };
    let mut out = Vec::new();
    envelope::error(&mut out, b"null", &error);
    out.extend_from_slice(envelope::NEWLINE);
    String::from_utf8_lossy(&out).into_owned().into_bytes().into()
}

pub(crate) fn missing_data(miss: Miss, range: Option<&RangeInclusive<u64>>) -> RpcError {
    let what = match miss {
        Miss::Empty => "nothing is served yet".to_owned(),
        Miss::Height(height) => format!("block {height:#x} is not served"),
        Miss::Unreadable(height) => format!("block {height:#x} cannot be read"),
        Miss::Hash(hash) => format!("{} is not served", neve_store::Hash(hash)),
        Miss::Disk => "stored data cannot be read now".to_owned(),
        Miss::NotRelayed(method) => format!("{method} is not known now"),
        Miss::Filter => "the filter was not made here".to_owned(),
        Miss::InBatch => "a call of the batch is not served here".to_owned(),
        Miss::StaleHead => "the newest block is too old".to_owned(),
    };
    missing(&what, range)
}

fn missing(what: &str, range: Option<&RangeInclusive<u64>>) -> RpcError {
    let held = range.map_or_else(String::new, |range| {
        format!(" (served: {:#x} to {:#x})", range.start(), range.end())
    });
    let message = format!("header not found: {what}{held}; {}", RpcError::NOT_AVAILABLE);
    RpcError { code: -32000, message: message.into() }
}

/// The served range as the error's `data`.
pub(crate) fn range_json(range: Option<&RangeInclusive<u64>>) -> String {
    match range {
        Some(range) => {
            format!("{{\"firstHeight\":\"{:#x}\",\"head\":\"{:#x}\"}}", range.start(), range.end())
        }
        None => "{\"firstHeight\":null,\"head\":null}".to_owned(),
    }
}

/// An error that goes around the node's encoder: it has no newline.
pub(super) fn lone_error(id: &[u8], error: &RpcError) -> ResponseBody {
    let mut out = Vec::new();
    envelope::error(&mut out, id, error);
    ResponseBody::from(out)
}
