//! Comparison of the head's age with `--ready-age-max`, and of the head with the upstream's head.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use crate::config::settings::{LiveReady, ReadyConfig};
use crate::shared::{Serving, Status};

/// Time between two comparisons: the flag is at most so late.
const EVERY: Duration = Duration::from_secs(1);
/// Time between two looks at the upstream's head after a start.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time that a start waits for an upstream's head.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// Returns the age of the head and its limit, if the age is over the limit.
pub(crate) fn stale_age(ready: &ReadyConfig, serving: &Serving) -> Option<(Duration, Duration)> {
    let max = ready.age_max(serving.identity()?.chain_id)?;
    serving.freshness.head_age().filter(|age| *age > max).map(|age| (age, max))
}

/// Waits for an upstream's head, so that no client gets a miss for the head of the last run if it is the newest; not
/// if the store is empty or each upstream fails.
pub(crate) async fn upstream_head(serving: &Serving, status: &Status, ready: &ReadyConfig) {
    let is_known = || {
        let is_empty = serving.reader.range().is_none();
        is_empty
            || serving.freshness.follows_nobody()
            || status.proven_head().is_some()
            || all_have_failed(status)
    };
    let known = async {
        while !is_known() {
            sleep(LOOK_EVERY).await;
        }
    };
    if timeout(KNOWN_WITHIN, known).await.is_ok() {
        is_near(serving, status, ready);
    }
}

/// True if each upstream has failed or is not used, so that no head is to be known soon.
fn all_have_failed(status: &Status) -> bool {
    let upstreams = status.upstreams();
    !upstreams.is_empty() && upstreams.iter().all(|one| one.error.is_some())
}

/// Compares the head with the upstream's. True if it was near it once since the start.
fn is_near(serving: &Serving, status: &Status, ready: &ReadyConfig) -> bool {
    let head = serving.reader.range().map(|range| *range.end());
    let Some(upstream) = status.proven_head() else {
        // A head that may be old is better than none only if no upstream is used.
        serving.freshness.await_upstream_head(head.is_some() && !all_have_failed(status));
        return false;
    };
    serving.freshness.set_upstream_head(upstream, head, ready.lag_max)
}

/// Compares the head with the upstream's until it is near it, and then ends. Until an upstream has said its head,
/// calls that depend on the head are misses, unless each upstream fails.
pub(crate) async fn start(serving: Arc<Serving>, status: Arc<Status>, ready: LiveReady) {
    while !serving.freshness.follows_nobody() && !is_near(&serving, &status, &ready.load()) {
        sleep(LOOK_EVERY).await;
    }
}

/// Returns the heights that an upstream's head is below the store's, if they are over the limit: the upstream has
/// lost blocks, or is another one.
fn upstream_behind(upstream: Option<u64>, head: Option<u64>, lag_max: u64) -> Option<u64> {
    head?.checked_sub(upstream?).filter(|heights| *heights > lag_max)
}

/// Compares the head's age with its limit, and the head with the upstream's, for ever. It says so when a limit is
/// crossed.
pub(crate) async fn run(serving: Arc<Serving>, status: Arc<Status>, ready: LiveReady) {
    let mut tick = interval(EVERY);
    // After a suspended machine wakes, the ticks that it missed must not come at once.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut was_stale, mut was_behind) = (false, false);
    loop {
        tick.tick().await;
        let ready = **ready.load();
        let is_stale = stale_age(&ready, &serving).is_some();
        serving.freshness.miss_head(is_stale && ready.misses_stale_heads);
        // Only a change is news: the comparison is made each second.
        if is_stale != was_stale {
            tell(&serving, is_stale);
            was_stale = is_stale;
        }
        let head = serving.reader.range().map(|range| *range.end());
        let heights = upstream_behind(status.upstream_head(), head, ready.lag_max);
        if let Some(heights) = heights.filter(|_| !was_behind) {
            warn!(heights, head, "upstream is behind the store");
        }
        was_behind = heights.is_some();
    }
}

fn tell(serving: &Serving, is_stale: bool) {
    let height = serving.reader.range().map(|range| *range.end());
    let age = serving.freshness.head_age();
    if is_stale {
        warn!(height, ?age, "head is older than --ready-age-max");
    } else {
        info!(height, ?age, "head is fresh again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_is_behind_beyond_the_limit_only() {
        assert_eq!(upstream_behind(Some(90), Some(100), 10), None);
        assert_eq!(upstream_behind(Some(89), Some(100), 10), Some(11));
        assert_eq!(upstream_behind(Some(200), Some(100), 10), None);
        assert_eq!(upstream_behind(None, Some(100), 10), None);
        assert_eq!(upstream_behind(Some(0), None, 10), None);
    }
}
