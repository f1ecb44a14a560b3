//! The backfill thread: writes segments below the served range, beside the writer.
//!
//! A large sync of history must not hold up a new head, so it has a thread of its own. What it
//! wrote is published by the writer, whole (see [`crate::ingest::Ingest::prepend`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use neve_store::{BackfillWriter, BuiltSegments, Error, Record};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::written::{Stopped, note_written};
use crate::shared::IngestReservation;

/// Messages that may wait. Their reservations bound memory.
const MESSAGES_MAX: usize = 256;

enum BackfillWork {
    Append(Box<Record>, IngestReservation),
    Finish,
}

/// Sends records to the backfill thread. A sender that is dropped before it is finished leaves no file.
pub(crate) struct BackfillThread {
    work: mpsc::Sender<BackfillWork>,
    thread: JoinHandle<Result<Option<BuiltSegments>, Error>>,
}

impl BackfillThread {
    /// Begins. `busy` counts the nanoseconds that writing takes.
    pub(crate) fn start(history: BackfillWriter, busy: Arc<AtomicU64>) -> Self {
        let (work, incoming) = mpsc::channel(MESSAGES_MAX);
        let thread = tokio::task::spawn_blocking(move || write(history, incoming, &busy));
        Self { work, thread }
    }

    /// Adds the next height. False if the thread has ended; finishing says why.
    pub(crate) async fn append(&self, record: Record, room: IngestReservation) -> bool {
        self.work.send(BackfillWork::Append(Box::new(record), room)).await.is_ok()
    }

    /// Seals what was appended.
    pub(crate) async fn finish(self) -> Result<Result<BuiltSegments, Error>, Stopped> {
        let _ = self.work.send(BackfillWork::Finish).await; // if it has ended it says why
        self.thread.await.map_err(|_| Stopped)?.transpose().ok_or(Stopped)
    }
}

/// Writes records until their sender ends the interval. Returns `None` if the sender has gone.
fn write(
    mut history: BackfillWriter,
    mut incoming: mpsc::Receiver<BackfillWork>,
    busy: &AtomicU64,
) -> Result<Option<BuiltSegments>, Error> {
    while let Some(work) = incoming.blocking_recv() {
        let begun = Instant::now();
        let BackfillWork::Append(record, room) = work else {
            let built = history.finish();
            count(busy, begun);
            return built.map(Some);
        };
        history.append(&record)?;
        note_written(&record);
        // Written: its bytes are free for the next heights, also while others wait here.
        drop(room);
        count(busy, begun);
    }
    Ok(None)
}

fn count(busy: &AtomicU64, begun: Instant) {
    busy.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
}
