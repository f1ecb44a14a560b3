//! The scrubber: a thread of a low priority that reads every sealed segment and hash table again and again.
//!
//! It finds damage before a client does, and spares clients the check at the first read of a
//! record. The newest segments come first. Repair is the follower's (`fetch/backfill/repair.rs`).

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use metrics::counter;
use tracing::{debug, warn};

use crate::shared::Serving;

/// A pass begins at most so often: small stores are read within seconds.
const PASS_INTERVAL: Duration = Duration::from_hours(1);
/// The first pass begins with the first sealed segment, and leaves starting alone.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Bytes a second to read now; `None`: no bytes.
type ScrubRate = Box<dyn Fn() -> Option<u64> + Send>;

/// Starts the thread, which ends with the process.
pub(crate) fn start(
    serving: Arc<Serving>,
    dir: PathBuf,
    rate: impl Fn() -> Option<u64> + Send + 'static,
    nice: i32,
) -> std::io::Result<()> {
    let scrubber = Scrubber { serving, dir, pace: Pace::new(Box::new(rate)) };
    thread::Builder::new().name("scrubber".to_owned()).spawn(move || {
        if let Err(error) = rustix::process::setpriority_process(None, nice) {
            debug!(%error, "scrubber keeps its priority");
        }
        scrubber.run();
    })?;
    Ok(())
}

struct Scrubber {
    serving: Arc<Serving>,
    dir: PathBuf,
    pace: Pace,
}

impl Scrubber {
    fn run(mut self) {
        loop {
            // Without a rate it is off, which a reload may change.
            while (self.pace.rate)().is_none() || self.serving.reader.sealed().is_empty() {
                wait(LOOK_EVERY);
            }
            let begun = Instant::now();
            self.pass();
            counter!("neve_store_scrub_passes_total").increment(1);
            wait(PASS_INTERVAL.saturating_sub(begun.elapsed()));
        }
    }

    fn pass(&mut self) {
        self.pace.begin();
        let Self { serving, dir, pace } = self;
        // First: a damaged table hides the hashes of many segments.
        if let Err(error) = serving.reader.scrub_tables(dir, &mut |bytes| pace.read(bytes)) {
            warn!(%error, "hash tables not scrubbed");
        }
        for (base, _) in self.serving.reader.sealed().into_iter().rev() {
            self.pace.begin();
            let Self { serving, dir, pace } = self;
            let scrubbed = serving.reader.scrub(dir, base, &mut |bytes| pace.read(bytes));
            if let Err(error) = scrubbed {
                warn!(segment = base, %error, "segment not scrubbed");
            }
        }
    }
}

/// Reads at most so many bytes a second.
struct Pace {
    rate: ScrubRate,
    since: Instant,
    bytes: u64,
}

impl Pace {
    fn new(rate: ScrubRate) -> Self {
        Self { rate, since: Instant::now(), bytes: 0 }
    }

    /// A segment begins: time in which nothing was read is not made up for.
    fn begin(&mut self) {
        (self.since, self.bytes) = (Instant::now(), 0);
    }

    /// Notes that `bytes` more bytes were read.
    fn read(&mut self, bytes: u64) {
        counter!("neve_store_scrubbed_bytes_total").increment(bytes);
        self.bytes += bytes;
        // In short waits, so that a reload is heard soon.
        while let Some(left) = self.left() {
            wait(left.min(LOOK_EVERY));
        }
    }

    /// Time to wait after the bytes read so far, if any.
    fn left(&self) -> Option<Duration> {
        let Some(rate) = (self.rate)() else { return Some(LOOK_EVERY) };
        Some(self.due(rate).saturating_sub(self.since.elapsed())).filter(|left| !left.is_zero())
    }

    /// Time that the bytes read so far take at a rate.
    fn due(&self, rate: u64) -> Duration {
        let micros = u128::from(self.bytes) * 1_000_000 / u128::from(rate.max(1));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

#[allow(clippy::disallowed_methods, reason = "the scrubber has a thread of its own")]
fn wait(time: Duration) {
    thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_is_the_bytes_over_the_rate() {
        let mut pace = Pace::new(Box::new(|| None));
        pace.bytes = 128 << 20;
        assert_eq!(pace.due(8 << 20), Duration::from_secs(16));
        pace.bytes = u64::MAX;
        assert!(pace.due(8 << 20) > Duration::from_hours(1));
        assert_eq!(pace.left(), Some(LOOK_EVERY), "without a rate it rests");
    }
}
