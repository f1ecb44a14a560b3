//! The writer thread: the only one that appends, syncs, evicts and withdraws.
//!
//! Records come over a queue that is bounded in bytes, so that a slow disk slows the follower down
//! and memory stays what it is. A full disk is waited out; any other failure of a write stops the
//! thread, and serving goes on from what is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use metrics::counter;
use neve_jsonrpc::Rules;
use neve_store::{Error, Hash, Identity, Record, Retention, Writer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tracing::{error, info, warn};

use crate::serving::Serving;
use crate::status::{Phase, Status};
use crate::units::Human;

/// Messages that may wait. What bounds memory is the queue's bytes.
const MESSAGES_MAX: usize = 1024;
/// How long a full disk is left alone.
const DISK_FULL_PAUSE: Duration = Duration::from_secs(2);
/// How often the retention is looked at when nothing is rolled: it is what `--retain-age` needs.
const EVICT_INTERVAL: Duration = Duration::from_secs(10);

/// What the writer is asked to do.
enum Work {
    Append(Box<Record>, Rules, OwnedSemaphorePermit),
    Bind(Identity, Rules, oneshot::Sender<Result<(), Error>>),
    Withdraw(u64, oneshot::Sender<Result<(), Error>>),
    /// Says when everything before it is done, and what the head is then.
    Barrier(oneshot::Sender<Option<(u64, Hash)>>),
}

/// The writer has stopped.
#[derive(Debug, thiserror::Error)]
#[error("the writer has stopped")]
pub(crate) struct Stopped;

/// Sends work to the writer thread.
#[derive(Clone)]
pub(crate) struct Ingest {
    work: mpsc::Sender<Work>,
    room: Arc<Semaphore>,
    room_max: usize,
    queued: Arc<AtomicU64>,
}

/// A unit of the semaphore, which counts in 32 bits: a KiB.
const ROOM_UNIT: usize = 1024;

impl Ingest {
    /// Appends a record after all that was sent before. Waits while the queue is full.
    pub(crate) async fn append(&self, record: Record, rules: Rules) -> Result<(), Stopped> {
        let bytes = record.encoded_len();
        // One that is larger than the queue goes through it alone.
        let units = (bytes as usize / ROOM_UNIT + 1).min(self.room_max);
        let room = Arc::clone(&self.room).acquire_many_owned(units as u32);
        let permit = room.await.map_err(|_| Stopped)?;
        self.queued.fetch_add(bytes, Ordering::Relaxed);
        self.send(Work::Append(Box::new(record), rules, permit)).await
    }

    /// Binds the store to a chain.
    pub(crate) async fn bind(
        &self,
        identity: Identity,
        rules: Rules,
    ) -> Result<Result<(), Error>, Stopped> {
        let (done, answer) = oneshot::channel();
        self.send(Work::Bind(identity, rules, done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// Takes heights from `from` on back.
    pub(crate) async fn withdraw(&self, from: u64) -> Result<Result<(), Error>, Stopped> {
        let (done, answer) = oneshot::channel();
        self.send(Work::Withdraw(from, done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// The head once everything sent so far is stored.
    pub(crate) async fn barrier(&self) -> Result<Option<(u64, Hash)>, Stopped> {
        let (done, answer) = oneshot::channel();
        self.send(Work::Barrier(done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    async fn send(&self, work: Work) -> Result<(), Stopped> {
        self.work.send(work).await.map_err(|_| Stopped)
    }
}

/// What the writer thread needs.
pub(crate) struct Setup {
    pub(crate) writer: Writer,
    pub(crate) serving: Arc<Serving>,
    pub(crate) status: Arc<Status>,
    pub(crate) retention: Retention,
    pub(crate) sync_interval: Duration,
    pub(crate) queue_bytes_max: usize,
    pub(crate) queued: Arc<AtomicU64>,
}

/// Starts the writer thread. It ends when every [`Ingest`] is dropped, after a last sync.
pub(crate) fn start(setup: Setup) -> std::io::Result<(Ingest, thread::JoinHandle<()>)> {
    let (work, incoming) = mpsc::channel(MESSAGES_MAX);
    let room_max = (setup.queue_bytes_max / ROOM_UNIT).max(1);
    let queued = Arc::clone(&setup.queued);
    let room = Arc::new(Semaphore::new(room_max));
    let ingest = Ingest { work, room, room_max, queued };
    let thread = thread::Builder::new().name("writer".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        match runtime {
            Ok(runtime) => runtime.block_on(Loop::new(setup).run(incoming)),
            Err(error) => error!(%error, "the writer cannot start"),
        }
    })?;
    Ok((ingest, thread))
}

struct Loop {
    setup: Setup,
    /// When something was appended that is not synced yet.
    dirty_since: Option<Instant>,
    evicted_at: Instant,
    segments: usize,
}

impl Loop {
    fn new(setup: Setup) -> Self {
        Self { setup, dirty_since: None, evicted_at: Instant::now(), segments: 0 }
    }

    async fn run(mut self, mut incoming: mpsc::Receiver<Work>) {
        loop {
            let pause = self.next_pause();
            let done = match tokio::time::timeout(pause, incoming.recv()).await {
                Ok(Some(work)) => self.handle(work, &incoming).await,
                Ok(None) => break,
                Err(_) => Ok(()),
            };
            if let Err(error) = done.and_then(|()| self.upkeep()) {
                self.give_up(&error);
                return;
            }
        }
        match self.setup.writer.sync() {
            Ok(()) => info!("the store is synced"),
            Err(error) => error!(%error, "the last sync failed"),
        }
    }

    fn next_pause(&self) -> Duration {
        let sync =
            self.dirty_since.map(|since| self.setup.sync_interval.saturating_sub(since.elapsed()));
        let evict = EVICT_INTERVAL.saturating_sub(self.evicted_at.elapsed());
        sync.map_or(evict, |sync| sync.min(evict))
    }

    async fn handle(&mut self, work: Work, incoming: &mpsc::Receiver<Work>) -> Result<(), Error> {
        match work {
            Work::Append(record, rules, permit) => {
                self.set_rules(rules)?;
                self.append(&record, incoming).await?;
                self.setup.queued.fetch_sub(record.encoded_len(), Ordering::Relaxed);
                drop(permit);
            }
            Work::Bind(identity, rules, done) => {
                let bound = self.bind(identity, rules);
                let _ = done.send(bound); // whoever asked may be gone
            }
            Work::Withdraw(from, done) => {
                let withdrawn = self.withdraw(from);
                let failed = withdrawn.as_ref().err().map(ToString::to_string);
                let _ = done.send(withdrawn);
                if let Some(error) = failed {
                    warn!(error, "withdrawn heights are hidden, but still on the disk");
                }
            }
            Work::Barrier(done) => {
                let _ = done.send(self.setup.writer.head());
            }
        }
        Ok(())
    }

    /// Appends, and again and again while the disk is full, unless all is about to end.
    async fn append(
        &mut self,
        record: &Record,
        incoming: &mpsc::Receiver<Work>,
    ) -> Result<(), Error> {
        loop {
            match self.setup.writer.append(record) {
                Ok(()) => break,
                Err(error) if error.is_disk_full() => {
                    self.disk_full(&error);
                    if incoming.is_closed() {
                        return Ok(());
                    }
                    tokio::time::sleep(DISK_FULL_PAUSE).await;
                    self.evict()?;
                }
                Err(error) => return Err(error),
            }
        }
        if self.setup.status.words().store_error.is_some() {
            info!("there is room on the disk again");
            self.setup.status.set_store_error(None);
        }
        self.setup.serving.head_moved();
        self.dirty_since.get_or_insert_with(Instant::now);
        counter!("neve_blocks_stored_total").increment(1);
        Ok(())
    }

    fn disk_full(&self, error: &Error) {
        if self.setup.status.words().store_error.is_none() {
            error!(%error, "nothing more is stored until there is room; serving goes on");
        }
        self.setup.status.set_store_error(Some(error.to_string()));
    }

    fn bind(&mut self, identity: Identity, rules: Rules) -> Result<(), Error> {
        self.setup.writer.bind(identity, stamp_rules(rules))?;
        self.setup.serving.identify(identity);
        self.setup.serving.set_rules(rules);
        Ok(())
    }

    /// Before a record of the new form is seen, answers take the new form.
    fn set_rules(&mut self, rules: Rules) -> Result<(), Error> {
        if self.setup.serving.rules() == rules {
            return Ok(());
        }
        info!(?rules, "the upstream answers by other rules now");
        self.setup.serving.set_rules(rules);
        match self.setup.writer.stamp() {
            Some(stamp) => self.setup.writer.bind(stamp.identity, stamp_rules(rules)),
            None => Ok(()),
        }
    }

    fn withdraw(&mut self, from: u64) -> Result<(), Error> {
        let head = self.setup.writer.head().map_or(0, |(height, _)| height);
        let count = (head + 1).saturating_sub(from);
        if count > 0 {
            warn!(from, count, "withdrawing unproven heights");
            counter!("neve_blocks_withdrawn_total").increment(count);
        }
        let withdrawn = self.setup.writer.withdraw(from);
        self.setup.serving.head_moved();
        withdrawn
    }

    /// What is due besides appending: sync, evict, merge.
    fn upkeep(&mut self) -> Result<(), Error> {
        if self.dirty_since.is_some_and(|since| since.elapsed() >= self.setup.sync_interval) {
            self.setup.writer.sync()?;
            self.dirty_since = None;
        }
        let segments = self.setup.serving.reader.usage().segments;
        if segments != self.segments || self.evicted_at.elapsed() >= EVICT_INTERVAL {
            self.evict()?;
            self.setup.writer.merge_tables()?;
            self.segments = self.setup.serving.reader.usage().segments;
        }
        Ok(())
    }

    fn evict(&mut self) -> Result<(), Error> {
        self.evicted_at = Instant::now();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        let evicted = self.setup.writer.evict(&self.setup.retention, now)?;
        if evicted.segments > 0 {
            counter!("neve_blocks_evicted_total").increment(evicted.heights);
            let bytes = Human(evicted.bytes);
            info!(segments = evicted.segments, heights = evicted.heights, %bytes, "evicted");
        }
        Ok(())
    }

    fn give_up(&self, error: &Error) {
        error!(%error, "the writer stops; serving goes on from what is stored");
        self.setup.status.set_store_error(Some(error.to_string()));
        self.setup.status.set_phase(Phase::Stopped);
    }
}

/// Rules as the stamp has them.
pub(crate) fn stamp_rules(rules: Rules) -> neve_store::Rules {
    match rules {
        Rules::BeforeHelicon => 0,
        Rules::Helicon => 1,
    }
}

/// Rules from the stamp. A number of a later release is taken for the newest rules known here.
pub(crate) fn rules_of_stamp(rules: neve_store::Rules) -> Rules {
    if rules == 0 { Rules::BeforeHelicon } else { Rules::Helicon }
}
