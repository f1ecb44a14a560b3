//! Tells the service manager that neve serves, that it goes on, and that it stops. See `sd_notify(3)`.
//!
//! Without a service manager nothing of this is sent.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use crate::http::Handoff;
use crate::shared::Serving;

/// Time between two looks for a first block.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Looks between two requests for more time: 5 s.
const LOOKS_BETWEEN: u32 = 100;
/// Time that the service manager waits for the next such request, in microseconds: a node may need
/// days until it has a block, and a restart of neve does not help it.
const MORE_TIME: u32 = 30_000_000;

/// Says that neve is ready once there is a block to serve, and from then on that it goes on, if the
/// service manager wants to know (`WATCHDOG_USEC`).
pub(crate) async fn run(serving: Arc<Serving>, handoffs: Vec<Handoff>) {
    wait_for_block(&serving).await;
    notify(&[NotifyState::Ready, NotifyState::Status("serving")]);
    if let Some(limit) = sd_notify::watchdog_enabled() {
        info!(?limit, "watchdog enabled");
        // sd_watchdog_enabled(3) recommends half of the time.
        watch(limit / 2, &handoffs).await;
    }
}

async fn wait_for_block(serving: &Serving) {
    let mut looks = 0;
    while serving.reader.range().is_none() {
        if looks % LOOKS_BETWEEN == 0 {
            let status = NotifyState::Status("waiting for a first block of the upstream");
            // systemd would end a start that takes longer than TimeoutStartSec.
            notify(&[NotifyState::ExtendTimeoutUsec(MORE_TIME), status]);
        }
        looks += 1;
        sleep(LOOK_EVERY).await;
    }
}

/// Says that neve goes on, as long as each serving thread answers.
async fn watch(every: Duration, handoffs: &[Handoff]) {
    let mut tick = interval(every);
    // A late tick must not be followed by others at once: they would ask threads that are busy.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if timeout(every, all_alive(handoffs)).await.unwrap_or(false) {
            notify(&[NotifyState::Watchdog]);
        } else {
            warn!("serving thread does not answer");
        }
    }
}

async fn all_alive(handoffs: &[Handoff]) -> bool {
    for door in handoffs {
        if !door.is_alive().await {
            return false;
        }
    }
    true
}

/// Says that neve stops, and how long that may take: `TimeoutStopSec` of the unit does not know the settings.
pub(crate) fn stopping(within: Duration) {
    let extend = format!("EXTEND_TIMEOUT_USEC={}", within.as_micros());
    notify(&[NotifyState::Stopping, NotifyState::Custom(&extend)]);
}

fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states); // neve serves as well without a service manager
}
