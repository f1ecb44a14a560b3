//! Hours of everything at once: blocks, eviction, a mirror, subscribers, traffic, attackers, restarts.
//!
//! Each answer is the upstream's to the byte, over HTTP/1 and HTTP/2, each subscriber gets each height once, and
//! memory stays below the documented ceiling. Clients that mean well are served beside each attacker. `NEVE_SOAK_SECONDS` says for how long.

#![cfg(test)]

mod support;

#[path = "soak/attackers.rs"]
mod attackers;
#[path = "soak/liar.rs"]
mod liar;
#[path = "soak/line.rs"]
mod line;
#[path = "soak/ranges.rs"]
mod ranges;
#[path = "soak/report.rs"]
mod report;
#[path = "soak/restarts.rs"]
mod restarts;
#[path = "soak/stage.rs"]
mod stage;
#[path = "soak/subscribers.rs"]
mod subscribers;
#[path = "soak/traffic.rs"]
mod traffic;

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use liar::Lie;
use line::Version;
use report::Report;
use stage::{Phase, Place, Stage};

/// Seconds of a run for which `NEVE_SOAK_SECONDS` is not set.
const SECONDS: u64 = 180;
/// Shorter ones have no time for each attacker.
const SECONDS_MIN: u64 = 30;
/// Most memory besides mapped files, with default settings (docs/operating/size.md).
const MEMORY_MAX: u64 = 512 << 20;
/// A busy machine makes every answer slow. The report has the ratio itself.
const P99_RATIO_MAX: f64 = 25.0;
const P99_FLOOR: Duration = Duration::from_millis(250);
/// Names a lower bound of the ratio, for a long run on a machine that does little else.
const P99_RATIO: &str = "NEVE_SOAK_P99_RATIO_MAX";

fn seconds() -> u64 {
    let given = std::env::var("NEVE_SOAK_SECONDS").ok();
    let given = given.map(|text| text.parse().expect("NEVE_SOAK_SECONDS is a number of seconds"));
    given.unwrap_or(SECONDS).max(SECONDS_MIN)
}

#[test]
#[ignore = "takes minutes: ./check"]
fn soak_gives_no_wrong_byte_and_stays_within_memory() {
    let (total, start) = (Duration::from_secs(seconds()), Instant::now());
    let stage = Stage::start(unix_ms());
    let report = Report::default();
    let (stage, report) = (&stage, &report);
    thread::scope(|scope| {
        // A thread that panics must not leave the others running.
        let _guard = stage.ends_when_dropped();
        for place in [Place::Source, Place::Mirror] {
            scope.spawn(move || report.watch_memory(stage, place));
            scope.spawn(move || traffic::run(stage, place, Version::Http2, report));
            for _ in 0..2 {
                scope.spawn(move || traffic::run(stage, place, Version::Http1, report));
                scope.spawn(move || subscribers::run(stage, place, report));
            }
        }
        for number in 0..attackers::COUNT {
            scope.spawn(move || attackers::run(stage, number, report));
        }
        scope.spawn(move || restarts::run(stage, report));
        stage.alternate(start + total * 2 / 3);
        stage.pass(Phase::Restarts, start + total);
        stage.finish();
    });
    let lies = Lie::ALL.map(|lie| (lie, stage.liar.told(lie)));
    println!("{report}lies of an upstream: {lies:?}");
    check(report);
    assert!(lies.iter().all(|(_, told)| *told > 0), "a lie was never told: {lies:?}");
}

fn check(report: &Report) {
    report.assert_no_failures();
    report.assert_served();
    let peak = report.memory.peak();
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory, allowed are {MEMORY_MAX}");
    assert!(report.compared() > 100, "only {} answers were compared", report.compared());
    let (quiet, attacked) = (report.p99(Phase::Quiet), report.p99(Phase::Attacked));
    let allowed = p99_max(quiet);
    assert!(attacked <= allowed, "p99 {quiet:?} when quiet, {attacked:?} when attacked");
}

/// Highest p99 of attacked turns beside that of quiet ones.
fn p99_max(quiet: Duration) -> Duration {
    match std::env::var(P99_RATIO) {
        Ok(given) => quiet.mul_f64(given.parse().expect(P99_RATIO)),
        Err(_) => quiet.mul_f64(P99_RATIO_MAX).max(P99_FLOOR),
    }
}

/// Now, for the stamps of blocks.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("1970 is past").as_millis() as u64
}
