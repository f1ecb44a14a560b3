//! Asks the upstream for what no block tells.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metrics::counter;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use super::value_type::{Unfit, check};
use crate::client::{CallError, PeerText};
use crate::shared::{CONSTANT, CURRENT, Phase, Serving, Status};
use crate::upstream::{Upstream, UpstreamPool};

/// Nothing is asked for more often than this, however fast heads come.
const PAUSE: Duration = Duration::from_secs(1);
/// Time between two requests for the upstream's identity without a new connection: it may have been
/// replaced behind its address, or have lied.
const REFRESH: Duration = Duration::from_mins(1);
/// Pause after an answer that is not relayed.
const AGAIN: Duration = Duration::from_secs(5);
/// The pause after a refusal that names none.
const THROTTLED: Duration = Duration::from_secs(10);

/// Asks for what the upstream is after each connection to it, and for prices at each head that is
/// published while its head is followed, and when a client wants one. Following never waits for this: what does not come is
/// not served.
pub(crate) async fn run(
    pool: Arc<UpstreamPool>,
    serving: Arc<Serving>,
    status: Arc<Status>,
    bytes_max: usize,
) {
    let mut heads = serving.heads();
    let mut again = Instant::now() + REFRESH;
    loop {
        let methods = tokio::select! {
            () = serving.relayed.connected() => &CONSTANT[..],
            () = sleep_until(again) => &CONSTANT[..],
            () = serving.relayed.wanted() => {
                if serving.relayed.are_prices_due() { &CURRENT[..] } else { continue }
            }
            changed = heads.changed() => match changed {
                Ok(()) if status.words().phase == Phase::Following => &CURRENT[..],
                Ok(()) => &[],
                Err(_) => return,
            },
        };
        let asked = relay_all(&pool, &serving, methods, bytes_max).await;
        // Clients that wait for prices go on, with or without them.
        if methods == CURRENT {
            serving.relayed.prices_requested(asked.complete);
        }
        if methods == CONSTANT {
            again = Instant::now() + if asked.complete { REFRESH } else { AGAIN };
        }
        sleep(asked.pause.max(PAUSE)).await;
    }
}

/// Results of the requests.
struct Asked {
    /// Time that the upstream wants to be left alone.
    pause: Duration,
    /// True if every method has a result, or is one that the upstream does not have.
    complete: bool,
}

/// Asks each upstream in turn, the best first, until one gives a result that fits its method.
async fn relay_all(
    pool: &UpstreamPool,
    serving: &Serving,
    methods: &[&'static str],
    bytes_max: usize,
) -> Asked {
    let mut asked = Asked { pause: Duration::ZERO, complete: true };
    for method in methods {
        let (mut relayed, mut lacking, admitted) = (false, 0, pool.admitted());
        for (_, upstream) in &admitted {
            if let Some(left) = upstream.resting() {
                asked.pause = asked.pause.max(left);
                continue;
            }
            match relay(upstream, serving, method, bytes_max).await {
                Relay::Done => relayed = true,
                Relay::Lacks => lacking += 1,
                Relay::Unfit => {}
                Relay::Throttled(after) => asked.pause = asked.pause.max(after),
            }
            if relayed {
                // One has given the value: pauses of the others hold up nothing.
                asked.pause = Duration::ZERO;
                break;
            }
        }
        let none_has_it = lacking > 0 && lacking == admitted.len();
        if none_has_it {
            serving.relayed.set(method, None); // an old value must not stay
        }
        asked.complete &= relayed || none_has_it;
    }
    asked
}

/// Outcome of a request.
enum Relay {
    /// The upstream gave a value.
    Done,
    /// The upstream has no such method.
    Lacks,
    /// The upstream did not respond, or with a value that neve rejects.
    Unfit,
    /// The upstream wants a pause.
    Throttled(Duration),
}

async fn relay(
    upstream: &Upstream,
    serving: &Serving,
    method: &'static str,
    bytes_max: usize,
) -> Relay {
    upstream.charge(1);
    match upstream.client.call(method, "[]").await {
        Ok(result) => {
            let result = result.unwrap_or(Bytes::from_static(b"null"));
            let Err(unfit) = check(method, &result, bytes_max) else {
                // The slice would keep the whole body.
                serving.relayed.set(method, Some(Bytes::copy_from_slice(&result)));
                return Relay::Done;
            };
            serving.relayed.set(method, None);
            reject(upstream, method, &result, unfit);
            Relay::Unfit
        }
        Err(CallError::Rpc { .. }) => Relay::Lacks,
        Err(CallError::Throttled { after, .. }) => {
            let after = after.unwrap_or(THROTTLED);
            upstream.pause(after);
            Relay::Throttled(after)
        }
        Err(error) => {
            debug!(method, %error, "not relayed"); // the old result ages
            Relay::Unfit
        }
    }
}

/// Says and counts that a result is not relayed.
fn reject(upstream: &Upstream, method: &'static str, result: &[u8], unfit: Unfit) {
    let (reason, upstream) = (unfit.reason(), &upstream.name);
    let bytes = result.len();
    counter!("neve_upstream_rejected_values_total", "method" => method, "reason" => reason)
        .increment(1);
    let result = PeerText::from_bytes(result);
    warn!(%upstream, method, reason, bytes, %result, "upstream value rejected");
}
