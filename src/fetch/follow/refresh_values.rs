//! Asks the upstream for what no block tells.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use metrics::counter;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
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
/// Time after which another upstream is asked as well: a client waits two seconds for a price.
const SLOW: Duration = Duration::from_millis(500);
/// Time for a value from all upstreams. Meanwhile none is asked for again.
const TIME_MAX: Duration = Duration::from_secs(5);

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
        let Some(methods) = due(&serving, &status, &mut heads, again).await else { return };
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

/// Waits until methods are due, at `again` those that are constant. `None` if neve stops.
async fn due(
    serving: &Serving,
    status: &Status,
    heads: &mut watch::Receiver<Option<u64>>,
    again: Instant,
) -> Option<&'static [&'static str]> {
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
                Err(_) => return None,
            },
        };
        return Some(methods);
    }
}

/// Results of the requests.
struct Asked {
    /// Time that the upstream wants to be left alone.
    pause: Duration,
    /// True if every method has a result, or is one that the upstream does not have.
    complete: bool,
}

/// Asks for all values at once. A method that stalls holds up the end of the round, up to `TIME_MAX`.
async fn relay_all(
    pool: &UpstreamPool,
    serving: &Serving,
    methods: &[&'static str],
    bytes_max: usize,
) -> Asked {
    let admitted = pool.admitted();
    let upstreams: Vec<_> = admitted.iter().map(|(_, upstream)| &**upstream).collect();
    let asking = methods.iter().map(|&method| relay_one(&upstreams, serving, method, bytes_max));
    let asked = join_all(asking).await;
    Asked {
        pause: asked.iter().map(|one| one.pause).max().unwrap_or_default(),
        complete: asked.iter().all(|one| one.complete),
    }
}

/// Asks the upstreams, the best first, until one gives a result that fits the method. One that is slow is left
/// to respond while the next one is asked.
async fn relay_one(
    upstreams: &[&Upstream],
    serving: &Serving,
    method: &'static str,
    bytes_max: usize,
) -> Asked {
    let (mut pause, mut lacking, end) = (Duration::ZERO, 0, Instant::now() + TIME_MAX);
    let (mut left, mut asking) = (upstreams.iter(), FuturesUnordered::new());
    loop {
        let next = left.next();
        match next.map(|upstream| (upstream, upstream.resting())) {
            Some((_, Some(rest))) => {
                pause = pause.max(rest);
                continue;
            }
            Some((upstream, None)) => asking.push(relay(upstream, serving, method, bytes_max)),
            None if asking.is_empty() => break,
            None => {}
        }
        let until = if next.is_some() { end.min(Instant::now() + SLOW) } else { end };
        match timeout_at(until, asking.next()).await {
            // One has given the value: pauses of the others hold up nothing.
            Ok(Some(RefreshOutcome::Done)) => {
                return Asked { pause: Duration::ZERO, complete: true };
            }
            Ok(Some(RefreshOutcome::Lacks)) => lacking += 1,
            Ok(Some(RefreshOutcome::Throttled(after))) => pause = pause.max(after),
            Err(_) if next.is_none() || until == end => break,
            Ok(Some(RefreshOutcome::Unfit) | None) | Err(_) => {}
        }
    }
    let none_has_it = lacking > 0 && lacking == upstreams.len();
    if none_has_it {
        serving.relayed.set(method, None); // an old value must not stay
    }
    Asked { pause, complete: none_has_it }
}

/// Outcome of a request.
enum RefreshOutcome {
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
) -> RefreshOutcome {
    upstream.charge(1);
    match upstream.client.call(method, "[]").await {
        Ok(result) => {
            let result = result.unwrap_or(Bytes::from_static(b"null"));
            let Err(unfit) = check(method, &result, bytes_max) else {
                // The slice would keep the whole body.
                serving.relayed.set(method, Some(Bytes::copy_from_slice(&result)));
                return RefreshOutcome::Done;
            };
            serving.relayed.set(method, None);
            reject(upstream, method, &result, unfit);
            RefreshOutcome::Unfit
        }
        Err(CallError::Rpc { .. }) => RefreshOutcome::Lacks,
        Err(CallError::Throttled { after, .. }) => {
            let after = after.unwrap_or(THROTTLED);
            upstream.pause(after);
            RefreshOutcome::Throttled(after)
        }
        Err(error) => {
            debug!(method, %error, "not relayed"); // the old result ages
            RefreshOutcome::Unfit
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
