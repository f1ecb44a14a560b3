//! The writer thread: the only one that appends, syncs, evicts and withdraws.
//!
//! Records bring the room that they take with them (see `fetch/budget.rs`), so that a slow disk slows
//! fetching down and memory stays what it is. A full disk is waited out; any other failure of a write stops the
//! thread, and serving goes on from what is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use metrics::{counter, histogram};
use neve_jsonrpc::Rules;
use neve_store::{
    Built, Error, Hash, History, Identity, NewTable, Options, Record, Retention, Writer,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::fetch::Room;
use crate::history::HistoryWriter;
use crate::serving::Serving;
use crate::status::{Phase, Status};
use crate::units::Human;

/// Messages that may wait. What bounds memory is their room.
const MESSAGES_MAX: usize = 1024;
/// How long a full disk is left alone.
const DISK_FULL_PAUSE: Duration = Duration::from_secs(2);
/// How often the retention is looked at when nothing is rolled: it is what `--retain-age` needs.
const EVICT_INTERVAL: Duration = Duration::from_secs(10);

/// What the writer is asked to do.
enum Work {
    Append(Box<Record>, Rules, Room),
    /// Gives what builds heights below the first one.
    History(oneshot::Sender<Result<History, Error>>),
    Prepend(Built, oneshot::Sender<Result<u64, Error>>),
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
    queued: Arc<AtomicU64>,
    options: Options,
    busy: Arc<AtomicU64>,
}

impl Ingest {
    /// Appends a record after all that was sent before.
    pub(crate) async fn append(
        &self,
        record: Record,
        rules: Rules,
        room: Room,
    ) -> Result<(), Stopped> {
        self.queued.fetch_add(record.encoded_len(), Ordering::Relaxed);
        self.send(Work::Append(Box::new(record), rules, room)).await
    }

    /// Bytes of records in a segment.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.options.segment_bytes
    }

    /// Heights of a segment.
    pub(crate) fn segment_blocks(&self) -> u32 {
        self.options.span
    }

    /// Begins heights below the first one.
    pub(crate) async fn history(&self) -> Result<Result<HistoryWriter, Error>, Stopped> {
        let history = self.raw_history().await?;
        Ok(history.map(|history| HistoryWriter::start(history, Arc::clone(&self.busy))))
    }

    /// The same, to be written by the caller.
    pub(crate) async fn raw_history(&self) -> Result<Result<History, Error>, Stopped> {
        let (done, answer) = oneshot::channel();
        self.send(Work::History(done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// Publishes heights below the first one. Gives how many.
    pub(crate) async fn prepend(&self, built: Built) -> Result<Result<u64, Error>, Stopped> {
        let (done, answer) = oneshot::channel();
        self.send(Work::Prepend(built, done)).await?;
        answer.await.map_err(|_| Stopped)
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
    /// Bytes of records that wait.
    pub(crate) queued: Arc<AtomicU64>,
    /// How segments are made.
    pub(crate) options: Options,
    /// Nanoseconds that writing took.
    pub(crate) busy: Arc<AtomicU64>,
}

/// Starts the writer thread. It ends when every [`Ingest`] is dropped, after a last sync.
pub(crate) fn start(setup: Setup) -> std::io::Result<(Ingest, thread::JoinHandle<()>)> {
    let (work, incoming) = mpsc::channel(MESSAGES_MAX);
    let (queued, busy) = (Arc::clone(&setup.queued), Arc::clone(&setup.busy));
    let ingest = Ingest { work, queued, options: setup.options, busy };
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
    /// Under way on threads of their own: a record does not wait for them.
    syncing: Option<JoinHandle<Result<(), Error>>>,
    merging: Option<JoinHandle<Result<NewTable, Error>>>,
}

impl Loop {
    fn new(setup: Setup) -> Self {
        Self {
            setup,
            dirty_since: None,
            evicted_at: Instant::now(),
            segments: 0,
            syncing: None,
            merging: None,
        }
    }

    async fn run(mut self, mut incoming: mpsc::Receiver<Work>) {
        loop {
            let pause = self.next_pause();
            let done = tokio::select! {
                biased;
                work = incoming.recv() => match work {
                    Some(work) => self.handle(work, &incoming).await,
                    None => break,
                },
                Some(synced) = ended(&mut self.syncing) => self.setup.writer.end_sync(synced),
                Some(merged) = ended(&mut self.merging) => self.merged(merged),
                () = tokio::time::sleep(pause) => Ok(()),
            };
            if let Err(error) = done.and_then(|()| self.upkeep()) {
                self.give_up(&error);
                return;
            }
        }
        let synced = match ended(&mut self.syncing).await {
            Some(Err(error)) => self.setup.writer.end_sync(Err(error)),
            _ => self.setup.writer.sync(),
        };
        match synced {
            Ok(()) => info!("the store is synced"),
            Err(error) => error!(%error, "the last sync failed"),
        }
    }

    fn next_pause(&self) -> Duration {
        let dirty = self.dirty_since.filter(|_| self.syncing.is_none());
        let sync = dirty.map(|since| self.setup.sync_interval.saturating_sub(since.elapsed()));
        let evict = EVICT_INTERVAL.saturating_sub(self.evicted_at.elapsed());
        sync.map_or(evict, |sync| sync.min(evict))
    }

    async fn handle(&mut self, work: Work, incoming: &mpsc::Receiver<Work>) -> Result<(), Error> {
        match work {
            Work::Append(record, rules, room) => {
                self.set_rules(rules)?;
                self.append(&record, incoming).await?;
                self.setup.queued.fetch_sub(record.encoded_len(), Ordering::Relaxed);
                drop(room);
            }
            Work::History(done) => drop(done.send(self.setup.writer.history())),
            Work::Prepend(built, done) => drop(done.send(self.prepend(built))),
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
            let begun = Instant::now();
            let appended = self.setup.writer.append(record);
            self.setup.busy.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
            match appended {
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
        note_written(record);
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

    fn prepend(&mut self, built: Built) -> Result<u64, Error> {
        let heights = self.setup.writer.prepend(built)?;
        self.dirty_since.get_or_insert_with(Instant::now);
        counter!("neve_blocks_backfilled_total").increment(heights);
        Ok(heights)
    }

    /// What is due besides appending: sync, evict, merge.
    fn upkeep(&mut self) -> Result<(), Error> {
        let due = |since: Instant| since.elapsed() >= self.setup.sync_interval;
        if self.syncing.is_none() && self.dirty_since.is_some_and(due) {
            let syncing = self.setup.writer.begin_sync();
            self.syncing = Some(tokio::task::spawn_blocking(move || {
                let begun = Instant::now();
                let synced = syncing.run();
                histogram!("neve_store_syncs_seconds").record(begun.elapsed());
                synced
            }));
            self.dirty_since = None;
        }
        let segments = self.setup.serving.reader.usage().segments;
        if segments != self.segments || self.evicted_at.elapsed() >= EVICT_INTERVAL {
            self.evict()?;
            self.begin_merge();
            self.segments = self.setup.serving.reader.usage().segments;
        }
        Ok(())
    }

    fn begin_merge(&mut self) {
        if self.merging.is_none() {
            let due = self.setup.writer.begin_merge();
            self.merging = due.map(|due| tokio::task::spawn_blocking(move || due.run()));
        }
    }

    /// One merge often makes another due.
    fn merged(&mut self, merged: Result<NewTable, Error>) -> Result<(), Error> {
        if self.setup.writer.end_merge(merged)? {
            self.begin_merge();
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

/// Counts what a record that was written is made of.
pub(crate) fn note_written(record: &Record) {
    counter!("neve_stored_bytes_total").increment(record.encoded_len());
    counter!("neve_stored_logs_total").increment(record.logs.len() as u64);
}

/// The result of what is under way, once it has ended; `None` if nothing is. What panicked is done
/// again when it is due again.
async fn ended<T>(under_way: &mut Option<JoinHandle<T>>) -> Option<T> {
    let ended = under_way.as_mut()?.await;
    *under_way = None;
    ended.ok()
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
