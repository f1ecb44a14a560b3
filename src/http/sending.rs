//! The stream of records to one mirror: what is committed, then what is published, as it is.
//!
//! Heights that were sent may be taken back and come again, perhaps between two looks. So the
//! newest that were sent are remembered, by hash and checksum, and compared with what is stored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metrics::counter;
use neve_store::{Hash, RecordRef, residency};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::mirror::wire::{Frame, record};
use crate::parts::{FULL, RECEIPTS, plain};
use crate::serving::Serving;

/// How often it is said that there is nothing new.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// Heights that are remembered. What is withdrawn is not settled yet, which is fewer.
const REMEMBERED: usize = 4096;

/// A stream.
pub(super) struct Sending<'s> {
    serving: &'s Arc<Serving>,
    next: u64,
    /// What was sent, ascending to `next - 1`.
    sent: VecDeque<(u64, Hash, u32)>,
    out: mpsc::Sender<Bytes>,
}

/// The mirror is gone, or is to go.
struct Over;

impl<'s> Sending<'s> {
    pub(super) fn new(serving: &'s Arc<Serving>, from: u64, out: mpsc::Sender<Bytes>) -> Self {
        Self { serving, next: from, sent: VecDeque::new(), out }
    }

    /// Sends until the mirror is gone.
    pub(super) async fn run(mut self) {
        let mut heads = self.serving.heads();
        loop {
            heads.borrow_and_update();
            if self.catch_up().await.is_err() {
                return;
            }
            tokio::select! {
                changed = timeout(IDLE_AFTER, heads.changed()) => {
                    if changed.is_err() && self.send(Frame::Idle.encode()).await.is_err() {
                        return;
                    }
                }
                () = self.out.closed() => return,
            }
        }
    }

    /// Sends all that there is.
    async fn catch_up(&mut self) -> Result<(), Over> {
        loop {
            self.take_back().await?;
            let (reader, next) = (self.serving.reader.clone(), self.next);
            let Some(record) = stored(move || reader.record(next)).await.ok_or(Over)? else {
                if self.serving.reader.range().is_none_or(|range| self.next >= *range.start()) {
                    return Ok(());
                }
                self.send(Frame::Gone.encode()).await?;
                return Err(Over);
            };
            let (frame, sent) = stored(move || frame(&record)).await.flatten().ok_or(Over)?;
            self.send(frame).await?;
            counter!("neve_mirrors_sent_records_total").increment(1);
            self.sent.push_back(sent);
            if self.sent.len() > REMEMBERED {
                self.sent.pop_front();
            }
            self.next += 1;
        }
    }

    /// Says which of the heights that were sent are no longer what they were.
    async fn take_back(&mut self) -> Result<(), Over> {
        let first = self.serving.reader.range().map_or(0, |range| *range.start());
        let mut from = None;
        while let Some((height, hash, checksum)) = self.sent.back().copied() {
            let reader = self.serving.reader.clone();
            let same =
                move |record: RecordRef| record.checksum() == checksum && record.hash() == hash;
            let is_same = stored(move || reader.record(height).is_some_and(same));
            if height < first || is_same.await.ok_or(Over)? {
                break; // evicted, or as it was
            }
            self.sent.pop_back();
            from = Some(height);
        }
        let Some(from) = from else { return Ok(()) };
        self.next = from;
        self.send(Frame::Withdrawn { from }.encode()).await
    }

    async fn send(&self, frame: Bytes) -> Result<(), Over> {
        counter!("neve_mirrors_sent_bytes_total").increment(frame.len() as u64);
        self.out.send(frame).await.map_err(|_| Over)
    }
}

type Encoded = (Bytes, (u64, Hash, u32));

/// What `look` finds in the store, on a thread that may wait if it is not in memory; nothing when the server is
/// about to end.
async fn stored<T: Send + 'static>(look: impl Fn() -> T + Send + 'static) -> Option<T> {
    match residency::if_resident(&look) {
        Some(found) => Some(found), // nearly always
        None => spawn_blocking(move || residency::loading(look)).await.ok(),
    }
}

/// A record's frame; `None` if its parts cannot be read.
fn frame(stored: &RecordRef) -> Option<Encoded> {
    let (block, receipts) = (plain(stored, FULL)?, plain(stored, RECEIPTS)?);
    if !block.look() || !receipts.look() {
        return None; // it is made again elsewhere
    }
    let frame = record(stored.height(), block.as_ref(), receipts.as_ref());
    Some((frame, (stored.height(), stored.hash(), stored.checksum())))
}
