//! Transactions for all upstreams (`--relay-broadcast`): of each the first upstream that takes it answers.
//! Those of a batch go in one batch, so that a node gets them in their order.
//!
//! A request goes on when the first response has come, and also when its client has gone. Until its end it
//! keeps the memory of the client's request, and until an upstream has taken all transactions its place.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Response, StatusCode};
use metrics::counter;
use neve_jsonrpc::envelope;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::timeout_at;

use super::exchange::{Relay, RelayRequest, SharedGuard, TokioInstant};
use super::failure::Failure;
use super::gate::UpstreamGate;
use super::state::RelayState;
use super::upstream_response::{
    BegunBody, Counted, UpstreamBody, UpstreamResponse, transactions_bytes_max,
};
use crate::rpc::{Transactions, answers_of};
use crate::shared::lock::lock;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Response to a call, as far as it matters here.
#[derive(Deserialize)]
struct BroadcastReply<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Word of one upstream on one transaction.
struct Verdict {
    /// All of it, or of an item of a batch what stands behind the id.
    text: Bytes,
    /// True if the upstream took the transaction.
    is_result: bool,
}

/// Responses of one upstream to transactions, in their order.
type Responses = Vec<Option<Verdict>>;

/// Best response to each transaction so far.
struct Best {
    sent: Transactions,
    found: Responses,
    /// True if an upstream has responded.
    answered: bool,
}

impl Best {
    fn new(sent: Transactions) -> Self {
        let found = (0..sent.count).map(|_| None).collect();
        Self { sent, found, answered: false }
    }

    fn take(&mut self, responses: Responses) {
        self.answered = true;
        for (best, response) in self.found.iter_mut().zip(responses) {
            let is_better =
                |one: &Verdict| best.as_ref().is_none_or(|best| one.is_result && !best.is_result);
            // An error counts only if all fail: one node may know the transaction already, or be full.
            if response.as_ref().is_some_and(is_better) {
                *best = response;
            }
        }
    }

    /// True if no upstream can improve it.
    fn is_complete(&self) -> bool {
        let is_taken = |one: &Option<Verdict>| one.as_ref().is_some_and(|one| one.is_result);
        // A batch of notifications has no responses, and one upstream must have got it all the
        // same.
        self.answered && self.found.iter().all(is_taken)
    }

    /// The response to all of them.
    fn whole(self) -> Bytes {
        if !self.sent.in_batch {
            // A notification has no response.
            return self.found.into_iter().flatten().next().map(|one| one.text).unwrap_or_default();
        }
        let (mut out, mut number) = (Vec::new(), itoa::Buffer::new());
        for (at, one) in self.found.iter().enumerate() {
            let Some(one) = one else { continue };
            out.push(if out.is_empty() { b'[' } else { b',' });
            envelope::write_id(&mut out, number.format(at).as_bytes());
            out.extend_from_slice(&one.text);
        }
        out.extend_from_slice(if out.is_empty() { b"[]" } else { b"]" });
        out.into()
    }
}

/// Place of a broadcast among the requests of its client. An upstream that stalls must not keep it: the
/// transactions of a client would soon have all.
struct HeldPlace(Mutex<Option<SharedGuard>>);

impl HeldPlace {
    fn new(request: &RelayRequest) -> Self {
        Self(Mutex::new(request.kept.as_ref().map(|kept| Arc::clone(&kept.place))))
    }

    /// Gives the place back once an upstream has taken all transactions.
    fn note(&self, outcome: &Result<Responses, Failure>) {
        let is_taken = |one: &Option<Verdict>| one.as_ref().is_some_and(|one| one.is_result);
        if outcome.as_ref().is_ok_and(|responses| responses.iter().all(is_taken)) {
            *lock(&self.0) = None;
        }
    }
}

impl Relay {
    /// Sends transactions to all upstreams. Returns of each the first response with a result; without any,
    /// the first response. Without any response, returns the last failure.
    pub(super) async fn broadcast(
        &self,
        request: &RelayRequest,
        sent: Transactions,
        mut counted: Counted,
    ) -> Result<UpstreamResponse, Failure> {
        let deadline = TokioInstant::now() + self.state.config.timeout;
        let mut outcomes = self.send_to_all(request, sent, deadline);
        let (mut best, mut failure) = (Best::new(sent), Failure::NoUpstream);
        while !best.is_complete()
            && let Some(outcome) = outcomes.recv().await
        {
            match outcome {
                Ok(responses) => best.take(responses),
                Err(why) => failure = why,
            }
        }
        if best.answered {
            return Ok(self.answer(best.whole(), deadline, counted));
        }
        counted.outcome = failure.label();
        Err(failure)
    }

    /// Begins a request to each upstream; the outcomes come as they end.
    fn send_to_all(
        &self,
        request: &RelayRequest,
        sent: Transactions,
        deadline: TokioInstant,
    ) -> mpsc::UnboundedReceiver<Result<Responses, Failure>> {
        let (tell, outcomes) = mpsc::unbounded_channel(); // each upstream has one outcome
        let mut places = Vec::new();
        let (held, now) = (Arc::new(HeldPlace::new(request)), Instant::now());
        let rank = |gate: &UpstreamGate| gate.rank(true, now);
        for candidate in self.state.candidates(request.head, &request.calls, rank, now) {
            if places.contains(&candidate.place) {
                continue; // one that stands alone
            }
            places.push(candidate.place);
            self.probe_if_due(candidate.place);
            let permit = Arc::clone(&self.state.sending[candidate.place]).try_acquire_owned();
            let entered = permit.map_err(|_| Failure::Limited).and_then(|permit| {
                self.state.enter(&candidate, request.address, now).map(|()| permit)
            });
            let asking = match entered {
                Ok(permit) => (permit, self.ask_within(request, candidate.place, sent, deadline)),
                Err(failure) => {
                    count(sent, &Err(failure));
                    let _ = tell.send(Err(failure)); // the receiver is here
                    continue;
                }
            };
            let (tell, held) = (tell.clone(), Arc::clone(&held));
            let memory = request.kept.as_ref().map(|kept| Arc::clone(&kept.memory));
            tokio::spawn(async move {
                // Held until this upstream has answered, also without the client.
                let ((_permit, asking), _memory) = (asking, memory);
                let outcome = asking.await;
                count(sent, &outcome);
                // Before the response: the client may send its next call at once.
                held.note(&outcome);
                let _ = tell.send(outcome); // the first response may have come before
            });
        }
        outcomes
    }

    /// Asks an upstream until the deadline; the future outlives the client.
    fn ask_within(
        &self,
        request: &RelayRequest,
        place: usize,
        sent: Transactions,
        deadline: TokioInstant,
    ) -> impl Future<Output = Result<Responses, Failure>> + use<> {
        let (state, client) = (Arc::clone(&self.state), self.clients[place].clone());
        let (body, more) = (request.body.clone(), request.headers(&state.hop));
        async move {
            let asking = ask(&state, place, sent, client.send(None, body, more));
            timeout_at(deadline, asking).await.unwrap_or_else(|_| {
                state.gate(place).timed_out(Instant::now());
                Err(Failure::TimedOut)
            })
        }
    }

    fn answer(&self, bytes: Bytes, deadline: TokioInstant, counted: Counted) -> UpstreamResponse {
        let (max, begun, tick) = (bytes.len(), BegunBody::whole(bytes), self.ticker.tick());
        let body = UpstreamBody::new((begun, None), max, deadline, tick, counted);
        UpstreamResponse { status: StatusCode::OK, content_type: Some(JSON), behind: false, body }
    }
}

/// Awaits a response, and reads the responses to the transactions in it.
async fn ask<E>(
    state: &RelayState,
    place: usize,
    sent: Transactions,
    sending: impl Future<Output = Result<Response<Incoming>, E>>,
) -> Result<Responses, Failure> {
    let began = Instant::now();
    let answered = async {
        let response = sending.await.map_err(|_| Failure::Unreachable)?;
        let response = state.check(place, response, true)?;
        let took = began.elapsed();
        let responses = read(state, place, sent, response.into_body()).await?;
        Ok::<_, Failure>((responses, took))
    };
    let answered = answered.await;
    match &answered {
        Ok((_, took)) => state.gate(place).answered(*took, Instant::now()),
        Err(failure) => state.gate(place).misanswered(*failure, Instant::now()),
    }
    answered.map(|(responses, _)| responses)
}

/// Reads the responses to transactions from a body.
async fn read(
    state: &RelayState,
    place: usize,
    sent: Transactions,
    body: Incoming,
) -> Result<Responses, Failure> {
    // The response to a transaction is a hash or an error: a long one is neither.
    let max = transactions_bytes_max(sent);
    let begun = BegunBody::read_up_to(body, max).await?;
    let whole = begun.short().ok_or(Failure::TooLong(max))?;
    // Before any of it reaches the client.
    state.check_text(place, whole)?;
    if sent.count > 0 && !begun.may_be_response() {
        return Err(Failure::NotJson);
    }
    let responses = responses(sent, whole.clone())?;
    // None of a batch either: that upstream is not a quick one.
    if sent.count > 0 && responses.iter().all(Option::is_none) {
        return Err(Failure::NotJson);
    }
    Ok(responses)
}

/// The responses in that of one upstream. A text that is none, such as the page of a balancer, counts for
/// nothing: another upstream's error is the better one.
fn responses(sent: Transactions, bytes: Bytes) -> Result<Responses, Failure> {
    if !sent.in_batch {
        if sent.count == 0 {
            return Ok(Responses::new()); // a notification has none
        }
        let is_result = is_result(&bytes).ok_or(Failure::NotJson)?;
        return Ok(vec![Some(Verdict { text: bytes, is_result })]);
    }
    let texts = answers_of(&bytes, sent.count).into_iter();
    let response = |text: Bytes| {
        let result = text.strip_prefix(b",\"result\":");
        // No node answers a transaction with `null`, which also stands for an item without a result.
        let is_none = result.is_some_and(|result| result.starts_with(b"null"));
        let is_result = result.is_some();
        (!is_none).then_some(Verdict { text, is_result })
    };
    Ok(texts.map(|text| text.and_then(response)).collect())
}

/// Counts the outcome of one upstream for each transaction. A notification has none.
fn count(sent: Transactions, outcome: &Result<Responses, Failure>) {
    let add = |outcome, transactions| {
        counter!("neve_relay_broadcasts_total", "outcome" => outcome).increment(transactions);
    };
    let responses = match outcome {
        Ok(responses) => responses.iter().take(sent.count),
        Err(failure) => return add(failure.label(), sent.count as u64),
    };
    responses.for_each(|response| match response {
        Some(Verdict { is_result: true, .. }) => add("ok", 1),
        Some(_) => add("rejected", 1),
        None => add(Failure::NotJson.label(), 1), // a batch without it
    });
}

/// True for a result, false for an error; `None` for neither.
fn is_result(bytes: &[u8]) -> Option<bool> {
    let reply = serde_json::from_slice::<BroadcastReply<'_>>(bytes).ok()?;
    (reply.result.is_some() || reply.error.is_some()).then_some(reply.result.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_is_told_from_an_error() {
        assert_eq!(is_result(br#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#), Some(true));
        let error = br#"{"id":1,"error":{"code":1,"message":"nonce too low"}}"#;
        assert_eq!(is_result(error), Some(false));
        for other in [&b""[..], b"{", b"{}", b"[]", b"\"x\"", br#"{"result":null,"error":null}"#] {
            assert_eq!(is_result(other), None);
        }
    }

    #[test]
    fn each_transaction_of_a_batch_gets_the_first_result_of_any_upstream() {
        let sent = Transactions { in_batch: true, count: 4 };
        let mut best = Best::new(sent);
        let take = |best: &mut Best, body: &'static str| {
            best.take(responses(sent, Bytes::from_static(body.as_bytes())).unwrap());
        };
        assert!(!best.is_complete() && !best.answered);
        // No batch, an item that was not sent, an error, and null.
        take(&mut best, r#"{"jsonrpc":"2.0","id":0,"result":"no"}"#);
        take(
            &mut best,
            r#"[{"jsonrpc":"2.0","id":4,"result":"no"},{"jsonrpc":"2.0","id":1,"error":{"code":1}},{"jsonrpc":"2.0","id":2,"result":null}]"#,
        );
        take(
            &mut best,
            r#"[{"result":"b","id":2},{"jsonrpc":"2.0","id":1,"error":{"code":2}},{"jsonrpc":"2.0","id":0,"result":"b"}]"#,
        );
        take(
            &mut best,
            r#"[{"jsonrpc":"2.0","id":0,"result":"c"},{"jsonrpc":"2.0","id":2,"error":{"code":3}}]"#,
        );
        assert!(!best.is_complete());
        let expected = r#"[{"jsonrpc":"2.0","id":0,"result":"b"},{"jsonrpc":"2.0","id":1,"error":{"code":1}},{"jsonrpc":"2.0","id":2,"result":"b"}]"#;
        assert_eq!(best.whole(), expected);
    }

    #[test]
    fn batch_is_complete_with_a_result_of_each_transaction() {
        let sent = Transactions { in_batch: true, count: 2 };
        let mut best = Best::new(sent);
        let response = |id: u32| format!(r#"[{{"jsonrpc":"2.0","id":{id},"result":"0x"}}]"#);
        best.take(responses(sent, response(1).into()).unwrap());
        assert!(!best.is_complete());
        best.take(responses(sent, response(0).into()).unwrap());
        assert!(best.is_complete());
        // Notifications wait for any response.
        let mut silent = Best::new(Transactions { in_batch: true, count: 0 });
        assert!(!silent.is_complete());
        silent.take(Responses::new());
        assert!(silent.is_complete());
    }
}
