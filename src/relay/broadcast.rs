//! A transaction for all upstreams (`--relay-broadcast`): the first that takes it answers.
//!
//! A request goes on when the first response has come, and also when its client has gone. Until then
//! it keeps the place and the memory of the client's request.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Response, StatusCode};
use metrics::counter;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::timeout_at;

use super::answer::{Answer, AnswerBody, Begun, Counted, SHORT_BYTES};
use super::exchange::{Relay, RelayRequest, TokioInstant};
use super::failure::Failure;
use super::state::RelayState;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Response to a call, as far as it matters here.
#[derive(Deserialize)]
struct Outcome<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

impl Relay {
    /// Sends a call to all upstreams. Returns the first response with a result; without any, the
    /// first response; without any, the last failure.
    pub(super) async fn broadcast(
        &self,
        request: &RelayRequest,
        mut counted: Counted,
    ) -> Result<Answer, Failure> {
        let deadline = TokioInstant::now() + self.state.config.timeout;
        let mut outcomes = self.send_to_all(request, deadline);
        let (mut refused, mut failure) = (None, Failure::NoUpstream);
        while let Some(outcome) = outcomes.recv().await {
            match outcome {
                Ok(bytes) if is_result(&bytes) => return Ok(self.answer(bytes, deadline, counted)),
                // An error counts only if all fail: one node may know the transaction already, or
                // be full.
                Ok(bytes) => _ = refused.get_or_insert(bytes),
                Err(why) => failure = why,
            }
        }
        if let Some(bytes) = refused {
            return Ok(self.answer(bytes, deadline, counted));
        }
        counted.outcome = failure.label();
        Err(failure)
    }

    /// Begins a request to each upstream; the outcomes come as they end.
    fn send_to_all(
        &self,
        request: &RelayRequest,
        deadline: TokioInstant,
    ) -> mpsc::UnboundedReceiver<Result<Bytes, Failure>> {
        let (tell, outcomes) = mpsc::unbounded_channel();
        let mut places = Vec::new();
        let now = Instant::now();
        for candidate in self.state.candidates(request.head, &request.calls, now) {
            if places.contains(&candidate.place) {
                continue; // one that stands alone
            }
            places.push(candidate.place);
            let permit = Arc::clone(&self.state.sending).try_acquire_owned();
            let entered = permit
                .map_err(|_| Failure::Limited)
                .and_then(|permit| self.state.enter(&candidate, now).map(|()| permit));
            let permit = match entered {
                Ok(permit) => permit,
                Err(failure) => {
                    count(Err(failure));
                    let _ = tell.send(Err(failure)); // the receiver is here
                    continue;
                }
            };
            let (state, client) = (Arc::clone(&self.state), self.clients[candidate.place].clone());
            let (body, more) = (request.body.clone(), request.headers(state.number));
            let (tell, kept) = (tell.clone(), request.kept.clone());
            tokio::spawn(async move {
                let _held = (permit, kept);
                let asking = ask(&state, candidate.place, client.send(None, body, more));
                let outcome = timeout_at(deadline, asking).await.unwrap_or_else(|_| {
                    state.gate(candidate.place).timed_out(Instant::now());
                    Err(Failure::TimedOut)
                });
                count(outcome.as_ref().map(|bytes| is_result(bytes)).map_err(|why| *why));
                let _ = tell.send(outcome); // the first response may have come before
            });
        }
        outcomes
    }

    fn answer(&self, bytes: Bytes, deadline: TokioInstant, counted: Counted) -> Answer {
        let (begun, tick) = (Begun::whole(bytes), self.ticker.tick());
        let body = AnswerBody::new(begun, SHORT_BYTES, deadline, tick, counted);
        Answer { status: StatusCode::OK, content_type: Some(JSON), lacks: false, body }
    }
}

/// Awaits a response, and reads it whole.
async fn ask<E>(
    state: &RelayState,
    place: usize,
    sending: impl Future<Output = Result<Response<Incoming>, E>>,
) -> Result<Bytes, Failure> {
    let began = Instant::now();
    let answered = async {
        let response = sending.await.map_err(|_| Failure::Unreachable)?;
        let response = state.check(place, response, true)?;
        let took = began.elapsed();
        let begun = Begun::read(response.into_body()).await?;
        // The response to a transaction is a hash or an error: a long one is neither.
        let whole = begun.short().ok_or(Failure::TooLong(SHORT_BYTES))?;
        // Before any of it reaches the client.
        state.check_text(place, whole)?;
        Ok((whole.clone(), took))
    };
    let answered = answered.await;
    match &answered {
        Ok((_, took)) => state.gate(place).answered(*took, Instant::now()),
        Err(failure) => state.gate(place).misanswered(*failure, Instant::now()),
    }
    answered.map(|(whole, _)| whole)
}

/// Counts the outcome of one upstream: true if it took the transaction.
fn count(outcome: Result<bool, Failure>) {
    let outcome = match outcome {
        Ok(true) => "ok",
        Ok(false) => "rejected",
        Err(failure) => failure.label(),
    };
    counter!("neve_relay_broadcasts_total", "outcome" => outcome).increment(1);
}

fn is_result(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Outcome<'_>>(bytes).is_ok_and(|outcome| outcome.result.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_is_told_from_an_error() {
        assert!(is_result(br#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#));
        for other in [&br#"{"id":1,"error":{"code":1,"message":"nonce too low"}}"#[..], b"{", b"[]"]
        {
            assert!(!is_result(other));
        }
    }
}
