//! The stream of records to one mirror: first the committed heights, then each new one as it is published.
//!
//! Heights that were sent may be withdrawn and come again, perhaps between two checks. So the stream
//! remembers the newest ones that it sent, by hash and checksum, and compares them with the stored ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metrics::counter;
use neve_record::parts::{FULL, RECEIPTS, readable_part};
use neve_store::residency::{self, Cold};
use neve_store::{Hash, RecordRef};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::http::response::on_disk_thread;
use crate::mirror::{Frame, record};
use crate::shared::Serving;

/// Interval of idle frames.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// Heights that are remembered. Only unsettled heights are withdrawn, which are fewer.
const REMEMBERED: usize = 4096;

/// Stream of records to a mirror.
pub(crate) struct RecordStream<'s> {
    serving: &'s Arc<Serving>,
    next: u64,
    /// Sent heights, ascending to `next - 1`.
    sent: VecDeque<(u64, Hash, u32)>,
    out: mpsc::Sender<Bytes>,
}

/// The mirror is gone, or is to go.
struct StreamEnd;

impl<'s> RecordStream<'s> {
    pub(crate) fn new(serving: &'s Arc<Serving>, from: u64, out: mpsc::Sender<Bytes>) -> Self {
        Self { serving, next: from, sent: VecDeque::new(), out }
    }

    /// Sends until the mirror is gone.
    pub(crate) async fn run(mut self) {
        let mut heads = self.serving.heads();
        loop {
            // Before the reads: a head that comes during them must end the wait below.
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
                // hyper has dropped the body: the place among mirrors becomes free before the next
                // frame.
                () = self.out.closed() => return,
            }
        }
    }

    /// Sends all that there is.
    async fn catch_up(&mut self) -> Result<(), StreamEnd> {
        loop {
            // Before each height: the mirror must drop a withdrawn one before it gets another in
            // its place.
            self.take_back().await?;
            let (reader, next) = (self.serving.reader.clone(), self.next);
            let read = move || reader.resident().record(next);
            let Some(record) = stored(read).await.ok_or(StreamEnd)? else {
                if self.serving.reader.range().is_none_or(|range| self.next >= *range.start()) {
                    return Ok(());
                }
                // The next height was evicted: without it the stream would have a gap.
                self.send(Frame::Gone.encode()).await?;
                return Err(StreamEnd);
            };
            let (frame, sent) = stored(move || frame(&record)).await.flatten().ok_or(StreamEnd)?;
            self.send(frame).await?;
            counter!("neve_mirror_sent_records_total").increment(1);
            self.sent.push_back(sent);
            // A withdrawal reaches back to the settled height only, which is seconds behind the
            // head.
            if self.sent.len() > REMEMBERED {
                self.sent.pop_front();
            }
            self.next += 1;
        }
    }

    /// Tells the mirror which of the sent heights have changed.
    async fn take_back(&mut self) -> Result<(), StreamEnd> {
        let first = self.serving.reader.range().map_or(0, |range| *range.start());
        let mut from = None;
        // From the newest down: a withdrawal takes all heights from one on, so below an equal one
        // all are equal.
        while let Some((height, hash, checksum)) = self.sent.back().copied() {
            let reader = self.serving.reader.clone();
            let is_same = stored(move || match reader.resident().record(height)? {
                Some(record) => Ok(record.checksum() == checksum && record.header()?.hash == hash),
                None => Ok(false),
            });
            if height < first || is_same.await.ok_or(StreamEnd)? {
                break; // evicted, or as it was
            }
            self.sent.pop_back();
            from = Some(height);
        }
        let Some(from) = from else { return Ok(()) };
        self.next = from;
        self.send(Frame::Withdrawn { from }.encode()).await
    }

    async fn send(&self, frame: Bytes) -> Result<(), StreamEnd> {
        counter!("neve_mirror_sent_bytes_total").increment(frame.len() as u64);
        self.out.send(frame).await.map_err(|_| StreamEnd)
    }
}

type Encoded = (Bytes, (u64, Hash, u32));

/// Runs `probe` on the store, on a thread that may wait if bytes are not in memory. `None` when
/// the server is about to end, or the disk fails.
async fn stored<T: Send + 'static>(
    probe: impl Fn() -> Result<T, Cold> + Send + 'static,
) -> Option<T> {
    match residency::if_resident(&probe) {
        Ok(found) => Some(found), // nearly always
        Err(Cold) => on_disk_thread(move || residency::loading(probe)).await.ok()?.ok(),
    }
}

/// A record's frame; `None` if its parts cannot be read.
fn frame(stored: &RecordRef) -> Result<Option<Encoded>, Cold> {
    let parts = readable_part(stored, FULL)?.zip(readable_part(stored, RECEIPTS)?);
    let Some((block, receipts)) = parts else { return Ok(None) };
    let frame = record(stored.height(), block.as_ref(), receipts.as_ref());
    Ok(Some((frame, (stored.height(), stored.header()?.hash, stored.checksum()))))
}
