//! Threads for requests that must not hold up a serving thread, with a share of them per address.
//!
//! There are three pools, so that a search waits for searches only: cold reads wait for the disk,
//! unpacking uses a processor for a moment, searches use it for long. A pool has twice as many threads
//! as one address may use. Each address has a queue of its own, and the queues take turns: a client
//! with many requests waits for itself. Queues are bounded; beyond that a request is refused.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::Duration;

use metrics::{Gauge, counter, gauge};
use rustix::process::setpriority_process;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use crate::config::settings::QueueLimits;
use crate::shared::lock::{lock, recover};
use crate::shared::{Class, ClientAddress};

/// Cold reads of one address at a time, for each worker.
const COLD_READS: usize = 16;
/// Nice value of threads that search: serving threads come first.
const SEARCH_NICE: i32 = 10;
/// Time without a job after which a thread ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Reason why work has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotDone {
    /// Too many jobs wait already.
    Full,
    /// The work panicked, or was dropped because no thread could be started.
    Failed,
}

/// Reason why work with an input has no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Undone<I> {
    /// Too many jobs wait already; the input comes back.
    Full(I),
    /// The work panicked, or was dropped because no thread could be started.
    Failed,
}

type Job = Box<dyn FnOnce() + Send>;

/// Pools of threads that may wait or take long.
pub(crate) struct Offload {
    cold_reads: Pool,
    unpacking: Pool,
    searches: Pool,
}

impl Offload {
    /// Makes the pools for this number of workers. Threads start when they are needed.
    pub(crate) fn new(workers: usize, queue: QueueLimits) -> Arc<Self> {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let cold_reads = Pool::new("cold_read", workers * COLD_READS, 0, queue);
        let searches = Pool::new("search", processors, SEARCH_NICE, queue);
        let unpacking = Pool::new("unpack", processors, 0, queue);
        Arc::new(Self { cold_reads, unpacking, searches })
    }

    /// Sets other bounds of the queues. Jobs beyond them wait on.
    pub(crate) fn set_queue(&self, queue: QueueLimits) {
        for pool in [&self.cold_reads, &self.unpacking, &self.searches] {
            pool.0.state().queue = queue;
        }
    }

    /// Does `work` on a thread of a pool.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        class: Class,
        address: ClientAddress,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let (done, waiting) = oneshot::channel();
        // The receiver may be dropped meanwhile: its client has gone.
        self.submit(class, address, move || drop(done.send(work())))?;
        waiting.await.map_err(|_| NotDone::Failed)
    }

    /// Does `work` with `input`: here if it is short, else on a thread that searches. If the queue is full,
    /// `input` comes back.
    pub(crate) async fn search_unless<I: Send + 'static, T: Send + 'static>(
        &self,
        is_short: bool,
        address: ClientAddress,
        input: I,
        work: impl FnOnce(I) -> T + Send + 'static,
    ) -> Result<T, Undone<I>> {
        if is_short {
            return Ok(work(input));
        }
        let kept = Arc::new(Mutex::new(Some(input)));
        let taken = Arc::clone(&kept);
        let work = move || {
            let input = lock(&taken).take();
            input.map(work)
        };
        match self.run(Class::Search, address, work).await {
            Ok(done) => done.ok_or(Undone::Failed),
            Err(NotDone::Full) => Err(lock(&kept).take().map_or(Undone::Failed, Undone::Full)),
            Err(NotDone::Failed) => Err(Undone::Failed),
        }
    }

    /// Queues `work` for a thread of a pool. If the queue is full, `work` is dropped.
    pub(crate) fn submit(
        &self,
        class: Class,
        address: ClientAddress,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), NotDone> {
        let pool = match class {
            Class::ColdRead => &self.cold_reads,
            Class::Unpack => &self.unpacking,
            Class::Search => &self.searches,
        };
        if pool.submit(address, Box::new(work)) {
            return Ok(());
        }
        counter!("neve_offload_refused_requests_total", "pool" => pool.0.name).increment(1);
        Err(NotDone::Full)
    }
}

/// Threads and their queues. The threads end when this is dropped.
struct Pool(Arc<PoolShared>);

struct PoolShared {
    name: &'static str,
    /// Threads that one address may use; the pool has twice as many.
    address_threads_max: usize,
    nice: i32,
    state: Mutex<State>,
    /// Notified of a job, or of the end.
    changed: Condvar,
    /// Gauge of the jobs that wait: finding it takes as long as handing a job over.
    queued: OnceLock<Gauge>,
}

struct State {
    queue: QueueLimits,
    shares: HashMap<ClientAddress, AddressJobs>,
    /// Addresses with jobs that wait, next first.
    turns: VecDeque<ClientAddress>,
    /// Jobs that wait.
    waiting: usize,
    /// Jobs that run.
    running: usize,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    ended: bool,
}

impl State {
    fn new(queue: QueueLimits) -> Self {
        Self {
            queue,
            shares: HashMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            running: 0,
            threads: 0,
            idle: 0,
            ended: false,
        }
    }
}

/// Jobs of one address.
#[derive(Default)]
struct AddressJobs {
    waiting: VecDeque<Job>,
    running: usize,
}

impl Pool {
    fn new(name: &'static str, address_threads_max: usize, nice: i32, queue: QueueLimits) -> Self {
        let (state, changed) = (Mutex::new(State::new(queue)), Condvar::new());
        let queued = OnceLock::new();
        Self(Arc::new(PoolShared { name, address_threads_max, nice, state, changed, queued }))
    }

    /// Takes a job, unless too many wait.
    fn submit(&self, address: ClientAddress, job: Job) -> bool {
        let shared = &self.0;
        let mut state = shared.state();
        let (waiting, running) = state.jobs_of(address);
        if shared.is_full(&state, waiting + running) {
            return false;
        }
        state.push(address, job);
        let spawns = running < shared.address_threads_max && shared.needs_thread(&state);
        state.threads += usize::from(spawns);
        let is_waited_for = state.idle > 0;
        // A thread that wakes takes this lock first.
        drop(state);
        shared.queued().increment(1.0);
        if is_waited_for {
            shared.changed.notify_one(); // a system call, even if no thread waits
        }
        if spawns {
            self.spawn();
        }
        true
    }

    fn spawn(&self) {
        let shared = Arc::clone(&self.0);
        let name = shared.name.replace('_', "-");
        let spawned = thread::Builder::new().name(name).spawn(move || shared.work());
        if let Err(error) = spawned {
            warn!(%error, "cannot start a thread");
            let mut state = self.0.state();
            state.threads -= 1;
            if state.threads == 0 {
                (0..state.waiting).for_each(|_| self.0.queued().decrement(1.0));
                state.forget(); // no thread would do them; dropped jobs tell their clients
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.changed.notify_all();
    }
}

impl PoolShared {
    fn threads_max(&self) -> usize {
        2 * self.address_threads_max
    }

    /// True if an address with so many jobs, or all addresses together, may queue no more.
    fn is_full(&self, state: &State, jobs: usize) -> bool {
        let QueueLimits { address_max, total_max } = state.queue;
        // The bound is of jobs that wait. A job for which there is a thread does not, even if no thread
        // has taken it yet.
        jobs >= address_max.saturating_add(self.address_threads_max)
            || state.waiting + state.running >= total_max.saturating_add(self.threads_max())
    }

    /// True if more jobs wait than threads are idle, and another thread may start.
    fn needs_thread(&self, state: &State) -> bool {
        // An idle thread takes a job sooner than a new one starts.
        state.waiting > state.idle && state.threads < self.threads_max()
    }

    fn queued(&self) -> &Gauge {
        self.queued.get_or_init(|| gauge!("neve_offload_queued_requests", "pool" => self.name))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Does jobs until there are none for a while.
    fn work(&self) {
        // On Linux this sets the priority of the calling thread only.
        if self.nice != 0
            && let Err(error) = setpriority_process(None, self.nice)
        {
            debug!(%error, "thread priority unchanged");
        }
        while let Some((address, job)) = self.next() {
            self.queued().decrement(1.0);
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                warn!(pool = self.name, "offloaded work panicked");
            }
            // Also after a panic: otherwise the address would have one thread less from then on.
            self.state().finish(address);
        }
    }

    /// Waits for a job; `None` if the thread should end.
    fn next(&self) -> Option<(ClientAddress, Job)> {
        let mut state = self.state();
        loop {
            // Before the check of the end: requests that were taken get their responses.
            if let Some(next) = state.pop(self.address_threads_max) {
                return Some(next);
            }
            if state.ended {
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, IDLE_MAX);
            let timeout;
            (state, timeout) = recover(waited);
            state.idle -= 1;
            // Jobs that wait for their address's share need this thread soon.
            if timeout.timed_out() && state.waiting == 0 {
                state.threads -= 1; // under the lock: the next job starts another thread
                return None;
            }
        }
    }
}

impl State {
    /// Numbers of jobs of an address: those that wait, and those that run.
    fn jobs_of(&self, address: ClientAddress) -> (usize, usize) {
        self.shares.get(&address).map_or((0, 0), |share| (share.waiting.len(), share.running))
    }

    fn push(&mut self, address: ClientAddress, job: Job) {
        let share = self.shares.entry(address).or_default();
        if share.waiting.is_empty() {
            self.turns.push_back(address);
        }
        share.waiting.push_back(job);
        self.waiting += 1;
    }

    /// Takes the next job of an address that uses fewer threads than it may.
    fn pop(&mut self, address_threads_max: usize) -> Option<(ClientAddress, Job)> {
        // One look at each address: those with all their threads in use go to the end.
        for _ in 0..self.turns.len() {
            let address = self.turns.pop_front()?;
            let share = self.shares.get_mut(&address)?; // it has jobs, or it would have no turn
            let job =
                if share.running < address_threads_max { share.waiting.pop_front() } else { None };
            if !share.waiting.is_empty() {
                self.turns.push_back(address);
            }
            if let Some(job) = job {
                share.running += 1;
                (self.waiting, self.running) = (self.waiting - 1, self.running + 1);
                return Some((address, job));
            }
        }
        None
    }

    /// Notes that a job of this address is done.
    fn finish(&mut self, address: ClientAddress) {
        self.running -= 1;
        if let Some(share) = self.shares.get_mut(&address) {
            share.running -= 1;
            // Any number of addresses comes in time: shares without jobs would add up.
            if share.running == 0 && share.waiting.is_empty() {
                self.shares.remove(&address);
            }
        }
    }

    /// Drops all jobs that wait.
    fn forget(&mut self) {
        self.shares.values_mut().for_each(|share| share.waiting.clear());
        self.shares.retain(|_, share| share.running > 0);
        self.turns.clear();
        self.waiting = 0;
    }
}

#[cfg(test)]
mod tests;
