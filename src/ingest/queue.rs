//! The queue to the writer thread: work in order, and its results.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use neve_jsonrpc::Rules;
use neve_store::{BackfillWriter, BuiltSegments, Error, Hash, Identity, Options, Record, Repair};
use tokio::sync::{mpsc, oneshot};

use super::backfill_thread::BackfillThread;
use super::written::Stopped;
use crate::shared::IngestReservation;

/// Messages that may wait. Their reservations bound memory.
const MESSAGES_MAX: usize = 1024;

/// Work of the writer thread.
pub(super) enum QueuedWork {
    Append(Box<Record>, Rules, IngestReservation, QueuedBytes),
    /// Gives what builds heights below the first one.
    BackfillWriter(oneshot::Sender<Result<BackfillWriter, Error>>),
    Prepend(BuiltSegments, oneshot::Sender<Result<u64, Error>>),
    /// Gives what writes the sealed segment with this base anew.
    Repair(u64, oneshot::Sender<Result<Option<Repair>, Error>>),
    Replace(BuiltSegments, oneshot::Sender<Result<bool, Error>>),
    Bind(Identity, Rules, oneshot::Sender<Result<(), Error>>),
    Withdraw(u64, oneshot::Sender<Result<(), Error>>),
    /// Says when everything before it is done, and what the head is then.
    Barrier(oneshot::Sender<Option<(u64, Hash)>>),
}

/// Bytes of a record that count as queued, until it is written or dropped.
pub(super) struct QueuedBytes {
    queued: Arc<AtomicU64>,
    bytes: u64,
}

impl QueuedBytes {
    pub(super) fn new(queued: &Arc<AtomicU64>, bytes: u64) -> Self {
        queued.fetch_add(bytes, Ordering::Relaxed);
        Self { queued: Arc::clone(queued), bytes }
    }
}

impl Drop for QueuedBytes {
    fn drop(&mut self) {
        self.queued.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Sends work to the writer thread.
#[derive(Clone)]
pub(crate) struct Ingest {
    work: mpsc::Sender<QueuedWork>,
    queued: Arc<AtomicU64>,
    options: Options,
    busy: Arc<AtomicU64>,
}

impl Ingest {
    /// Makes a queue, and the end from which the writer thread takes work.
    pub(super) fn new(
        queued: Arc<AtomicU64>,
        options: Options,
        busy: Arc<AtomicU64>,
    ) -> (Self, mpsc::Receiver<QueuedWork>) {
        let (work, incoming) = mpsc::channel(MESSAGES_MAX);
        (Self { work, queued, options, busy }, incoming)
    }

    /// Appends a record after all that was sent before.
    pub(crate) async fn append(
        &self,
        record: Record,
        rules: Rules,
        room: IngestReservation,
    ) -> Result<(), Stopped> {
        let bytes = QueuedBytes::new(&self.queued, record.encoded_len());
        self.send(QueuedWork::Append(Box::new(record), rules, room, bytes)).await
    }

    /// Bytes of records in a segment.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.options.segment_bytes
    }

    /// Heights of a segment.
    pub(crate) fn segment_blocks(&self) -> u32 {
        self.options.segment_blocks
    }

    /// Heights of a packed file.
    pub(crate) fn range_blocks(&self) -> u32 {
        self.options.range_blocks()
    }

    /// Begins heights below the first one.
    pub(crate) async fn history(&self) -> Result<Result<BackfillThread, Error>, Stopped> {
        let history = self.raw_history().await?;
        Ok(history.map(|history| BackfillThread::start(history, Arc::clone(&self.busy))))
    }

    /// Returns a backfill that the caller writes.
    pub(crate) async fn raw_history(&self) -> Result<Result<BackfillWriter, Error>, Stopped> {
        let (done, answer) = oneshot::channel();
        self.send(QueuedWork::BackfillWriter(done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// Publishes heights below the first one. Gives how many.
    pub(crate) async fn prepend(
        &self,
        built: BuiltSegments,
    ) -> Result<Result<u64, Error>, Stopped> {
        let (done, answer) = oneshot::channel();
        self.send(QueuedWork::Prepend(built, done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// Begins to write the sealed segment that begins at `base` anew; `None` if there is none.
    pub(crate) async fn repair(&self, base: u64) -> Result<Result<Option<Repair>, Error>, Stopped> {
        let (done, answer) = oneshot::channel();
        self.send(QueuedWork::Repair(base, done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// Serves a segment that was written anew. False if the old one has gone.
    pub(crate) async fn replace(
        &self,
        built: BuiltSegments,
    ) -> Result<Result<bool, Error>, Stopped> {
        let (done, answer) = oneshot::channel();
        self.send(QueuedWork::Replace(built, done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// Binds the store to a chain.
    pub(crate) async fn bind(
        &self,
        identity: Identity,
        rules: Rules,
    ) -> Result<Result<(), Error>, Stopped> {
        let (done, answer) = oneshot::channel();
        self.send(QueuedWork::Bind(identity, rules, done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// Takes heights from `from` on back.
    pub(crate) async fn withdraw(&self, from: u64) -> Result<Result<(), Error>, Stopped> {
        let (done, answer) = oneshot::channel();
        self.send(QueuedWork::Withdraw(from, done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// The head once everything sent so far is stored.
    pub(crate) async fn barrier(&self) -> Result<Option<(u64, Hash)>, Stopped> {
        let (done, answer) = oneshot::channel();
        self.send(QueuedWork::Barrier(done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    async fn send(&self, work: QueuedWork) -> Result<(), Stopped> {
        self.work.send(work).await.map_err(|_| Stopped)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn record_that_is_sent_no_more_does_not_count_as_queued() {
        let queued = Arc::<AtomicU64>::default();
        let (ingest, incoming) =
            Ingest::new(Arc::clone(&queued), Options::default(), Arc::default());
        let append = || {
            let (rules, room) = (Rules::BeforeHelicon, IngestReservation::Forced);
            ingest.append(Record::default(), rules, room).now_or_never()
        };
        (0..MESSAGES_MAX).for_each(|_| assert!(append().is_some_and(|sent| sent.is_ok())));
        let all = MESSAGES_MAX as u64 * Record::default().encoded_len();
        assert_eq!(queued.load(Ordering::Relaxed), all);
        assert!(append().is_none(), "the queue is full");
        assert_eq!(queued.load(Ordering::Relaxed), all, "its session ended meanwhile");
        drop(incoming);
        assert_eq!(queued.load(Ordering::Relaxed), 0, "the writer has ended");
    }
}
