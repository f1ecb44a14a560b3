//! Growth by the clock.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::node::Node;
use crate::config::Config;
use crate::lock::lock;

/// Blocks come in groups when more than one is due at a tick.
const TICK_MIN: Duration = Duration::from_millis(1);
/// Blocks that are made at once at most: a machine that cannot keep up falls behind, and does not
/// try to catch up for ever.
const GROUP_MAX: u64 = 100;

impl Node {
    /// Changes how many blocks a second come by themselves. None comes at the old rate afterwards.
    pub(crate) fn set_rate(&self, rate: f64) {
        // A task that makes blocks holds the chain, and reads the rate once it has the chain.
        let _chain = lock(&self.chain);
        self.rate.send_replace(rate);
    }

    /// Accepts blocks at the configured rate, until it is dropped.
    pub(crate) async fn run_clock(self: Arc<Self>) {
        let mut rates = self.rate.subscribe();
        loop {
            let rate = *rates.borrow_and_update();
            let run = Arc::clone(&self).at_rate(rate);
            tokio::select! {
                changed = rates.changed() => if changed.is_err() { return },
                () = run => {}
            }
        }
    }

    async fn at_rate(self: Arc<Self>, asked: f64) {
        let Some(tick) = tick(asked) else { return std::future::pending().await };
        let rate = asked.min(Config::RATE_MAX);
        let mut ticks = interval(tick);
        // A missed tick costs nothing: what is due follows from the time that has passed.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks.tick().await; // the first is at once
        let (start, mut passed) = (Instant::now(), 0);
        loop {
            ticks.tick().await;
            self.until_answering().await;
            // A tick that comes exactly on time must not be too early by rounding.
            let until_now = start.elapsed().mul_f64(rate) + Duration::from_millis(10);
            let until_now = until_now.as_secs();
            let due = until_now.saturating_sub(passed).min(GROUP_MAX);
            passed = until_now;
            if due > 0 {
                self.make_due(asked, due).await;
            }
        }
    }

    /// Makes blocks that are due, on a thread that may block.
    async fn make_due(self: &Arc<Self>, rate: f64, blocks: u64) {
        let node = Arc::clone(self);
        let made = tokio::task::spawn_blocking(move || node.advance_at(rate, blocks));
        // It fails when the runtime ends.
        let _ = made.await;
    }
}

/// Time between looks at what is due; `None` if nothing ever is.
fn tick(rate: f64) -> Option<Duration> {
    let rate = if rate.is_nan() { 0.0 } else { rate.clamp(0.0, Config::RATE_MAX) };
    let tick = Duration::try_from_secs_f64(1.0 / rate).ok()?;
    Some(tick.max(TICK_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_bounded() {
        assert_eq!(tick(0.5), Some(Duration::from_secs(2)));
        assert_eq!(tick(5_000.0), Some(TICK_MIN));
        assert_eq!(tick(f64::INFINITY), Some(TICK_MIN));
        for never in [0.0, -1.0, f64::NAN, 1e-300] {
            assert_eq!(tick(never), None, "{never}");
        }
    }
}
