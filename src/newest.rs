//! Keeps the newest blocks in memory, whatever else is read.

use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use neve_store::Newest;
use tokio::time::{MissedTickBehavior, interval};
use tracing::info;

use crate::serving::Serving;
use crate::units::Human;

/// A block is new for longer than this.
const EVERY: Duration = Duration::from_secs(1);

/// Does so for ever.
pub(crate) async fn run(serving: Arc<Serving>, bytes: u64) {
    let mut newest = Newest::new(bytes);
    let mut look = interval(EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        if let Err(error) = newest.keep(&serving.reader) {
            let (wanted, locked) = (Human(bytes), Human(newest.bytes()));
            let help = "raise the limit on locked memory (LimitMEMLOCK=, ulimit -l), or lower \
                        --lock-newest-bytes";
            info!(%error, %wanted, %locked, help, "fewer of the newest blocks stay in memory");
        }
        #[expect(clippy::cast_precision_loss, reason = "gauges are doubles")]
        gauge!("neve_store_locked_bytes").set(newest.bytes() as f64);
    }
}
