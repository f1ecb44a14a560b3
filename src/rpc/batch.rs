//! Batches: answered whole, refused or relayed whole, or split between neve and an upstream.

use std::time::{Duration, Instant};

use neve_jsonrpc::{Kind, Message, RpcError, envelope};
use neve_store::residency;
use neve_store::residency::Cold;

use super::call::Rpc;
use super::caller::Caller;
use super::missing::{Missing, Unanswered, missing_data, range_json};
use super::outbound::Outbound;
use super::response::{RpcResponse, lone_error, unheard};
use super::split::Split;
use crate::body::{AcceptEncoding, ResponseBody};
use crate::rpc::methods::Miss;
use crate::shared::{MethodLabel, MissReason, Outcome, Stop};

/// Time after which a batch goes to a thread where it holds up no other connection. The number of
/// calls does not bound it: a search or a fee history may take long by itself.
const LONG_BATCH: Duration = Duration::from_millis(2);
/// Calls between two looks at the clock.
const LOOK_EVERY: usize = 8;

/// Reason why a batch stops before its end. An [`Unanswered`] message of a split batch stops nothing.
enum BatchStop {
    /// The batch as a whole has this reply.
    With(Box<RpcResponse>),
    /// A call is a miss, and batches are not split.
    Missed(Missing),
    /// The messages from this one on get this error.
    From(usize, RpcError),
    /// Another thread does the whole batch again.
    Cold,
}

impl BatchStop {
    // Boxed: each call of a batch would have space for a response that is rare.
    fn with(reply: RpcResponse) -> Self {
        Self::With(Box::new(reply))
    }
}

impl From<Cold> for BatchStop {
    fn from(_: Cold) -> Self {
        Self::Cold
    }
}

impl Rpc {
    /// Answers a batch. Fails if another thread must do all of it.
    pub(super) fn batch(
        &self,
        messages: &[Message<'_>],
        caller: &mut Caller<'_>,
    ) -> Result<RpcResponse, Cold> {
        if let Some(refusal) = self.refusal_of_batch(messages) {
            return Ok(RpcResponse::Served(refusal));
        }
        let mut split = Split::new(messages.len(), caller.accepts());
        match self.items(messages, caller, &mut split) {
            Ok(()) => split.end(),
            Err(BatchStop::With(reply)) => return Ok(*reply),
            Err(BatchStop::Cold) => return Err(Cold),
            Err(BatchStop::Missed(why)) => {
                // The full node executes the whole batch again, so filters that it made here must go.
                caller.changes.undo(&self.filters);
                drop(split);
                return Ok(self.missed_batch(messages, &why, caller));
            }
            Err(BatchStop::From(at, error)) => split.cut_short(&messages[at..], &error),
        }
        RpcResponse::of_batch(split, messages)
    }

    /// Error in place of a batch that has no message, or too many.
    fn refusal_of_batch(&self, messages: &[Message<'_>]) -> Option<ResponseBody> {
        if messages.is_empty() {
            return Some(lone_error(b"null", &RpcError::EMPTY_BATCH));
        }
        self.is_too_long(messages).then(|| too_many(messages))
    }

    /// True if a batch has so many messages that it is refused whole.
    pub(super) fn is_too_long(&self, messages: &[Message<'_>]) -> bool {
        messages.len() > self.limits.batch_items_max
    }

    fn items(
        &self,
        messages: &[Message<'_>],
        caller: &mut Caller<'_>,
        split: &mut Split,
    ) -> Result<(), BatchStop> {
        let (mut result_bytes, began) = (0, Instant::now());
        for (at, message) in messages.iter().enumerate() {
            if at % LOOK_EVERY == LOOK_EVERY - 1 && began.elapsed() > LONG_BATCH {
                residency::not_here()?;
            }
            self.check_work(at, caller)?;
            result_bytes += self.item(message, caller, split)?;
            if result_bytes > self.limits.batch_response_bytes_max {
                return Err(BatchStop::From(at + 1, RpcError::RESPONSE_TOO_LARGE));
            }
        }
        match caller.work.ended() {
            // No call is left for the error, but a node that is late ends the batch without a newline.
            Some(Stop::Late) => Err(BatchStop::From(messages.len(), RpcError::TIMED_OUT)),
            _ => Ok(()),
        }
    }

    /// Stops a batch at message `at` if it may take no more time, or if its client has gone.
    fn check_work(&self, at: usize, caller: &mut Caller<'_>) -> Result<(), BatchStop> {
        match caller.work.check() {
            // The bytes of one search are used up; calls that examine none may still succeed.
            None | Some(Stop::Examined) => Ok(()),
            Some(Stop::Late) => Err(BatchStop::From(at, RpcError::TIMED_OUT)),
            Some(Stop::Gone) => {
                // No client will know the ids of filters that the batch made.
                caller.changes.undo(&self.filters);
                Err(BatchStop::with(unheard()))
            }
        }
    }

    /// Answers one message; returns the bytes that count for the limit of results.
    fn item(
        &self,
        message: &Message<'_>,
        caller: &mut Caller<'_>,
        split: &mut Split,
    ) -> Result<usize, BatchStop> {
        let before = split.begin();
        let counted = match self.message(message, caller, split.out()) {
            // An error has no result. Its bytes count all the same, or a batch of errors would be
            // unbounded.
            Ok(0) => split.served(before),
            Ok(result_len) => {
                split.served(before);
                result_len
            }
            Err(why) => self.unanswered_item(message, why, before, split).map(|()| 0)?,
        };
        if !caller.memory.covers(split.held()) {
            return Err(BatchStop::with(RpcResponse::NoMemory));
        }
        Ok(counted)
    }

    /// Takes the beginning of an answer back that does not come, or leaves its message to an upstream. Fails if that stops
    /// the batch.
    fn unanswered_item(
        &self,
        message: &Message<'_>,
        why: Unanswered,
        before: usize,
        split: &mut Split,
    ) -> Result<(), BatchStop> {
        match why {
            Unanswered::Silent => split.take_back(before),
            Unanswered::Cold => return Err(BatchStop::Cold),
            Unanswered::Missed(why) => {
                if let Some(again) = self.reply_again(&why) {
                    return Err(BatchStop::with(again));
                }
                if !self.misses.split {
                    return Err(BatchStop::Missed(why));
                }
                self.missed_item(message, &why, before, split);
            }
            Unanswered::NoMemory => return Err(BatchStop::with(RpcResponse::NoMemory)),
        }
        Ok(())
    }

    /// Reply if the whole batch is answered again, when a missed value or missed heights have come.
    fn reply_again(&self, why: &Missing) -> Option<RpcResponse> {
        if self.awaits_prices(why) {
            return Some(RpcResponse::Prices);
        }
        self.is_below(why).then_some(RpcResponse::Below)
    }

    /// Leaves a missed message of a batch to an upstream, or refuses it alone.
    fn missed_item(&self, message: &Message<'_>, why: &Missing, before: usize, split: &mut Split) {
        let is_call = message.kind() == Kind::Call;
        // A notification gets no response, and takes no place in the array.
        if !is_call {
            split.take_back(before);
        }
        if self.relays(message) {
            split.leave(message, self.misses.broadcasts);
        } else {
            let error = is_call.then(|| self.refusal(why));
            split.refused(message, error);
        }
    }

    /// Relays or refuses a whole batch. After a miss a router asks a full node for the whole batch,
    /// because few routers can merge two responses. So each call counts as a miss, also those that neve
    /// could serve.
    pub(super) fn missed_batch(
        &self,
        messages: &[Message<'_>],
        why: &Missing,
        caller: &mut Caller<'_>,
    ) -> RpcResponse {
        note_missed(messages, caller);
        let relays = |message: &Message<'_>| {
            !matches!(message.kind(), Kind::Call | Kind::Notification) || self.relays(message)
        };
        if self.misses.relay.is_some() && messages.iter().all(relays) {
            return relayed_whole(messages, caller.accepts(), self.misses.broadcasts);
        }
        self.refuse_batch(messages, why)
    }

    /// Refuses each call of a batch.
    fn refuse_batch(&self, messages: &[Message<'_>], why: &Missing) -> RpcResponse {
        // All items get one text. It names no method or block, which would be those of another call.
        let range = self.serving.reader.range();
        let error = match why {
            Missing::Data(Miss::Empty) => missing_data(Miss::Empty, None),
            _ => missing_data(Miss::InBatch, range.as_ref()),
        };
        let (mut out, held) = (Vec::new(), range_json(range.as_ref()));
        for message in calls(messages) {
            out.push(if out.is_empty() { b'[' } else { b',' });
            envelope::error_with_data(&mut out, message.id(), &error, &held);
        }
        out.extend_from_slice(if out.is_empty() { b"[]\n" } else { b"]\n" });
        RpcResponse::Miss(ResponseBody::from(out))
    }
}

/// Counts each call of a batch as a miss.
fn note_missed(messages: &[Message<'_>], caller: &mut Caller<'_>) {
    // The call that failed keeps its reason; all others get "in batch".
    let mut cause = std::mem::take(&mut caller.calls).newest_miss();
    for message in calls(messages) {
        let method = MethodLabel::of(message);
        let outcome = match cause.take_if(|(missed, _)| *missed == method) {
            Some((_, outcome)) => outcome,
            None => Outcome::Miss(MissReason::InBatch),
        };
        caller.calls.note(method, outcome);
    }
}

/// All of a batch for an upstream, or for several if calls name filters or a transaction goes to all: their
/// responses are put together again.
fn relayed_whole(
    messages: &[Message<'_>],
    accepts: AcceptEncoding,
    broadcasts: bool,
) -> RpcResponse {
    let whole = Outbound::batch(messages);
    // A filter is known only to the upstream that opened it.
    if !whole.has_parts(messages, broadcasts) {
        return RpcResponse::Relay(whole);
    }
    let mut split = Split::new(messages.len(), accepts);
    messages.iter().for_each(|message| split.leave_whole(message, broadcasts));
    split.end();
    split.outbound.end();
    RpcResponse::Split(Box::new(split))
}

fn too_many(messages: &[Message<'_>]) -> ResponseBody {
    // One error with the id of the first call, as libevm has it (`rpc/handler.go`).
    let id = first_call(messages).map_or(&b"null"[..], Message::id);
    let mut out = vec![b'['];
    envelope::error(&mut out, id, &RpcError::BATCH_TOO_LARGE);
    out.push(b']');
    ResponseBody::from(out)
}

/// The first call of a batch: its id is the only one that the refusal of a batch that is too long repeats.
pub(super) fn first_call<'m, 'b>(messages: &'m [Message<'b>]) -> Option<&'m Message<'b>> {
    calls(messages).next()
}

/// The messages of a batch that are calls.
fn calls<'m, 'b>(messages: &'m [Message<'b>]) -> impl Iterator<Item = &'m Message<'b>> {
    messages.iter().filter(|message| message.kind() == Kind::Call)
}
