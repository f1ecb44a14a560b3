//! Bodies of requests: parsed and answered, with a reservation for the response.

use std::slice;
use std::time::Instant;

use neve_jsonrpc::{Message, Method, Query, Request, RpcError, envelope, parse_at_most};
use neve_store::residency;
use neve_store::residency::Cold;

use super::batch::first_call;
use super::call::Rpc;
use super::caller::Calls;
use super::caller::{Caller, Transport, ids_fit};
use super::missing::{Missing, Unanswered};
use super::outbound::Outbound;
use super::response::{RpcResponse, lone_error};
use crate::body::{AcceptEncoding, BodyBuilder, ResponseBody};
use crate::rpc::cursors::{FilterKind, is_filter_id};
use crate::rpc::methods::{Fetched, Miss};
use crate::shared::{Began, Class, ClientAddress, MethodLabel, MissReason, Outcome, Stop, Work};

/// Longest body that a serving thread parses. A list of topics of 4.9 MB takes 40 ms, and other
/// connections would wait.
pub(crate) const LONG_BODY: usize = 32 << 10;

impl Rpc {
    /// Answers the body of a request.
    pub(crate) fn answer(
        &self,
        body: &[u8],
        accepts: AcceptEncoding,
        address: ClientAddress,
        work: &Work<'_>,
    ) -> Result<(RpcResponse, Calls), Cold> {
        let mut caller = Caller::new(Transport::Http(accepts), work, self.memory.account(address));
        let reply = match self.parse_for(body, &caller) {
            None => Ok(RpcResponse::NoMemory),
            Some(Request::Empty) => Ok(RpcResponse::Served(ResponseBody::default())),
            Some(Request::Malformed) => {
                Ok(RpcResponse::Served(lone_error(b"null", &RpcError::PARSE)))
            }
            Some(Request::Single(message)) => self.single(&message, &mut caller),
            Some(Request::Batch(messages)) => self.batch(&messages, &mut caller),
        };
        self.settle(reply, caller)
    }

    /// Gives the reservation to the body, or refuses it if there is too little memory.
    pub(super) fn settle(
        &self,
        reply: Result<RpcResponse, Cold>,
        caller: Caller<'_>,
    ) -> Result<(RpcResponse, Calls), Cold> {
        let Caller { memory, mut changes, calls, .. } = caller;
        // Another thread repeats the whole body, so the changes of this attempt go.
        let reply = reply.inspect_err(|_| changes.undo(&self.filters))?;
        let reply = match reply {
            RpcResponse::Served(mut body) if body.fits(&memory) => {
                body.keep(memory.into_reservation());
                RpcResponse::Served(body)
            }
            RpcResponse::Miss(mut body) if body.fits(&memory) => {
                body.keep(memory.into_reservation());
                RpcResponse::Miss(body)
            }
            RpcResponse::Mixed(mut mixed) if mixed.body.fits(&memory) => {
                mixed.body.keep(memory.into_reservation());
                RpcResponse::Mixed(mixed)
            }
            RpcResponse::Split(mut split) if memory.covers(split.held()) => {
                split.keep(memory.into_reservation());
                (split.outbound.calls, split.changes) = (Some(calls), changes);
                return Ok((RpcResponse::Split(split), Calls::default()));
            }
            RpcResponse::Relay(mut outbound) if memory.covers(outbound.held()) => {
                outbound.keep(memory.into_reservation());
                outbound.calls = Some(calls);
                return Ok((RpcResponse::Relay(outbound), Calls::default()));
            }
            again @ (RpcResponse::Prices | RpcResponse::Below) => {
                changes.undo(&self.filters);
                return Ok((again, Calls::default())); // the whole body is answered again
            }
            _ => {
                changes.undo(&self.filters);
                RpcResponse::NoMemory
            }
        };
        Ok((reply, calls))
    }

    /// Answers unless that takes the disk or long. `count` gets the calls of the response.
    pub(crate) fn answer_if_resident(
        &self,
        body: &[u8],
        accepts: AcceptEncoding,
        address: ClientAddress,
        count: impl FnOnce(Calls),
    ) -> Result<RpcResponse, Cold> {
        // Parsing alone would hold up the other connections of this thread.
        if body.len() > LONG_BODY {
            return Err(Cold);
        }
        let work = Work::here(self.limits.work);
        let answered = residency::if_sendable(|| self.answer(body, accepts, address, &work));
        answered.map(|(reply, calls)| {
            count(calls);
            reply
        })
    }

    /// Answers on a thread that may wait for a disk. `None` if the client has gone.
    pub(crate) fn answer_waiting(
        &self,
        body: &[u8],
        accepts: AcceptEncoding,
        address: ClientAddress,
        work: &Work<'_>,
    ) -> Option<(RpcResponse, Calls)> {
        if work.check() == Some(Stop::Gone) {
            return None; // its client left while it was in the queue
        }
        let answered = residency::loading_again(|| self.answer(body, accepts, address, work));
        let answered = answered.unwrap_or_else(|_| self.unreadable(body, accepts, address, work));
        (work.ended() != Some(Stop::Gone)).then_some(answered)
    }

    /// Makes a miss of a whole body, because the disk does not deliver bytes that it needs.
    pub(super) fn unreadable(
        &self,
        body: &[u8],
        accepts: AcceptEncoding,
        address: ClientAddress,
        work: &Work<'_>,
    ) -> (RpcResponse, Calls) {
        let mut caller = Caller::new(Transport::Http(accepts), work, self.memory.account(address));
        let why = Missing::Data(Miss::Disk);
        let reply = match self.parse_for(body, &caller) {
            None => RpcResponse::NoMemory,
            Some(Request::Single(message)) => self.unread(&message, &why, &mut caller),
            Some(Request::Batch(messages)) => self.missed_batch(&messages, &why, &mut caller),
            // The store is not needed for these.
            Some(Request::Empty | Request::Malformed) => {
                RpcResponse::Served(ResponseBody::default())
            }
        };
        // Nothing here reads the store.
        self.settle(Ok(reply), caller).unwrap_or((RpcResponse::NoMemory, Calls::default()))
    }

    fn unread(&self, message: &Message<'_>, why: &Missing, caller: &mut Caller<'_>) -> RpcResponse {
        caller.calls.note(MethodLabel::of(message), Outcome::Miss(MissReason::Unreadable));
        self.missed(message, why)
    }

    /// Returns the class of a body that cannot be answered on a serving thread.
    pub(crate) fn class(&self, body: &[u8]) -> Class {
        // To parse so much takes as long as a search.
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
                    // A filter of blocks reads one hash for each height, and searches nothing.
                    let filter = self.filters.get(&id, Instant::now());
                    filter.is_some_and(|filter| matches!(filter.topic, FilterKind::Logs(..)))
                }
                _ => false,
            },
            Some(method) => method.is_debug_raw(),
            None => false,
        }
    }

    pub(super) fn parse<'a>(&self, body: &'a [u8]) -> Request<'a> {
        parse_at_most(body, self.limits.batch_items_max)
    }

    /// Parses a body that gets a response, and reserves the ids that the response repeats, also a refusal. `None` if
    /// the client has too little memory left.
    pub(super) fn parse_for<'b>(&self, body: &'b [u8], caller: &Caller<'_>) -> Option<Request<'b>> {
        let request = self.parse(body);
        let fits = match &request {
            Request::Single(message) => ids_fit(slice::from_ref(message), caller),
            Request::Batch(messages) if self.is_too_long(messages) => {
                let call = first_call(messages);
                ids_fit(call.map_or(&[][..], slice::from_ref), caller)
            }
            Request::Batch(messages) => ids_fit(messages, caller),
            Request::Empty | Request::Malformed => true,
        };
        fits.then_some(request)
    }

    pub(super) fn single(
        &self,
        message: &Message<'_>,
        caller: &mut Caller<'_>,
    ) -> Result<RpcResponse, Cold> {
        let mut out = BodyBuilder::new(1, caller.accepts());
        match self.message(message, caller, &mut out) {
            Ok(_) if caller.work.ended().is_some() => {} // the node's time-out error has no newline
            Ok(_) => out.text().extend_from_slice(envelope::NEWLINE),
            Err(Unanswered::Silent) => {}
            Err(Unanswered::NoMemory) => return Ok(RpcResponse::NoMemory),
            Err(Unanswered::Missed(why)) if self.is_below(&why) => {
                return Ok(RpcResponse::Below);
            }
            Err(Unanswered::Missed(why)) => return Ok(self.missed(message, &why)),
            Err(Unanswered::Cold) => return Err(Cold),
        }
        Ok(RpcResponse::Served(out.finish()?))
    }

    /// Relays or refuses a single call.
    fn missed(&self, message: &Message<'_>, why: &Missing) -> RpcResponse {
        if self.awaits_prices(why) {
            return RpcResponse::Prices;
        }
        let method = message.method();
        // Only kinds that neve does not have: its own subscriptions can begin at an old height, which an
        // upstream's cannot.
        let subscribes =
            matches!(why, Missing::Method(_)) && self.misses.relays_subscription(&method);
        if subscribes || self.relays_by(message, &method) {
            return RpcResponse::Relay(Outbound::single(message));
        }
        self.refuse(message, why)
    }

    /// True if an upstream may answer a missed call. No upstream knows a filter that neve made: it would say that the
    /// filter is gone.
    pub(super) fn relays(&self, message: &Message<'_>) -> bool {
        self.relays_by(message, &message.method())
    }

    /// True if an upstream may answer a missed call of this method.
    fn relays_by(&self, message: &Message<'_>, method: &str) -> bool {
        self.misses.relays(method) && !self.is_about_own_filter(message)
    }

    fn is_about_own_filter(&self, message: &Message<'_>) -> bool {
        use Method::{FilterChanges, FilterLogs, UninstallFilter};
        // First by the name alone: the parameters of other calls need not be read again.
        if !matches!(message.served(), Some(FilterLogs | FilterChanges | UninstallFilter)) {
            return false;
        }
        let Ok((_, query)) = message.query(self.serving.rules()) else { return false };
        let (Query::FilterLogs(id) | Query::FilterChanges(id) | Query::UninstallFilter(id)) = query
        else {
            return false;
        };
        self.serving.identity().is_some_and(|chain| is_filter_id(&id, &chain))
    }

    /// True if the miss is for a price that an upstream can give in a moment. Once: if it gave none, the miss stays
    /// one.
    pub(super) fn awaits_prices(&self, why: &Missing) -> bool {
        let Missing::Data(Miss::NotRelayed(method)) = why else { return false };
        let may_wait = self.fetched.prices_since.is_none() && !self.limits.price_age_max.is_zero();
        may_wait && self.serving.relayed.is_due(method)
    }

    /// Has prices requested for a request that began at `began`.
    pub(crate) async fn with_prices(&self, began: Began) -> Self {
        self.serving.relayed.request_prices().await;
        let fetched = Fetched { prices_since: Some(began), ..self.fetched.clone() };
        Self { fetched, ..self.clone() }
    }

    /// Refuses a single call.
    fn refuse(&self, message: &Message<'_>, why: &Missing) -> RpcResponse {
        let (mut out, (error, held)) = (Vec::new(), self.refusal(why));
        envelope::error_with_data(&mut out, message.id(), &error, &held);
        out.extend_from_slice(envelope::NEWLINE);
        RpcResponse::Miss(ResponseBody::from(out))
    }
}
