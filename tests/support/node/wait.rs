//! Waiting with a deadline and a reason: the one place in these tests that sleeps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// First pause between two looks, far above the cost of a request. Each further one is twice as long, up to the longest,
/// which is far below a block's two seconds.
const PAUSE: Duration = Duration::from_millis(8);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Units of time for [`at_some_pace`].
const PACES: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(8)];

/// Pauses between looks, each twice as long as the one before it.
pub(crate) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(PAUSE)
    }
}

impl Pauses {
    pub(crate) fn pause(&mut self) {
        sleep(self.0);
        self.0 = PAUSE_MAX.min(2 * self.0);
    }
}

/// Reason why a look found nothing.
pub(crate) enum Miss {
    /// Nothing yet: it may still come.
    NotYet(String),
    /// Nothing for ever: waiting on would only hide the reason.
    Never(String),
}

/// Looks again and again until `look` succeeds, `limit` is over or `look` says never.
///
/// The error names `what` and what the last look saw.
pub(crate) fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<T, Miss>,
) -> Result<T, String> {
    let (start, mut pauses) = (Instant::now(), Pauses::default());
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(Miss::Never(why)) => return Err(format!("{what}: {why}")),
            Err(Miss::NotYet(why)) if start.elapsed() >= limit => {
                return Err(format!("{what}: not within {limit:?}; last seen: {why}"));
            }
            Err(Miss::NotYet(_)) => pauses.pause(),
        }
    }
}

/// Tries what depends on the speed of the machine in ever longer units of time, until it holds.
///
/// A busy machine delays the test or the server by more than a short unit. A defect fails in each.
///
/// # Panics
/// As `holds` does in the longest unit.
pub(crate) fn at_some_pace(holds: impl Fn(Duration)) {
    let [hasty @ .., patient] = PACES;
    let held = |pace| catch_unwind(AssertUnwindSafe(|| holds(pace))).is_ok();
    if !hasty.into_iter().any(held) {
        holds(patient);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a plain test thread, and the only sleep of the tests"
)]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Leaves the processors to others, between two looks that both saw something new.
pub(crate) fn pause() {
    sleep(PAUSE);
}
