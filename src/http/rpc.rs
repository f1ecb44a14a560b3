//! JSON-RPC over a body: single calls, batches, misses. Everything here is computation on what is
//! mapped; nothing waits.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use neve_jsonrpc::{
    Kind, Message, Method, NoQuery, Query, Request, RpcError, Subscription, envelope,
    parse_at_most, syntax_error,
};
use neve_store::residency;
use smallvec::SmallVec;

use super::answer::{self, Asking, Miss, NoAnswer};
use super::encoded::Accepts;
use super::reply::{Builder, ReplyBody};
use crate::config::Limits;
use crate::filters::{Changes, Filters};
use crate::serving::Serving;
use crate::status::Status;
use crate::tally::{Outcome, Tally};
use crate::ws::{NotOpened, Subscriptions};

/// A batch that takes longer goes to a thread where it holds up nobody: what a search of little that is
/// long, or fees of many blocks, take is not limited by how many there are.
const LONG_BATCH: Duration = Duration::from_millis(2);
/// After so many calls the clock is looked at.
const LOOK_EVERY: usize = 8;

/// What a body is answered with.
pub(crate) enum Reply {
    /// The node's answer.
    Answer(ReplyBody),
    /// A full node must be asked. The body says so too.
    Miss(ReplyBody),
}

/// What a frame of a WebSocket is answered with.
pub(crate) enum Frame {
    /// This.
    Answer(String),
    /// Nothing.
    Nothing,
    /// This, if anything, and then the end of the connection.
    Last(Option<String>),
}

/// Answers bodies.
pub(crate) struct Rpc {
    pub(crate) serving: Arc<Serving>,
    pub(crate) status: Arc<Status>,
    pub(crate) filters: Arc<Filters>,
    pub(crate) limits: Limits,
    pub(crate) tally: Arc<Tally>,
}

/// Who asks, and what was asked so far.
struct Caller<'s> {
    over: Over<'s>,
    calls: Calls,
    /// What is taken back if the batch is refused.
    changes: Changes,
}

/// Over what a message came, and how the answer may be.
enum Over<'s> {
    /// A request and its answer, and nothing after it.
    Http(Accepts),
    /// A connection that can be sent more later.
    Socket(&'s mut Subscriptions),
}

/// How the calls of a body ended. They are counted when the answer goes out: what is given up to
/// be done again is not.
#[derive(Default)]
pub(crate) struct Calls(SmallVec<[(Option<Method>, Outcome); 4]>);

impl Calls {
    fn note(&mut self, method: Option<Method>, outcome: Outcome) {
        self.0.push((method, outcome));
    }

    /// Counts them.
    pub(crate) fn count(self, tally: &Tally) {
        self.0.into_iter().for_each(|(method, outcome)| tally.call(method, outcome));
    }
}

/// Why a message has no answer in the batch or body that it is in.
enum Unanswered {
    /// It wants none.
    Silent,
    /// A full node must be asked.
    Missed(Missing),
}

/// A miss, with what names it.
enum Missing {
    Data(Miss),
    Method(String),
}

impl<'s> Caller<'s> {
    fn new(over: Over<'s>) -> Self {
        Self { over, calls: Calls::default(), changes: Changes::default() }
    }

    fn accepts(&self) -> Accepts {
        match self.over {
            Over::Http(accepts) => accepts,
            Over::Socket(_) => Accepts::default(),
        }
    }
}

impl Rpc {
    /// Answers the body of a request.
    pub(crate) fn answer(&self, body: &[u8], accepts: Accepts) -> (Reply, Calls) {
        let mut caller = Caller::new(Over::Http(accepts));
        let reply = match self.parse(body) {
            Request::Empty => Reply::Answer(Builder::default().finish()),
            Request::Malformed => Reply::Answer(lone_error(b"null", &RpcError::PARSE)),
            Request::Single(message) => self.single(&message, &mut caller),
            Request::Batch(messages) => self.batch(&messages, &mut caller),
        };
        (reply, caller.calls)
    }

    /// The same on a thread that may wait for a disk.
    pub(crate) fn answer_waiting(&self, body: &[u8], accepts: Accepts) -> (Reply, Calls) {
        residency::loading(|| self.answer(body, accepts))
    }

    /// Answers a frame of a WebSocket; what has no newline over HTTP has one here.
    pub(crate) fn answer_frame(
        &self,
        body: &[u8],
        subscriptions: &mut Subscriptions,
    ) -> (Frame, Calls) {
        subscriptions.begin();
        let mut caller = Caller::new(Over::Socket(subscriptions));
        let reply = match self.parse(body) {
            Request::Empty => return (Frame::Last(None), caller.calls),
            Request::Malformed => {
                return (Frame::Last(syntax_error(body).map(not_json)), caller.calls);
            }
            Request::Single(message) => self.single(&message, &mut caller),
            Request::Batch(messages) => self.batch(&messages, &mut caller),
        };
        let calls = caller.calls;
        let body = match reply {
            _ if residency::is_cold() => {
                subscriptions.undo(); // all of it is done again
                return (Frame::Nothing, calls);
            }
            Reply::Answer(body) => {
                subscriptions.keep();
                body
            }
            Reply::Miss(body) => {
                subscriptions.undo();
                body
            }
        };
        let mut bytes = body.into_bytes();
        if bytes.is_empty() {
            return (Frame::Nothing, calls);
        }
        if !bytes.ends_with(envelope::NEWLINE) {
            bytes.extend_from_slice(envelope::NEWLINE);
        }
        // An id that is not UTF-8 cannot be echoed in a text frame.
        (String::from_utf8(bytes).map_or(Frame::Last(None), Frame::Answer), calls)
    }

    fn parse<'a>(&self, body: &'a [u8]) -> Request<'a> {
        parse_at_most(body, self.limits.batch_items_max)
    }

    fn single(&self, message: &Message<'_>, caller: &mut Caller<'_>) -> Reply {
        let mut out = Builder::new(1, caller.accepts());
        match self.message(message, caller, &mut out) {
            Ok(_) => out.text().extend_from_slice(envelope::NEWLINE),
            Err(Unanswered::Silent) => {}
            Err(Unanswered::Missed(why)) => {
                let (mut out, (error, held)) = (Vec::new(), self.refusal(&why));
                envelope::error_with_data(&mut out, message.id(), &error, &held);
                out.extend_from_slice(envelope::NEWLINE);
                return Reply::Miss(ReplyBody::from(bytes::Bytes::from(out)));
            }
        }
        Reply::Answer(out.finish())
    }

    /// Answers all of a batch, or nothing of it: a router that hears of a miss asks a full node
    /// for the whole, because few can merge.
    fn batch(&self, messages: &[Message<'_>], caller: &mut Caller<'_>) -> Reply {
        if messages.is_empty() {
            return Reply::Answer(lone_error(b"null", &RpcError::EMPTY_BATCH));
        }
        if messages.len() > self.limits.batch_items_max {
            return Reply::Answer(too_many(messages));
        }
        let mut out = Builder::new(messages.len(), caller.accepts());
        let (mut answers, mut result_bytes, began) = (0, 0, Instant::now());
        for (at, message) in messages.iter().enumerate() {
            if at % LOOK_EVERY == LOOK_EVERY - 1
                && began.elapsed() > LONG_BATCH
                && residency::give_up()
            {
                return dropped();
            }
            let before = (out.len(), answers);
            out.text().push(if answers == 0 { b'[' } else { b',' });
            match self.message(message, caller, &mut out) {
                Ok(result_len) => {
                    (answers, result_bytes) = (answers + 1, result_bytes + result_len);
                }
                Err(Unanswered::Silent) => {
                    debug_assert_eq!(out.len(), before.0 + 1);
                    out.text().pop();
                }
                Err(Unanswered::Missed(_)) if residency::is_cold() => return dropped(),
                Err(Unanswered::Missed(why)) => {
                    caller.changes.undo(&self.filters);
                    return self.refuse_batch(messages, &why);
                }
            }
            if result_bytes > self.limits.batch_response_bytes_max {
                return Reply::Answer(cut_short(out, &messages[at + 1..]));
            }
        }
        if answers > 0 {
            out.text().extend_from_slice(b"]\n");
        }
        Reply::Answer(out.finish())
    }

    /// Appends the answer to one message; returns how long its result is.
    fn message(
        &self,
        message: &Message<'_>,
        caller: &mut Caller<'_>,
        out: &mut Builder,
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
        out: &mut Builder,
    ) -> Result<usize, Unanswered> {
        if matches!(caller.over, Over::Socket(_))
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
                caller.calls.note(message.served(), Outcome::Error);
                envelope::error(out.text(), message.id(), &error);
                Ok(0)
            }
            Err(NoQuery::Null) => {
                caller.calls.note(message.served(), Outcome::Error);
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
        out: &mut Builder,
    ) -> Result<usize, Unanswered> {
        let start = out.text().len();
        envelope::lead(out.text(), message.id());
        let before = out.len();
        let asking = self.asking();
        let answered = answer::result(&asking, query, out);
        caller.changes.add(asking.changes);
        let outcome = match &answered {
            Ok(()) => Outcome::Hit,
            Err(NoAnswer::Error(_)) => Outcome::Error,
            Err(NoAnswer::Miss(_)) => Outcome::Miss,
        };
        caller.calls.note(Some(method), outcome);
        match answered {
            Ok(()) => {
                let len = out.len() - before;
                out.text().extend_from_slice(envelope::TAIL);
                Ok(len)
            }
            Err(NoAnswer::Error(error)) => {
                out.text().truncate(start); // the lead, behind which nothing was appended
                envelope::error(out.text(), message.id(), &error);
                Ok(0)
            }
            Err(NoAnswer::Miss(miss)) => Err(Unanswered::Missed(Missing::Data(miss))),
        }
    }

    fn asking(&self) -> Asking<'_> {
        Asking {
            serving: &self.serving,
            status: &self.status,
            filters: &self.filters,
            limits: &self.limits,
            changes: Changes::default(),
        }
    }

    /// Opens or ends a subscription.
    fn subscribe(
        &self,
        message: &Message<'_>,
        asked: Result<Subscription, NoQuery>,
        caller: &mut Caller<'_>,
        out: &mut Builder,
    ) -> Result<usize, Unanswered> {
        let Over::Socket(subscriptions) = &mut caller.over else {
            return Err(not_served(message, caller));
        };
        let opened = match asked {
            Ok(Subscription::Unsubscribe(id)) if subscriptions.close(&id) => {
                return Ok(short(message, "true", out));
            }
            Ok(Subscription::Unsubscribe(_)) => {
                Err(NotOpened::Error(RpcError::SUBSCRIPTION_NOT_FOUND))
            }
            Ok(wanted) => {
                subscriptions.open(wanted, self.serving.reader.range(), &self.filters.room)
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

    fn refuse_batch(&self, messages: &[Message<'_>], why: &Missing) -> Reply {
        let (mut out, (error, held)) = (Vec::new(), self.refusal(why));
        for message in messages.iter().filter(|message| message.kind() == Kind::Call) {
            out.push(if out.is_empty() { b'[' } else { b',' });
            envelope::error_with_data(&mut out, message.id(), &error, &held);
        }
        out.extend_from_slice(if out.is_empty() { b"[]\n" } else { b"]\n" });
        Reply::Miss(ReplyBody::from(bytes::Bytes::from(out)))
    }

    /// The error that goes with a miss, and its data. Its words are those by which routers know that
    /// another upstream may have the data: "header not found" and "requested data is not
    /// available"; of a method, the node's own.
    fn refusal(&self, why: &Missing) -> (RpcError, String) {
        let range = self.serving.reader.range();
        let error = match why {
            Missing::Method(name) => RpcError::no_method(name),
            Missing::Data(miss) => missing_data(*miss, range.as_ref()),
        };
        (error, range_json(range.as_ref()))
    }
}

/// What work that is given up ends with (`neve_store::residency`): nobody sees it.
fn dropped() -> Reply {
    Reply::Miss(Builder::default().finish())
}

fn not_served(message: &Message<'_>, caller: &mut Caller<'_>) -> Unanswered {
    caller.calls.note(None, Outcome::Miss);
    Unanswered::Missed(Missing::Method(message.method().into_owned()))
}

/// Appends an answer with a short result.
fn short(message: &Message<'_>, result: &str, out: &mut Builder) -> usize {
    envelope::lead(out.text(), message.id());
    out.text().extend_from_slice(result.as_bytes());
    out.text().extend_from_slice(envelope::TAIL);
    result.len()
}

/// A frame that is not JSON, as the node says it over WebSocket: with Go's words.
fn not_json(words: String) -> String {
    let error = RpcError { code: RpcError::PARSE.code, message: words.into() };
    let mut out = Vec::new();
    envelope::error(&mut out, b"null", &error);
    out.extend_from_slice(envelope::NEWLINE);
    String::from_utf8_lossy(&out).into_owned()
}

pub(super) fn missing_data(miss: Miss, range: Option<&RangeInclusive<u64>>) -> RpcError {
    let what = match miss {
        Miss::Empty => "nothing is held yet".to_owned(),
        Miss::Height(height) => format!("block {height:#x} is not held"),
        Miss::Unreadable(height) => format!("block {height:#x} cannot be read"),
        Miss::Hash(hash) => format!("{} is not held", neve_store::Hash(hash)),
        Miss::NotRelayed(method) => format!("{method} is not known now"),
    };
    let held = range.map_or_else(String::new, |range| {
        format!(" (held: {:#x} to {:#x})", range.start(), range.end())
    });
    let message = format!("header not found: {what}{held}; {}", RpcError::NOT_HERE);
    RpcError { code: -32000, message: message.into() }
}

/// The served range as the error's `data`.
pub(super) fn range_json(range: Option<&RangeInclusive<u64>>) -> String {
    match range {
        Some(range) => {
            format!("{{\"firstHeight\":\"{:#x}\",\"head\":\"{:#x}\"}}", range.start(), range.end())
        }
        None => "{\"firstHeight\":null,\"head\":null}".to_owned(),
    }
}

/// An error that goes around the node's encoder: it has no newline.
fn lone_error(id: &[u8], error: &RpcError) -> ReplyBody {
    let mut out = Vec::new();
    envelope::error(&mut out, id, error);
    ReplyBody::from(bytes::Bytes::from(out))
}

fn too_many(messages: &[Message<'_>]) -> ReplyBody {
    let call = messages.iter().find(|message| message.kind() == Kind::Call);
    let mut out = vec![b'['];
    envelope::error(&mut out, call.map_or(b"null", Message::id), &RpcError::BATCH_TOO_LARGE);
    out.push(b']');
    ReplyBody::from(bytes::Bytes::from(out))
}

/// The results so far are too long: what is left of the batch is told so. The answer that crossed
/// the limit stands, and there is no newline (libevm, rpc/handler.go).
fn cut_short(mut out: Builder, left: &[Message<'_>]) -> ReplyBody {
    for message in left {
        if matches!(message.kind(), Kind::Call | Kind::Invalid) {
            out.text().push(b',');
            envelope::error(out.text(), message.id(), &RpcError::RESPONSE_TOO_LARGE);
        }
    }
    out.text().push(b']');
    out.finish()
}
