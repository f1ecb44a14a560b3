//! The writer thread: the only one that appends, syncs, evicts and withdraws.
//!
//! Each record has a reservation of memory (see `shared/ingest_budget.rs`). So a slow disk slows fetching down, and
//! memory does not grow. The thread waits until a full disk has space again. Any other failure of a write stops
//! it, and neve serves the heights that are stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use neve_jsonrpc::Rules;
use neve_store::{BuiltSegments, Error, Identity, NewTable, Options, Record, Retention, Writer};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use super::clock::Clock;
use super::packer::Packer;
use super::queue::{Ingest, QueuedWork};
use super::written::note_written;
use crate::shared::{Phase, Serving, Status};

/// Time between two looks whether neve stops, while following waits for the packer.
const WAIT_PAUSE: Duration = Duration::from_millis(100);
/// Time between two looks at the files, the clock and the age of the oldest block, however often segments change.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Parts of the writer thread.
pub(crate) struct Setup {
    pub(crate) writer: Writer,
    pub(crate) serving: Arc<Serving>,
    pub(crate) status: Arc<Status>,
    pub(crate) retention: Retention,
    /// Bytes of segments that wait for the archive; `None`: nothing is pushed.
    pub(crate) unpushed_bytes_max: Option<u64>,
    pub(crate) fsync_interval: Duration,
    /// Bytes of records that wait.
    pub(crate) queued: Arc<AtomicU64>,
    /// Newest bytes that stay unpacked; `None`: nothing is packed.
    pub(crate) unpacked_bytes: Option<u64>,
    /// Priority of packing.
    pub(crate) nice: i32,
    /// Sizes of segments.
    pub(crate) options: Options,
    /// Nanoseconds that writing took.
    pub(crate) busy: Arc<AtomicU64>,
}

/// Starts the writer thread. It ends when every [`Ingest`] is dropped, after a last sync.
pub(crate) fn start(setup: Setup) -> std::io::Result<(Ingest, thread::JoinHandle<()>)> {
    let (queued, busy) = (Arc::clone(&setup.queued), Arc::clone(&setup.busy));
    let (ingest, incoming) = Ingest::new(queued, setup.options, busy);
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
    /// Time when something was appended that is not synced yet.
    dirty_since: Option<Instant>,
    /// Time of the last look at what other programs may have changed, at the clock and at the age of blocks.
    looked_at: Instant,
    segments: usize,
    clock: Clock,
    /// A segment file was removed by another program; there may be more.
    is_losing: bool,
    /// A record was dropped, as neve stops while the disk is full. No later record may follow.
    has_dropped: bool,
    /// Sync in flight on a thread of its own, like the merge: no record waits for them.
    syncing: Option<JoinHandle<Result<(), Error>>>,
    merging: Option<JoinHandle<Result<NewTable, Error>>>,
    packer: Packer,
    /// Bytes beyond the retention bound that packing is going to give back.
    excess: u64,
}

impl Loop {
    fn new(setup: Setup) -> Self {
        let packer = Packer::new(setup.unpacked_bytes, setup.nice, &setup.status);
        Self {
            setup,
            dirty_since: None,
            looked_at: Instant::now(),
            segments: 0,
            clock: Clock::default(),
            is_losing: false,
            has_dropped: false,
            syncing: None,
            merging: None,
            packer,
            excess: 0,
        }
    }

    async fn run(mut self, mut incoming: mpsc::Receiver<QueuedWork>) {
        loop {
            // neve stops without a wait.
            let waits = self.waits_for_packer() && !incoming.is_closed();
            let pause = self.next_pause().min(if waits { WAIT_PAUSE } else { Duration::MAX });
            let done = tokio::select! {
                biased;
                Some(synced) = ended(&mut self.syncing) => self.setup.writer.end_sync(synced),
                Some(merged) = ended(&mut self.merging) => self.merged(merged),
                Some(packed) = self.packer.ended() => self.packed(packed),
                // Behind the ends of tasks, which are few: a queue that is never empty would keep them waiting.
                work = incoming.recv(), if !waits => match work {
                    Some(work) => self.handle(work, &incoming).await,
                    None => break,
                },
                () = tokio::time::sleep(pause) => Ok(()),
            };
            if let Err(error) = done.and_then(|()| self.upkeep()) {
                return self.give_up(&error);
            }
        }
        self.finish().await;
    }

    /// Syncs the store and tidies up before neve stops.
    async fn finish(&mut self) {
        // First what only this process has: neve does not wait for the rest for ever.
        match self.sync_all().await {
            Ok(()) => info!("store synced"),
            Err(error) => error!(%error, "the last sync failed"),
        }
        if let Err(error) = self.packer.finish(&mut self.setup.writer).await {
            error!(%error, "packed segments not removed");
        }
        if let Err(error) = self.restore_all() {
            error!(%error, "removed segment files not written anew");
        }
        if let Err(error) = self.setup.writer.sync() {
            error!(%error, "names of files not synced");
        }
    }

    /// Syncs all records, also those that came after the sync that runs.
    async fn sync_all(&mut self) -> Result<(), Error> {
        match ended(&mut self.syncing).await {
            Some(Err(error)) => self.setup.writer.end_sync(Err(error)),
            _ => self.setup.writer.sync(),
        }
    }

    fn next_pause(&self) -> Duration {
        if self.is_losing {
            // Each lost file takes a turn of the loop, so that records come in between.
            return Duration::ZERO;
        }
        // While a sync runs, the next one waits for its end and not for the clock.
        let dirty = self.dirty_since.filter(|_| self.syncing.is_none());
        let sync = dirty.map(|since| self.setup.fsync_interval.saturating_sub(since.elapsed()));
        let look = LOOK_INTERVAL.saturating_sub(self.looked_at.elapsed());
        sync.map_or(look, |sync| sync.min(look))
    }

    async fn handle(
        &mut self,
        work: QueuedWork,
        incoming: &mpsc::Receiver<QueuedWork>,
    ) -> Result<(), Error> {
        match work {
            QueuedWork::Append(record, rules, room, bytes) => {
                self.append(&record, rules, incoming).await?;
                drop((room, bytes));
            }
            QueuedWork::BackfillWriter(done) => drop(done.send(self.setup.writer.history())),
            QueuedWork::Prepend(built, done) => drop(done.send(self.prepend(built))),
            QueuedWork::Repair(base, done) => drop(done.send(self.setup.writer.repair(base))),
            QueuedWork::Replace(built, done) => drop(done.send(self.replace(built))),
            // The session may have ended.
            QueuedWork::Bind(identity, rules, done) => drop(done.send(self.bind(identity, rules))),
            QueuedWork::Withdraw(from, done) => self.withdraw_for(from, done),
            QueuedWork::Barrier(done) => {
                let _ = done.send(self.setup.writer.head());
            }
        }
        Ok(())
    }

    /// Appends a record of these rules. While the disk is full it tries again, unless neve stops.
    async fn append(
        &mut self,
        record: &Record,
        rules: Rules,
        incoming: &mpsc::Receiver<QueuedWork>,
    ) -> Result<(), Error> {
        if self.has_dropped {
            return Ok(());
        }
        if !self.append_once_there_is_room(record, rules, incoming).await? {
            self.has_dropped = true;
            return Ok(());
        }
        if self.setup.status.words().store_error.is_some() {
            info!("disk has space again");
            self.setup.status.set_store_error(None);
        }
        self.setup.serving.head_moved();
        self.dirty_since.get_or_insert_with(Instant::now);
        counter!("neve_blocks_stored_total").increment(1);
        note_written(record);
        Ok(())
    }

    /// Appends a record, once the disk has space for it. Returns false if neve stops before.
    async fn append_once_there_is_room(
        &mut self,
        record: &Record,
        rules: Rules,
        incoming: &mpsc::Receiver<QueuedWork>,
    ) -> Result<bool, Error> {
        let mut has_paused = false;
        loop {
            let begun = Instant::now();
            let appended = self.set_rules(rules).and_then(|()| self.setup.writer.append(record));
            self.setup.busy.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
            match appended {
                Err(error) if error.is_disk_full() => self.disk_full(&error),
                appended => return appended.map(|()| true),
            }
            // neve stops: a pause for space would hold it up for as long as the disk is full.
            if incoming.is_closed() {
                return Ok(false);
            }
            has_paused = self.make_room(has_paused).await?;
        }
    }

    fn bind(&mut self, identity: Identity, rules: Rules) -> Result<(), Error> {
        self.setup.writer.bind(identity, stamp_rules(rules))?;
        self.setup.serving.identify(identity);
        self.setup.serving.set_rules(rules);
        Ok(())
    }

    /// Changes the rules of responses, before readers see a record of the new form.
    fn set_rules(&mut self, rules: Rules) -> Result<(), Error> {
        if self.setup.serving.rules() == rules {
            return Ok(());
        }
        // First, as a full disk may refuse it: then the rules stay, and the next call tries again.
        if let Some(stamp) = self.setup.writer.stamp() {
            self.setup.writer.bind(stamp.identity, stamp_rules(rules))?;
        }
        info!(?rules, "upstream rules changed");
        self.setup.serving.set_rules(rules);
        Ok(())
    }

    fn withdraw(&mut self, from: u64) -> Result<(), Error> {
        let head = self.setup.writer.head().map_or(0, |(height, _)| height);
        let count = (head + 1).saturating_sub(from);
        if count > 0 {
            warn!(from, count, "withdrawing unproven heights");
            counter!("neve_blocks_withdrawn_total").increment(count);
        }
        let withdrawn = self.setup.writer.withdraw(from);
        // Also after an error: readers have the new view by then.
        self.setup.serving.withdrew();
        withdrawn
    }

    fn withdraw_for(&mut self, from: u64, done: oneshot::Sender<Result<(), Error>>) {
        let withdrawn = self.withdraw(from);
        let failed = withdrawn.as_ref().err().map(ToString::to_string);
        let _ = done.send(withdrawn);
        if let Some(error) = failed {
            // Readers see them no longer, and no segment begins before they are gone.
            warn!(error, "withdrawn heights still on disk");
        }
    }

    fn replace(&mut self, built: BuiltSegments) -> Result<bool, Error> {
        self.dirty_since.get_or_insert_with(Instant::now);
        self.setup.writer.replace(built)
    }

    fn prepend(&mut self, built: BuiltSegments) -> Result<u64, Error> {
        let heights = self.setup.writer.prepend(built)?;
        self.dirty_since.get_or_insert_with(Instant::now);
        counter!("neve_blocks_backfilled_total").increment(heights);
        Ok(heights)
    }

    /// Begins a sync if one is due.
    fn begin_sync(&mut self) {
        let due = |since: Instant| since.elapsed() >= self.setup.fsync_interval;
        if self.syncing.is_none() && self.dirty_since.is_some_and(due) {
            let syncing = self.setup.writer.begin_sync();
            self.syncing = Some(tokio::task::spawn_blocking(move || {
                let begun = Instant::now();
                let synced = syncing.run();
                histogram!("neve_store_fsync_duration_seconds").record(begun.elapsed());
                synced
            }));
            // Records that come while the sync runs begin a new interval.
            self.dirty_since = None;
        }
    }

    /// Does the work that is due besides appending: sync, evict, merge.
    fn upkeep(&mut self) -> Result<(), Error> {
        self.begin_sync();
        let segments = self.setup.serving.reader.usage().segments;
        let is_due = self.looked_at.elapsed() >= LOOK_INTERVAL;
        if is_due {
            self.looked_at = Instant::now();
            self.watch_clock();
        }
        if is_due || self.is_losing {
            self.restore_lost()?; // one at a time: records come in between
        }
        if segments != self.segments || is_due {
            self.evict()?;
            self.begin_merge();
            self.packer.begin(&self.setup.writer);
            self.segments = self.setup.serving.reader.usage().segments;
        }
        Ok(())
    }

    /// Writes a segment again if another program removed its file. Readers have it mapped and do not notice.
    fn restore_lost(&mut self) -> Result<(), Error> {
        let restored = self.setup.writer.restore_lost();
        self.is_losing = matches!(restored, Ok(Some(_)));
        match restored {
            Ok(Some(segment)) => {
                warn!(segment, "removed segment file written anew");
                counter!("neve_store_lost_files_total").increment(1);
                self.dirty_since.get_or_insert_with(Instant::now);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) if error.is_disk_full() => {
                warn!(%error, "removed segment file not written anew");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn restore_all(&mut self) -> Result<(), Error> {
        self.is_losing = true;
        while self.is_losing {
            self.restore_lost()?;
        }
        Ok(())
    }

    fn watch_clock(&mut self) {
        let doubt = self.clock.doubt(self.setup.writer.newest_timestamp());
        if let Some(doubt) = doubt.as_ref().filter(|_| self.setup.status.words().clock.is_none()) {
            warn!(reason = doubt, "system clock is wrong");
        }
        self.setup.status.set_clock(doubt);
    }

    fn begin_merge(&mut self) {
        // One merge at a time: the tables that this one leaves decide which ones the next merge takes.
        if self.merging.is_none() {
            let due = self.setup.writer.begin_merge();
            self.merging = due.map(|due| tokio::task::spawn_blocking(move || due.run()));
        }
    }

    /// Merges until no merge is due: each often makes another due.
    fn merged(&mut self, merged: Result<NewTable, Error>) -> Result<(), Error> {
        if self.setup.writer.end_merge(merged)? {
            self.begin_merge();
        }
        Ok(())
    }

    fn give_up(&self, error: &Error) {
        error!(%error, "writer stops");
        self.setup.status.set_store_error(Some(error.to_string()));
        self.setup.status.set_phase(Phase::Stopped);
    }
}

/// Waits for the result of a task; `None` if there is no task, or if it panicked. Its work is begun again when it is
/// due.
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

mod space;

#[cfg(test)]
mod tests;
