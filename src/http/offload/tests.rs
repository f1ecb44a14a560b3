use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

const WAIT: Duration = Duration::from_mins(1);
const QUEUE: QueueLimits = QueueLimits { address_max: 3, total_max: 5 };

fn address(last: u8) -> ClientAddress {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)).into()
}

/// Jobs that say when they begin, and end when they are told.
struct Held {
    began: (Sender<&'static str>, Receiver<&'static str>),
}

impl Held {
    fn new() -> Self {
        Self { began: channel() }
    }

    fn job(&self, name: &'static str) -> (Job, Sender<()>) {
        let (began, (end, told)) = (self.began.0.clone(), channel::<()>());
        let job = move || {
            began.send(name).expect("the test waits");
            let _ = told.recv_timeout(WAIT);
        };
        (Box::new(job), end)
    }

    fn next(&self) -> &'static str {
        self.began.1.recv_timeout(WAIT).expect("a job begins")
    }

    fn nothing_begins(&self) {
        assert!(self.began.1.recv_timeout(Duration::from_millis(100)).is_err());
    }
}

#[test]
fn address_uses_half_of_the_threads_and_others_the_rest() {
    let (pool, held) = (Pool::new("test", 2, 0, QUEUE), Held::new());
    let submit = |from, name| {
        let (job, end) = held.job(name);
        assert!(pool.submit(address(from), job));
        end
    };
    let mut greedy: Vec<_> = (0..5).map(|_| submit(2, "greedy")).collect();
    assert_eq!([held.next(), held.next()], ["greedy"; 2]);
    held.nothing_begins();
    let other = submit(1, "other");
    assert_eq!(held.next(), "other");
    drop(greedy.remove(0)); // one ends, so the address may run another
    assert_eq!(held.next(), "greedy");
    held.nothing_begins();
    drop((greedy, other));
}

#[test]
fn addresses_take_turns() {
    let (pool, held) = (Pool::new("test", 1, 0, QUEUE), Held::new());
    let submit = |from, name| {
        let (job, end) = held.job(name);
        assert!(pool.submit(address(from), job));
        end
    };
    // Both threads are in use, by two addresses.
    let first = [submit(1, "a"), submit(2, "b")];
    held.next();
    held.next();
    let waiting = [submit(1, "a2"), submit(1, "a3"), submit(3, "c")];
    drop(first);
    let mut names = [held.next(), held.next()];
    names.sort_unstable();
    assert_eq!(names, ["a2", "c"]);
    drop(waiting);
    assert_eq!(held.next(), "a3");
}

#[test]
fn queue_is_bounded_for_an_address_and_in_total() {
    let (pool, held) = (Pool::new("test", 1, 0, QUEUE), Held::new());
    let mut ends = Vec::new();
    let mut submit = |from| {
        let (job, end) = held.job("job");
        ends.push(end);
        pool.submit(address(from), job)
    };
    // One runs, three wait, and the fifth is refused.
    assert!(submit(1));
    held.next();
    assert!(submit(1) && submit(1) && submit(1) && !submit(1));
    // Another address has a thread of its own, and two places are left in all.
    assert!(submit(2));
    held.next();
    assert!(submit(2) && submit(2) && !submit(2) && !submit(3));
    drop(ends);
    for _ in 0..5 {
        held.next();
    }
}

#[test]
fn panic_in_a_job_ends_neither_the_thread_nor_the_share() {
    let (pool, held) = (Pool::new("test", 1, 0, QUEUE), Held::new());
    for _ in 0..3 {
        assert!(pool.submit(address(1), Box::new(|| panic!("on purpose"))));
        let (job, _end) = held.job("after");
        assert!(pool.submit(address(1), job));
        assert_eq!(held.next(), "after");
    }
}

/// Searches of an address that fill their queue delay neither its cold reads nor what it has unpacked.
#[test]
fn cold_read_does_not_wait_for_searches() {
    let (offload, held) = (Offload::new(1, QUEUE), Held::new());
    let submit = |class, name| {
        let (job, end) = held.job(name);
        offload.submit(class, address(1), job).map(|()| end)
    };
    let mut searches = Vec::new();
    while let Ok(end) = submit(Class::Search, "search") {
        searches.push(end);
    }
    for _ in QUEUE.address_max..searches.len() {
        assert_eq!(held.next(), "search");
    }
    for (class, name) in [(Class::ColdRead, "cold read"), (Class::Unpack, "unpacking")] {
        let other = submit(class, name);
        assert!(other.is_ok(), "{name}");
        assert_eq!(held.next(), name);
    }
    drop(searches);
    (0..QUEUE.address_max).for_each(|_| assert_eq!(held.next(), "search"));
}

#[tokio::test]
async fn work_without_a_result_is_told_apart() {
    let offload = Offload::new(1, QueueLimits { address_max: 1, total_max: 1 });
    let run = offload.run(Class::Search, address(1), || 7);
    assert_eq!(run.await, Ok(7));
    let fails = || -> u8 { panic!("on purpose") };
    let run = offload.run(Class::ColdRead, address(1), fails);
    assert_eq!(run.await, Err(NotDone::Failed));
}

#[tokio::test]
async fn input_of_work_comes_back_if_too_many_jobs_wait() {
    let offload = Offload::new(1, QueueLimits { address_max: 1, total_max: 1 });
    let twice = |is_short, input| {
        offload.search_unless(is_short, address(1), input, |number: u8| {
            assert_ne!(number, 9, "on purpose");
            2 * number
        })
    };
    assert_eq!(twice(false, 1).await, Ok(2));
    assert_eq!(twice(false, 9).await, Err(Undone::Failed));
    let (held, mut ends) = (Held::new(), Vec::new());
    loop {
        let (job, end) = held.job("search");
        if offload.submit(Class::Search, address(1), job).is_err() {
            break;
        }
        ends.push(end);
    }
    assert_eq!(twice(false, 3).await, Err(Undone::Full(3)));
    assert_eq!(twice(true, 4).await, Ok(8), "short work needs no thread");
}
