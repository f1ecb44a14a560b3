//! JSON-RPC over a body: single calls, batches, misses. Everything here is computation on what is
//! mapped; nothing waits.

use std::ops::RangeInclusive;
use std::sync::Arc;

use neve_jsonrpc::{Kind, Message, Method, NoQuery, Request, RpcError, envelope, parse};

use super::answer::{self, Miss};
use super::reply::{Builder, ReplyBody};
use crate::config::Limits;
use crate::serving::Serving;
use crate::tally::{Outcome, Tally};

/// What a body is answered with.
pub(crate) enum Reply {
    /// The node's answer.
    Answer(ReplyBody),
    /// A full node must be asked. The body says so too.
    Miss(ReplyBody),
}

/// Answers bodies.
pub(crate) struct Rpc {
    pub(crate) serving: Arc<Serving>,
    pub(crate) limits: Limits,
    pub(crate) tally: Arc<Tally>,
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

impl Rpc {
    /// Answers one body.
    pub(crate) fn answer(&self, body: &[u8]) -> Reply {
        match parse(body) {
            Request::Empty => Reply::Answer(Builder::default().finish()),
            Request::Malformed => Reply::Answer(lone_error(b"null", &RpcError::PARSE)),
            Request::Single(message) => self.single(&message),
            Request::Batch(messages) => self.batch(&messages),
        }
    }

    fn single(&self, message: &Message<'_>) -> Reply {
        let mut out = Builder::default();
        match self.message(message, &mut out) {
            Ok(_) => out.text().extend_from_slice(envelope::NEWLINE),
            Err(Unanswered::Silent) => {}
            Err(Unanswered::Missed(why)) => {
                let mut out = Vec::new();
                self.refuse(&mut out, message, &why);
                out.extend_from_slice(envelope::NEWLINE);
                return Reply::Miss(ReplyBody::from(bytes::Bytes::from(out)));
            }
        }
        Reply::Answer(out.finish())
    }

    /// Answers all of a batch, or nothing of it: a router that hears of a miss asks a full node
    /// for the whole, because few can merge.
    fn batch(&self, messages: &[Message<'_>]) -> Reply {
        if messages.is_empty() {
            return Reply::Answer(lone_error(b"null", &RpcError::EMPTY_BATCH));
        }
        if messages.len() > self.limits.batch_items_max {
            return Reply::Answer(too_many(messages));
        }
        let (mut out, mut answers, mut result_bytes) = (Builder::default(), 0, 0);
        for (at, message) in messages.iter().enumerate() {
            let before = (out.len(), answers);
            out.text().push(if answers == 0 { b'[' } else { b',' });
            match self.message(message, &mut out) {
                Ok(result_len) => {
                    (answers, result_bytes) = (answers + 1, result_bytes + result_len);
                }
                Err(Unanswered::Silent) => {
                    debug_assert_eq!(out.len(), before.0 + 1);
                    out.text().pop();
                }
                Err(Unanswered::Missed(why)) => return self.refuse_batch(messages, &why),
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
    fn message(&self, message: &Message<'_>, out: &mut Builder) -> Result<usize, Unanswered> {
        match message.kind() {
            Kind::Call => self.call(message, out),
            Kind::Notification => self.notification(message),
            Kind::Response => Err(Unanswered::Silent),
            Kind::Invalid => {
                envelope::error(out.text(), message.id(), &RpcError::INVALID_REQUEST);
                Ok(0)
            }
        }
    }

    fn call(&self, message: &Message<'_>, out: &mut Builder) -> Result<usize, Unanswered> {
        let (method, query) = match message.query(self.serving.rules()) {
            Ok(asked) => asked,
            Err(NoQuery::NotServed) => return Err(self.not_served(message)),
            Err(NoQuery::Error(error)) => {
                self.tally.call(Method::from_name(message.method()), Outcome::Error);
                envelope::error(out.text(), message.id(), &error);
                return Ok(0);
            }
            Err(NoQuery::Null) => {
                self.tally.call(Method::from_name(message.method()), Outcome::Error);
                envelope::lead(out.text(), message.id());
                out.text().extend_from_slice(b"null}");
                return Ok(4);
            }
        };
        envelope::lead(out.text(), message.id());
        let before = out.len();
        let answered = answer::result(&self.serving, query, out);
        let outcome = if answered.is_ok() { Outcome::Hit } else { Outcome::Miss };
        self.tally.call(Some(method), outcome);
        answered.map_err(|miss| Unanswered::Missed(Missing::Data(miss)))?;
        let len = out.len() - before;
        out.text().extend_from_slice(envelope::TAIL);
        Ok(len)
    }

    /// A read without an id has no effect; anything else may have one, at a full node.
    fn notification(&self, message: &Message<'_>) -> Result<usize, Unanswered> {
        match message.query(self.serving.rules()) {
            Err(NoQuery::NotServed) => Err(self.not_served(message)),
            _ => Err(Unanswered::Silent),
        }
    }

    fn not_served(&self, message: &Message<'_>) -> Unanswered {
        self.tally.call(None, Outcome::Miss);
        Unanswered::Missed(Missing::Method(message.method().to_owned()))
    }

    fn refuse_batch(&self, messages: &[Message<'_>], why: &Missing) -> Reply {
        let mut out = Vec::new();
        for message in messages.iter().filter(|message| message.kind() == Kind::Call) {
            out.push(if out.is_empty() { b'[' } else { b',' });
            self.refuse(&mut out, message, why);
        }
        out.extend_from_slice(if out.is_empty() { b"[]\n" } else { b"]\n" });
        Reply::Miss(ReplyBody::from(bytes::Bytes::from(out)))
    }

    /// Appends the error that goes with a miss. Its words are those by which routers know that
    /// another upstream may have the data: "header not found" and "requested data is not
    /// available"; of a method, the node's own.
    fn refuse(&self, out: &mut Vec<u8>, message: &Message<'_>, why: &Missing) {
        let range = self.serving.reader.range();
        let error = match why {
            Missing::Method(name) => RpcError::no_method(name),
            Missing::Data(miss) => missing_data(*miss, range.as_ref()),
        };
        envelope::error_with_data(out, message.id(), &error, &range_json(range.as_ref()));
    }
}

fn missing_data(miss: Miss, range: Option<&RangeInclusive<u64>>) -> RpcError {
    let what = match miss {
        Miss::Empty => "nothing is held yet".to_owned(),
        Miss::Height(height) => format!("block {height:#x} is not held"),
        Miss::Unreadable(height) => format!("block {height:#x} cannot be read"),
        Miss::Hash(hash) => format!("{} is not held", neve_store::Hash(hash)),
    };
    let held = range.map_or_else(String::new, |range| {
        format!(" (held: {:#x} to {:#x})", range.start(), range.end())
    });
    let message = format!("header not found: {what}{held}; requested data is not available here");
    RpcError { code: -32000, message: message.into() }
}

/// The served range as the error's `data`.
fn range_json(range: Option<&RangeInclusive<u64>>) -> String {
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
