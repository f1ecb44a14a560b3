//! Keeps the newest blocks and the program in memory, also while clients read old blocks.

use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use neve_store::{LockedTail, lock_program};
use tokio::time::{MissedTickBehavior, interval};
use tracing::info;

use crate::config::Human;
use crate::shared::Serving;

/// A block is new for longer than this.
const EVERY: Duration = Duration::from_secs(1);

/// Locks the newest blocks, so many bytes of them, and goes on with newer ones for ever.
pub(crate) async fn run(serving: Arc<Serving>, bytes: u64) {
    keep_program(bytes);
    let mut newest = LockedTail::new(bytes);
    let mut look = interval(EVERY);
    // After a suspended machine wakes, ticks that were missed must not come all at once.
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        if let Err(error) = newest.keep(&serving.reader) {
            let (wanted, locked) = (Human(bytes), Human(newest.bytes()));
            let help = "raise the limit on locked memory (LimitMEMLOCK=, ulimit -l), or lower \
                        --lock-newest-bytes";
            info!(%error, %wanted, %locked, help, "fewer newest bytes locked");
        }
        #[expect(clippy::cast_precision_loss, reason = "gauges are doubles")]
        gauge!("neve_store_locked_bytes").set(newest.bytes() as f64);
    }
}

/// Locks the program, after the blocks: they come first if not all may be locked. Without blocks nothing is locked.
fn keep_program(beside: u64) {
    let locked = if beside > 0 { lock_program(beside) } else { Ok(0) };
    let locked = locked.unwrap_or_else(|error| {
        info!(%error, "program not locked");
        0
    });
    #[expect(clippy::cast_precision_loss, reason = "gauges are doubles")]
    gauge!("neve_program_locked_bytes").set(locked as f64);
}
