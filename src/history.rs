//! The history thread: writes segments below the served range, beside the writer.
//!
//! A large sync of history must not hold up a new head, so it has a thread of its own. What it
//! wrote is published by the writer, whole (see [`crate::ingest::Ingest::prepend`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use neve_store::{Built, Error, History, Record};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::fetch::Room;
use crate::ingest::{Stopped, note_written};

/// Messages that may wait. What bounds memory is their room.
const MESSAGES_MAX: usize = 256;

enum Work {
    Append(Box<Record>, Room),
    Finish,
}

/// Sends records to the history thread. What is dropped before it is finished leaves nothing.
pub(crate) struct HistoryWriter {
    work: mpsc::Sender<Work>,
    thread: JoinHandle<Result<Option<Built>, Error>>,
}

impl HistoryWriter {
    /// Begins. `busy` counts the nanoseconds that writing takes.
    pub(crate) fn start(history: History, busy: Arc<AtomicU64>) -> Self {
        let (work, incoming) = mpsc::channel(MESSAGES_MAX);
        let thread = tokio::task::spawn_blocking(move || write(history, incoming, &busy));
        Self { work, thread }
    }

    /// Adds the next height. False if the thread has ended; finishing says why.
    pub(crate) async fn append(&self, record: Record, room: Room) -> bool {
        self.work.send(Work::Append(Box::new(record), room)).await.is_ok()
    }

    /// Seals what was appended.
    pub(crate) async fn finish(self) -> Result<Result<Built, Error>, Stopped> {
        let _ = self.work.send(Work::Finish).await; // if it has ended it says why
        self.thread.await.map_err(|_| Stopped)?.transpose().ok_or(Stopped)
    }
}

/// `None` if whoever sent records has gone.
fn write(
    mut history: History,
    mut incoming: mpsc::Receiver<Work>,
    busy: &AtomicU64,
) -> Result<Option<Built>, Error> {
    while let Some(work) = incoming.blocking_recv() {
        let begun = Instant::now();
        let Work::Append(record, room) = work else {
            let built = history.finish();
            count(busy, begun);
            return built.map(Some);
        };
        history.append(&record)?;
        note_written(&record);
        drop(room);
        count(busy, begun);
    }
    Ok(None)
}

fn count(busy: &AtomicU64, begun: Instant) {
    busy.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
}
