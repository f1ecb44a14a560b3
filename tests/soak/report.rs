//! Counts of all threads, and their summary.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::attackers::COUNT;
use crate::line::Version;
use crate::stage::{Phase, Place, Stage};

/// Between looks at the memory.
const LOOK: Duration = Duration::from_millis(100);
/// Requests of which one may stay without a response while nothing is restarted.
const SERVED_OF: u64 = 100;
/// Failures that are kept: the first tell the story.
const FAILURES_MAX: usize = 20;

/// Counts and latencies of the soak.
#[derive(Default)]
pub(crate) struct Report {
    compared: AtomicU64,
    /// Responses by phase, over each version of HTTP.
    served: [[AtomicU64; 2]; 5],
    missed: AtomicU64,
    heads: AtomicU64,
    resumed: AtomicU64,
    kills: AtomicU64,
    terms: AtomicU64,
    unanswered: [AtomicU64; 5],
    refused: Mutex<BTreeMap<u16, u64>>,
    refused_in: [AtomicU64; 5],
    /// Latencies of single calls, when quiet and when attacked.
    latencies: [Mutex<Vec<Duration>>; 2],
    attacks: Mutex<BTreeMap<&'static str, Attacks>>,
    /// Present deed of each attacker.
    active: Mutex<[Option<&'static str>; COUNT]>,
    failures: Mutex<Vec<String>>,
    pub(crate) memory: Memory,
}

/// Deeds of attackers of a kind.
#[derive(Clone, Default)]
struct Attacks {
    rounds: u64,
    connections: u64,
    /// Responses to other clients while one was at work, over each version of HTTP.
    served: [u64; 2],
    /// Latencies of single calls while one was at work, alone or beside another.
    latencies: Vec<Duration>,
    /// Most bytes of a server while one was at work.
    memory: u64,
}

/// Most bytes of each server.
#[derive(Default)]
pub(crate) struct Memory {
    source: AtomicU64,
    mirror: AtomicU64,
}

impl Memory {
    pub(crate) fn peak(&self) -> u64 {
        self.source.load(Ordering::Relaxed).max(self.mirror.load(Ordering::Relaxed))
    }
}

/// Place of a phase among counters.
fn at(phase: Phase) -> usize {
    (phase as usize).min(4)
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Report {
    /// An answer was the upstream's.
    pub(crate) fn compare(&self) {
        add(&self.compared);
    }

    pub(crate) fn compared(&self) -> u64 {
        self.compared.load(Ordering::Relaxed)
    }

    /// A call asked for what had been evicted.
    pub(crate) fn missed(&self) {
        add(&self.missed);
    }

    /// The server answered with status 200.
    pub(crate) fn served(&self, phase: Phase, version: Version) {
        add(&self.served[at(phase)][version as usize]);
        self.with_active(|of| of.served[version as usize] += 1);
    }

    /// Asserts that clients which mean well are served: in each phase without restarts, over each version of
    /// HTTP, and beside each kind of attacker.
    pub(crate) fn assert_served(&self) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for phase in [Phase::Quiet, Phase::Attacked] {
            let served = self.served[at(phase)].each_ref().map(get);
            assert!(!served.contains(&0), "{phase:?}: {served:?} responses over HTTP/1 and HTTP/2");
            let left = get(&self.refused_in[at(phase)]) + get(&self.unanswered[at(phase)]);
            let all = served.iter().sum::<u64>() + left;
            assert!(
                left <= all / SERVED_OF,
                "{phase:?}: {left} of {all} requests without a response"
            );
        }
        for (name, of) in self.attacks.lock().expect("no thread panics with it").iter() {
            let served = of.served;
            assert!(!served.contains(&0), "{name}: {served:?} responses over HTTP/1 and HTTP/2");
        }
    }

    /// The server answered with another status.
    pub(crate) fn refused(&self, phase: Phase, status: u16) {
        add(&self.refused_in[at(phase)]);
        *self.refused.lock().expect("no thread panics with it").entry(status).or_default() += 1;
    }

    /// A connection ended without an answer.
    pub(crate) fn unanswered(&self, phase: Phase) {
        add(&self.unanswered[at(phase)]);
    }

    /// A subscriber got a head.
    pub(crate) fn head(&self) {
        add(&self.heads);
    }

    /// A subscriber connected again.
    pub(crate) fn resumed(&self) {
        add(&self.resumed);
    }

    pub(crate) fn restarted(&self, kill: bool) {
        add(if kill { &self.kills } else { &self.terms });
    }

    /// Notes something that must not be.
    pub(crate) fn fail(&self, why: String) {
        eprintln!("soak: {why}");
        let mut failures = self.failures.lock().expect("no thread panics with it");
        if failures.len() < FAILURES_MAX {
            failures.push(why);
        }
    }

    pub(crate) fn assert_no_failures(&self) {
        let failures = self.failures.lock().expect("no thread panics with it");
        assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    }

    pub(crate) fn latency(&self, phase: Phase, time: Duration) {
        if let Some(latencies) = self.latencies.get(phase as usize) {
            latencies.lock().expect("no thread panics with it").push(time);
        }
        if phase == Phase::Attacked {
            self.with_active(|of| of.latencies.push(time));
        }
    }

    /// Does this for each kind of attacker that is at work.
    fn with_active(&self, mut change: impl FnMut(&mut Attacks)) {
        let active = *self.active.lock().expect("no thread panics with it");
        let mut attacks = self.attacks.lock().expect("no thread panics with it");
        active.into_iter().flatten().for_each(|name| change(attacks.entry(name).or_default()));
    }

    pub(crate) fn p99(&self, phase: Phase) -> Duration {
        self.quantile(phase, 0.99)
    }

    fn quantile(&self, phase: Phase, share: f64) -> Duration {
        quantile(&self.latencies[phase as usize].lock().expect("no thread panics with it"), share)
    }

    pub(crate) fn attack_begins(&self, number: usize, name: &'static str) {
        self.active.lock().expect("no thread panics with it")[number] = Some(name);
    }

    pub(crate) fn attack_ended(&self, number: usize, name: &'static str, connections: usize) {
        self.active.lock().expect("no thread panics with it")[number] = None;
        let mut attacks = self.attacks.lock().expect("no thread panics with it");
        let of = attacks.entry(name).or_default();
        of.rounds += 1;
        of.connections += connections as u64;
    }

    /// Looks at the memory of a server until the last phase.
    pub(crate) fn watch_memory(&self, stage: &Stage, place: Place) {
        let peak = match place {
            Place::Source => &self.memory.source,
            Place::Mirror => &self.memory.mirror,
        };
        while stage.phase() < Phase::Last {
            if let Some(bytes) = stage.server(place).pid().and_then(memory_of) {
                peak.fetch_max(bytes, Ordering::Relaxed);
                self.note_memory(bytes);
            }
            thread::park_timeout(LOOK);
        }
    }

    fn note_memory(&self, bytes: u64) {
        self.with_active(|of| of.memory = of.memory.max(bytes));
    }
}

/// The time that this share of them does not exceed.
fn quantile(latencies: &[Duration], share: f64) -> Duration {
    let mut latencies = latencies.to_vec();
    latencies.sort_unstable();
    #[allow(
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a count is a count"
    )]
    let at = (latencies.len() as f64 * share) as usize;
    latencies.get(at).copied().unwrap_or_default()
}

/// Bytes of a process that are in no file: `RssAnon` and `RssShmem`.
fn memory_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kilobytes = |line: &str| {
        let value = line.strip_prefix("RssAnon:").or_else(|| line.strip_prefix("RssShmem:"))?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some(status.lines().filter_map(kilobytes).sum::<u64>() << 10)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [quiet, attacked, settling, restarts, last] = self.unanswered.each_ref().map(get);
        writeln!(
            f,
            "answers compared: {}, misses of evicted heights: {}",
            self.compared(),
            get(&self.missed)
        )?;
        let [served, attacked_served] =
            [&self.served[0], &self.served[1]].map(|of| of.each_ref().map(get));
        writeln!(
            f,
            "responses over HTTP/1 and HTTP/2: when quiet {served:?}, attacked {attacked_served:?}"
        )?;
        writeln!(
            f,
            "refused by status: {:?}",
            self.refused.lock().expect("no thread panics with it")
        )?;
        writeln!(
            f,
            "unanswered when quiet {quiet}, attacked {attacked}, after attacks {settling}, \
             with restarts {restarts}, last {last}"
        )?;
        writeln!(
            f,
            "heads to subscribers: {}, connected again: {}",
            get(&self.heads),
            get(&self.resumed)
        )?;
        writeln!(f, "restarts: {} kill -9, {} SIGTERM", get(&self.kills), get(&self.terms))?;
        for (phase, name) in [(Phase::Quiet, "quiet"), (Phase::Attacked, "attacked")] {
            let of = |share| self.quantile(phase, share);
            writeln!(
                f,
                "{name}: p50 {:.2?}, p99 {:.2?}, p99.9 {:.2?}",
                of(0.5),
                of(0.99),
                of(0.999)
            )?;
        }
        let ratio = self.p99(Phase::Attacked).as_secs_f64() / self.p99(Phase::Quiet).as_secs_f64();
        writeln!(f, "p99 attacked to quiet: {ratio:.1}")?;
        let [source, mirror] = [&self.memory.source, &self.memory.mirror].map(|of| get(of) >> 20);
        writeln!(f, "memory at most, MiB: source {source}, mirror {mirror}")?;
        let widths = "rounds  connections  memory, MiB  served over HTTP/1, 2    p50 and p99 of other clients";
        writeln!(f, "{:28} {widths}", "attacker")?;
        for (name, of) in self.attacks.lock().expect("no thread panics with it").iter() {
            let (p50, p99) = (quantile(&of.latencies, 0.5), quantile(&of.latencies, 0.99));
            let (rounds, connections, memory) = (of.rounds, of.connections, of.memory >> 20);
            let [over_1, over_2] = of.served;
            writeln!(
                f,
                "{name:28} {rounds:6} {connections:12} {memory:12} {over_1:12} {over_2:9}    {p50:.2?}, {p99:.2?}"
            )?;
        }
        Ok(())
    }
}
