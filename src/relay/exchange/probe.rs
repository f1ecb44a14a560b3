//! Calls of neve's own to an upstream. One whose calls fail is asked what no client chooses: else one client
//! could have it left alone for all.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue, VIA};
use tokio::time::timeout;

use super::super::breaker::PROBE_MAX;
use super::super::failure::{Blame, Failure};
use super::super::hops::Hops;
use super::super::state::RelayState;
use super::super::upstream_response::BegunBody;
use super::Relay;
use crate::client::StreamClient;

/// Call of a probe, which any node and any neve answers from memory.
const PROBE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;

impl Relay {
    /// Asks an upstream beside the calls of clients, if some of these failed and no other probe is in flight.
    pub(in crate::relay) fn probe_if_due(&self, place: usize) {
        let mut gate = self.state.gate(place);
        // The clock is read only if it decides: this is asked twice a call.
        if gate.breaker.is_suspect() && gate.breaker.begins_probe(Instant::now()) {
            drop(gate);
            tokio::spawn(probe(Arc::clone(&self.state), self.clients[place].clone(), place));
        }
    }
}

async fn probe(state: Arc<RelayState>, client: StreamClient, place: usize) {
    let via = Hops::default().value(&state.hop).map(|via| (Some(VIA), via));
    let asked = timeout(PROBE_MAX, ask_own(&state, &client, place, PROBE, via)).await;
    let works = match asked {
        Ok(Ok(body)) => body.may_be_response(),
        Ok(Err(failure)) => failure.blame() != Blame::Upstream,
        Err(_) => false,
    };
    state.gate(place).breaker.note_probe(works, Instant::now());
}

/// Begin of the response to a call of neve's own.
pub(super) async fn ask_own(
    state: &RelayState,
    client: &StreamClient,
    place: usize,
    call: &'static str,
    more: impl IntoIterator<Item = (Option<HeaderName>, HeaderValue)>,
) -> Result<BegunBody, Failure> {
    let sent = client.send(None, Some(Bytes::from_static(call.as_bytes())), more).await;
    let response = state.check(place, sent.map_err(|_| Failure::Unreachable)?, true)?;
    BegunBody::read(response.into_body()).await
}
