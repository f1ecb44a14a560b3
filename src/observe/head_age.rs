//! Comparison of the head's age with `--ready-age-max`.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::config::settings::{LiveReady, ReadyConfig};
use crate::shared::Serving;

/// Time between two comparisons: the flag is at most so late.
const EVERY: Duration = Duration::from_secs(1);

/// Returns the age of the head and its limit, if the age is over the limit.
pub(crate) fn stale_age(ready: &ReadyConfig, serving: &Serving) -> Option<(Duration, Duration)> {
    let max = ready.age_max(serving.identity()?.chain_id)?;
    serving.freshness.head_age().filter(|age| *age > max).map(|age| (age, max))
}

/// Compares the head's age with its limit for ever, and says so when it crosses it.
pub(crate) async fn run(serving: Arc<Serving>, ready: LiveReady) {
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_stale = false;
    loop {
        tick.tick().await;
        let ready = **ready.load();
        let is_stale = stale_age(&ready, &serving).is_some();
        serving.freshness.miss_head(is_stale && ready.misses_stale_heads);
        if is_stale != was_stale {
            tell(&serving, is_stale);
            was_stale = is_stale;
        }
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
