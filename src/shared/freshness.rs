//! Age of the head: seconds since the time of the newest block. The time is the block's own, so a mirror
//! of a mirror of a stopped node shows the same age as the node would.
//!
//! The control thread compares the age with `--ready-age-max` each second. A request reads one flag and
//! no clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use super::serving::Serving;
use crate::config::settings::{LiveReady, ReadyConfig};

/// Time between two comparisons: the flag is at most so late.
const EVERY: Duration = Duration::from_secs(1);

/// Time of the head, and the flag that requests read.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    /// Seconds since 1970, plus 1; 0: there is no head.
    head_time: AtomicU64,
    /// True while calls that depend on the head are misses (`--stale-heads miss`).
    misses: AtomicBool,
}

impl Freshness {
    /// Notes the time of the head, in seconds since 1970.
    pub(crate) fn set_head_time(&self, time: Option<u64>) {
        self.head_time.store(time.map_or(0, |time| time.saturating_add(1)), Ordering::Relaxed);
    }

    /// Time of the head, in seconds since 1970.
    pub(crate) fn head_time(&self) -> Option<u64> {
        self.head_time.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Age of the head by this machine's clock; zero for a block of the future.
    pub(crate) fn head_age(&self) -> Option<Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.head_time().map(|time| now.saturating_sub(Duration::from_secs(time)))
    }

    /// True while calls that depend on the head are misses.
    pub(crate) fn head_is_missed(&self) -> bool {
        // Relaxed: the flag orders nothing, and may be a second late.
        self.misses.load(Ordering::Relaxed)
    }

    /// Sets the flag.
    pub(crate) fn miss_head(&self, misses: bool) {
        self.misses.store(misses, Ordering::Relaxed);
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_age_follows_from_the_time_of_the_block() {
        let freshness = Freshness::default();
        assert_eq!((freshness.head_time(), freshness.head_age()), (None, None));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        freshness.set_head_time(Some(now - 1000));
        let age = freshness.head_age().unwrap().as_secs();
        assert!((1000..1060).contains(&age), "{age}");
        freshness.set_head_time(Some(now + 1000)); // a clock that is late
        assert_eq!(freshness.head_age(), Some(Duration::ZERO));
        freshness.set_head_time(Some(u64::MAX));
        assert_eq!(freshness.head_age(), Some(Duration::ZERO));
        freshness.set_head_time(None);
        assert_eq!(freshness.head_age(), None);
    }
}
