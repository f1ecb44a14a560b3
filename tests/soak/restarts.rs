//! Ends either server at a random moment, as a power cut or as an operator would, and starts it again.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::report::Report;
use crate::stage::{Phase, Place, Stage};
use crate::support::neve::run as neve;

/// Between restarts, in milliseconds.
const LIFE_MS: std::ops::Range<u64> = 500..6_000;
/// Between looks at the phase.
const PAUSE: Duration = Duration::from_millis(20);

/// Restarts until the last phase. Then both serve everything, and both stores are clean.
pub(crate) fn run(stage: &Stage, report: &Report) {
    let _guard = stage.ends_when_dropped();
    let seed = fastrand::u64(..);
    println!("seed of the restarts: {seed}");
    let mut random = Rng::with_seed(seed);
    while stage.phase() < Phase::Restarts {
        thread::park_timeout(PAUSE);
    }
    while stage.phase() == Phase::Restarts {
        let until = Instant::now() + Duration::from_millis(random.u64(LIFE_MS));
        while Instant::now() < until && stage.phase() == Phase::Restarts {
            thread::park_timeout(PAUSE);
        }
        let place = if random.bool() { Place::Source } else { Place::Mirror };
        restart(stage, place, random.bool(), report);
    }
    while stage.last() == u64::MAX && stage.phase() != Phase::Over {
        thread::park_timeout(PAUSE);
    }
    if stage.phase() != Phase::Over {
        settle(stage, Place::Source, report);
        settle(stage, Place::Mirror, report);
    }
}

fn restart(stage: &Stage, place: Place, kill: bool, report: &Report) {
    let server = stage.server(place);
    if kill {
        server.take().kill();
    } else {
        let (status, _) = server.take().stop();
        assert!(status.success(), "{place:?} ended with {status} after SIGTERM");
    }
    report.restarted(kill);
    server.begin();
}

/// Serves the last height, and has a store without findings.
fn settle(stage: &Stage, place: Place, report: &Report) {
    let server = stage.server(place);
    server.wait_for_head(stage.last());
    let store = server.dir().join("store").display().to_string();
    let output = neve(&["verify", "--data-dir", &store]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        report.fail(format!("{place:?}: neve verify ended with {}: {text}", output.status));
    }
}
