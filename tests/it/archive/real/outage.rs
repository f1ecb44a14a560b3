//! A real store that is gone for a minute, or overloaded, under load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::field::Field;
use super::network::{block, comes_back, errors, shown};
use super::programs::SECRET;
use crate::archive::bucket::{Bucket, reads};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::serves;

const RANGES: u64 = 24;
/// Archived heights that are requested while the store is there, and the first of as many that are not.
const HEIGHTS: u64 = 352;
const LATER: u64 = 384;
/// Pause between two requests of a client.
const PAUSE: Duration = Duration::from_millis(5);

/// Requests of one client until the channel closes: their times, and the statuses that are not 200.
fn asks(
    neve: &Neve,
    until: &Receiver<()>,
    heights: impl Fn(u64) -> u64,
) -> (Vec<Duration>, Vec<u16>) {
    let (mut client, mut times, mut others) = (neve.client(), Vec::new(), Vec::new());
    while until.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        let params = format!("[\"{:#x}\",false]", heights(times.len() as u64));
        let begun = Instant::now();
        let answer = client.call("eth_getBlockByNumber", &params);
        times.push(begun.elapsed());
        if answer.status != 200 {
            assert_eq!((answer.status, answer.header("retry-after")), (421, Some("1")));
            others.push(answer.status);
        }
    }
    (times, others)
}

/// Load for a while: times of the tail, and times and misses of archived heights.
struct Load {
    tail: Vec<Duration>,
    archived: Vec<Duration>,
    misses: usize,
}

impl Load {
    /// Two clients of the tail, beside one that requests archived heights from `first` on.
    fn new(field: &Field, neve: &Neve, seconds: u64, first: u64) -> Self {
        let tail = field.bucket.first();
        let clients = [true, true, false];
        thread::scope(|threads| {
            let asking = clients.map(|of_tail| {
                let (end, until) = channel();
                let heights = move |count: u64| {
                    if of_tail { tail + count * 7 % 28 } else { first + count * 37 % HEIGHTS }
                };
                (end, threads.spawn(move || asks(neve, &until, heights)))
            });
            let (_end, waiting) = channel::<()>();
            let over = waiting.recv_timeout(Duration::from_secs(seconds));
            assert_eq!(over, Err(RecvTimeoutError::Timeout));
            let [one, two, archived] = asking.map(|(end, asked)| {
                drop(end);
                asked.join().expect("no panic")
            });
            assert!(one.1.is_empty() && two.1.is_empty(), "the tail is served");
            Self { tail: [one.0, two.0].concat(), misses: archived.1.len(), archived: archived.0 }
        })
    }

    fn tail(&self) -> (Duration, Duration) {
        let mut times = self.tail.clone();
        times.sort_unstable();
        (times[times.len() / 2], times[times.len() * 99 / 100])
    }
}

/// The p99 of the tail is shown only: it depends on what else the machine does.
#[test]
#[ignore = "needs go: ./check archive"]
fn minute_without_versitygw_under_load_costs_archived_heights_and_nothing_of_the_tail() {
    let field = Field::new(Bucket::of_ranges(RANGES));
    let dir = fresh_dir();
    let replica = field.replica(dir.path(), &[]);
    let there = Load::new(&field, &replica, 20, 0);
    assert_eq!(there.misses, 0, "the store is there");
    field.network.cut();
    let begun = reads(&replica, "segment");
    let gone = Load::new(&field, &replica, 60, LATER);
    let begun = reads(&replica, "segment") - begun;
    assert_eq!(gone.misses, gone.archived.len(), "no height that is not here is answered");
    // Three failures open the breaker. Reads that were under way with the third one have failed too.
    assert!(begun <= 6, "{begun} reads for {} requests", gone.misses);
    let (median, longest) = shown(gone.archived.clone());
    assert!(median < Duration::from_millis(300), "{median:?}");
    assert_eq!(replica.count("neve_archive_breaker_openings_total"), 1);
    println!(
        "tail: p50 and p99 {:?} of {} with the store, {:?} of {} without; archived heights without: \
         {} times 421 after {median:?}, at most {longest:?}; {begun} reads; {}",
        there.tail(),
        there.tail.len(),
        gone.tail(),
        gone.tail.len(),
        gone.misses,
        errors(&replica)
    );
    field.network.mend();
    comes_back(&field, &replica, LATER);
    serves(&replica, &field.bucket.node, 0..field.bucket.first() + 28);
    replica.stop_in_time();
}

/// A gateway that takes one request at a time refuses the others with 503 `SlowDown`.
#[test]
#[ignore = "needs go: ./check archive"]
fn overloaded_versitygw_costs_misses_and_no_false_answer() {
    const CLIENTS: u64 = 24;
    let mut field = Field::new(Bucket::of_ranges(RANGES));
    let dir = fresh_dir();
    let replica = field.replica(dir.path(), &[]);
    field.gateway.restart(SECRET, &["--max-requests", "1"]);
    let (misses, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|threads| {
        for client in 0..CLIENTS {
            let (replica, field, misses, is_over) = (&replica, &field, &misses, &is_over);
            threads.spawn(move || {
                let segments = RANGES - 1;
                for number in 0..segments {
                    // Each begins with another segment.
                    let height = (client + number) % segments * 32 + client;
                    let answer = block(replica, height);
                    if answer.status == 200 {
                        assert_eq!(answer.text(), block(&field.bucket.source, height).text());
                    } else {
                        assert_eq!((answer.status, answer.header("retry-after")), (421, Some("1")));
                        misses.fetch_add(1, Ordering::Relaxed);
                    }
                }
                is_over.store(true, Ordering::Relaxed);
            });
        }
        let tail = field.bucket.first()..field.bucket.first() + 28;
        while !is_over.load(Ordering::Relaxed) {
            serves(&replica, &field.bucket.node, tail.clone());
        }
    });
    println!("{} misses; {}", misses.load(Ordering::Relaxed), errors(&replica));
    for height in (0..field.bucket.first()).step_by(32) {
        comes_back(&field, &replica, height);
    }
    replica.stop_in_time();
}
