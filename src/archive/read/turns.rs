//! Turns at the processors. Work for archived heights computes in turns, so that it leaves processors to serving
//! threads. Work that waits for the disk meanwhile gives its turn back.

use std::cell::Cell;
use std::num::NonZeroUsize;
#[cfg(test)]
use std::sync::MutexGuard;
#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, LazyLock, Mutex};
use std::thread;

use neve_archive::{Digest, PAGE_BYTES};

use crate::shared::lock::{lock, recover};

/// Turns of the process: half of its processors, one at least.
static TURNS: LazyLock<Turns> = LazyLock::new(|| Turns::new(count()));

thread_local! {
    /// True while this thread has a turn.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// Turns of the process.
pub(super) fn count() -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    (processors / 2).max(1)
}

/// Turns, and the threads that wait for one.
struct Turns {
    free: Mutex<usize>,
    freed: Condvar,
    /// Times that work found no turn.
    #[cfg(test)]
    waits: AtomicUsize,
}

/// A turn, until it is dropped: also by a panic.
struct Turn<'t>(&'t Turns);

/// The time without a turn that was given back. Its end takes another one.
struct YieldedTurn<'t>(&'t Turns);

impl Turns {
    fn new(count: usize) -> Self {
        Self {
            free: Mutex::new(count),
            freed: Condvar::new(),
            #[cfg(test)]
            waits: AtomicUsize::new(0),
        }
    }

    /// Waits for a turn.
    fn take(&self) {
        let is_absent = |free: &mut usize| {
            #[cfg(test)]
            self.waits.fetch_add(usize::from(*free == 0), Ordering::Relaxed);
            *free == 0
        };
        let free = self.freed.wait_while(lock(&self.free), is_absent);
        *recover(free) -= 1;
        HAS_TURN.set(true);
    }

    fn give_back(&self) {
        HAS_TURN.set(false);
        *lock(&self.free) += 1;
        // One waiter is enough for one turn, and each can take it.
        self.freed.notify_one();
    }

    fn compute<T>(&self, work: impl FnOnce() -> T) -> T {
        if HAS_TURN.get() {
            return work(); // a part of work that has one
        }
        self.take();
        let _turn = Turn(self);
        work()
    }

    fn wait<T>(&self, work: impl FnOnce() -> T) -> T {
        if !HAS_TURN.get() {
            return work();
        }
        self.give_back();
        let _pause = YieldedTurn(self);
        work()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl Drop for YieldedTurn<'_> {
    fn drop(&mut self) {
        self.0.take();
    }
}

/// Computes, once a turn is free. The thread may be one that waits.
pub(super) fn compute<T>(work: impl FnOnce() -> T) -> T {
    TURNS.compute(work)
}

/// Waits for the disk, without a turn.
pub(super) fn wait<T>(work: impl FnOnce() -> T) -> T {
    TURNS.wait(work)
}

/// Returns the digest that names an object. Each page is a turn: an object may have 1 GiB.
pub(super) fn object_digest(object: &[u8]) -> Digest {
    let digest = |page| compute(|| Digest::of(page)).0;
    let list: Vec<u8> = object.chunks(PAGE_BYTES).flat_map(digest).collect();
    compute(|| Digest::of(&list))
}

/// All turns of the process, until it is dropped. Two tests that take some each would wait for each other.
#[cfg(test)]
pub(super) struct AllTurns {
    count: usize,
    _taken: MutexGuard<'static, ()>,
}

#[cfg(test)]
impl AllTurns {
    /// Waits for all of them. This thread computes on.
    pub(super) fn take() -> Self {
        static TAKEN: Mutex<()> = Mutex::new(());
        let (taken, count) = (lock(&TAKEN), count());
        (0..count).for_each(|_| TURNS.take());
        HAS_TURN.set(false);
        Self { count, _taken: taken }
    }

    /// Times that work of the process found no turn.
    pub(super) fn waits() -> usize {
        TURNS.waits.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
impl Drop for AllTurns {
    fn drop(&mut self) {
        (0..self.count).for_each(|_| TURNS.give_back());
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use super::*;

    /// Time in which work that has no turn does not begin, and longest time of anything.
    const SHORT: Duration = Duration::from_millis(100);
    const LIMIT: Duration = Duration::from_mins(1);

    #[test]
    fn work_waits_for_a_turn_while_others_compute() {
        let turns = Turns::new(2);
        thread::scope(|scope| {
            let (began, begun) = channel();
            let go: Vec<_> = (0..3)
                .map(|number| {
                    let (go, told) = channel::<()>();
                    let (turns, began) = (&turns, began.clone());
                    scope.spawn(move || {
                        turns.compute(|| {
                            began.send(number).expect("the test waits");
                            let _ = told.recv(); // or the test is over
                        });
                    });
                    go
                })
                .collect();
            let mut first = [(); 2].map(|()| begun.recv_timeout(LIMIT).expect("there are two"));
            assert_eq!(begun.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout), "no third one");
            go[first[0]].send(()).expect("it waits");
            let third = begun.recv_timeout(LIMIT).expect("a turn is free");
            first.sort_unstable();
            assert_eq!(first.iter().chain([&third]).sum::<usize>(), 3, "each once");
        });
    }

    #[test]
    fn work_that_waits_for_the_disk_leaves_its_turn_to_others() {
        let turns = Turns::new(1);
        let done = turns.compute(|| {
            turns.compute(|| ()); // a part of it
            turns.wait(|| {
                assert!(!HAS_TURN.get());
                thread::scope(|scope| scope.spawn(|| turns.compute(|| 7)).join())
            })
        });
        assert_eq!((done.expect("no panic"), *lock(&turns.free)), (7, 1));
    }

    #[test]
    fn turn_of_work_that_panics_is_free_again() {
        let turns = Turns::new(1);
        let panics = || panic!("a test");
        let computing = catch_unwind(AssertUnwindSafe(|| turns.compute(panics)));
        let waiting = catch_unwind(AssertUnwindSafe(|| turns.compute(|| turns.wait(panics))));
        assert!(computing.is_err() && waiting.is_err());
        assert_eq!((*lock(&turns.free), HAS_TURN.get()), (1, false));
    }

    #[test]
    fn digest_is_the_one_of_the_name() {
        for length in [0, 1, PAGE_BYTES, 3 * PAGE_BYTES + 5] {
            let object = vec![7; length];
            assert_eq!(object_digest(&object), neve_archive::object_digest(&object));
        }
    }
}
