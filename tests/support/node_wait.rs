//! Waiting with a deadline and a reason: the one place in these tests that sleeps.

use std::time::{Duration, Instant};

/// Pause between two looks: far below a block's two seconds, far above the cost of a request.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a look did not find what was waited for.
pub(crate) enum Miss {
    /// It may still come.
    NotYet(String),
    /// It cannot come any more, so waiting on would only hide the reason.
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
    let start = Instant::now();
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(Miss::Never(why)) => return Err(format!("{what}: {why}")),
            Err(Miss::NotYet(why)) if start.elapsed() >= limit => {
                return Err(format!("{what}: not within {limit:?}; last seen: {why}"));
            }
            Err(Miss::NotYet(_)) => pause(),
        }
    }
}

/// Sleeps for one [`PAUSE`].
#[expect(
    clippy::disallowed_methods,
    reason = "a plain test thread, and the only sleep of the tests"
)]
fn pause() {
    std::thread::sleep(PAUSE);
}
