//! The stream of records to one mirror: first the committed heights, then each new one as it is published.
//!
//! Heights that were sent may be withdrawn and come again, perhaps between two checks and perhaps several times. So the
//! stream remembers the unsettled ones that it sent, by hash and checksum, and compares them all with the stored ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metrics::counter;
use neve_record::parts::{FULL, RECEIPTS, SPANS, readable_part};
use neve_record::spans::SpansRef;
use neve_store::residency::{self, Cold};
use neve_store::{Hash, RecordRef};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::http::response::on_disk_thread;
use crate::mirror::{Frame, record};
use crate::shared::Serving;

/// Interval of idle frames.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// Heights that are remembered at most. Those that a header has settled are forgotten.
const REMEMBERED: usize = 4096;

/// Stream of records to a mirror.
pub(crate) struct RecordStream<'s> {
    serving: &'s Arc<Serving>,
    next: u64,
    /// Sent heights that are not settled, ascending to `next - 1`.
    sent: VecDeque<SentHeight>,
    /// Withdrawals that were looked at.
    withdrawals: u64,
    out: mpsc::Sender<Bytes>,
    /// False once the mirror gets nothing more.
    is_valid: &'s (dyn Fn() -> bool + Sync),
}

/// A height that was sent.
#[derive(Clone, Copy)]
struct SentHeight {
    height: u64,
    hash: Hash,
    checksum: u32,
    /// Height up to which it settles heights.
    settled: u64,
}

/// The mirror is gone, or is to go.
struct StreamEnd;

impl<'s> RecordStream<'s> {
    pub(crate) fn new(
        serving: &'s Arc<Serving>,
        from: u64,
        out: mpsc::Sender<Bytes>,
        is_valid: &'s (dyn Fn() -> bool + Sync),
    ) -> Self {
        let withdrawals = serving.withdrawals();
        Self { serving, next: from, sent: VecDeque::new(), withdrawals, out, is_valid }
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
            self.remember(sent);
        }
    }

    /// Notes that the next height was sent.
    fn remember(&mut self, sent: SentHeight) {
        self.sent.push_back(sent);
        if self.sent.len() > REMEMBERED {
            self.sent.pop_front();
        }
        self.next += 1;
    }

    /// Tells the mirror which of the sent heights have changed. One that is as it was may stand above one that is not: if only
    /// receipts were false, the blocks come again as they were. So all are compared.
    async fn take_back(&mut self) -> Result<(), StreamEnd> {
        // Before the comparison: a withdrawal during it is looked at the next time.
        let withdrawals = self.serving.withdrawals();
        if withdrawals == self.withdrawals {
            // None of them has changed, and a settled one does not any more.
            let settled = self.sent.back().map(|newest| newest.settled);
            while self.sent.pop_front_if(|sent| settled >= Some(sent.height)).is_some() {}
            return Ok(());
        }
        self.withdrawals = withdrawals;
        let first = self.serving.reader.range().map_or(0, |range| *range.start());
        for at in 0..self.sent.len() {
            let sent = self.sent[at];
            if sent.height < first || self.is_stored(sent).await? {
                continue; // evicted, or as it was
            }
            self.sent.truncate(at);
            self.next = sent.height;
            return self.send(Frame::Withdrawn { from: sent.height }.encode()).await;
        }
        Ok(())
    }

    /// True if the store has a height as it was sent.
    async fn is_stored(&self, sent: SentHeight) -> Result<bool, StreamEnd> {
        let reader = self.serving.reader.clone();
        let is_same = move || match reader.resident().record(sent.height)? {
            Some(record) => {
                Ok(record.checksum() == sent.checksum && record.header()?.hash == sent.hash)
            }
            None => Ok(false),
        };
        stored(is_same).await.ok_or(StreamEnd)
    }

    async fn send(&self, frame: Bytes) -> Result<(), StreamEnd> {
        if !(self.is_valid)() {
            return Err(StreamEnd);
        }
        counter!("neve_mirror_sent_bytes_total").increment(frame.len() as u64);
        self.out.send(frame).await.map_err(|_| StreamEnd)
    }
}

type Encoded = (Bytes, SentHeight);

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
    let height = stored.height();
    let frame = record(height, block.as_ref(), receipts.as_ref());
    let spans = readable_part(stored, SPANS)?;
    let settled = spans.and_then(|spans| SpansRef(spans.as_ref()).settled()).unwrap_or(height);
    let (hash, checksum) = (stored.header()?.hash, stored.checksum());
    Ok(Some((frame, SentHeight { height, hash, checksum, settled })))
}

#[cfg(test)]
mod tests {
    use neve_chain::{AdmittedKeys, Checks};
    use neve_devnet::{Block, Chain, ChainConfig, Helicon, Part};
    use neve_jsonrpc::Rules;
    use neve_record::assemble::assemble;
    use neve_store::{Identity, Options, Record};

    use super::*;

    /// Records of a chain with asynchronous execution, none of which is settled.
    fn records() -> Vec<Record> {
        let small = ChainConfig::small(1);
        let config = ChainConfig { helicon: Helicon::FromGenesis, interval_ms: 500, ..small };
        let checks =
            Checks { chain_id: config.chain_id, senders: false, admitted: AdmittedKeys::NONE };
        let record = |block: Block| {
            let text = block.answer(Part::Full, Rules::Helicon);
            assemble(&text, block.receipts(), &checks).unwrap().record
        };
        Chain::new(config).take(7).map(record).collect()
    }

    /// The mirror does not read meanwhile: only one look comes after all of it.
    #[tokio::test]
    async fn every_withdrawal_reaches_the_mirror() {
        let dir = tempfile::tempdir().unwrap();
        let options =
            Options { segment_bytes: 1 << 20, disk_reserve_bytes: 0, ..Options::default() };
        let neve_store::Opened { mut writer, reader, .. } =
            neve_store::open(dir.path(), options).unwrap();
        writer.bind(Identity { chain_id: 43_112, genesis: Hash([9; 32]) }, 1).unwrap();
        let (serving, records) = (Arc::new(Serving::new(reader)), records());
        records.iter().for_each(|record| writer.append(record).unwrap());
        let (out, mut sent) = mpsc::channel(100);
        let mut stream = RecordStream::new(&serving, 0, out, &|| true);
        assert!(stream.catch_up().await.is_ok());
        let mut frames = || std::iter::from_fn(|| sent.try_recv().ok()).collect::<Vec<_>>();
        assert_eq!(frames().len(), 7);
        // The receipts of block 3 were false, then those of block 5.
        for (height, receipts) in [(3, "[]"), (5, "[ ]")] {
            writer.withdraw(height).unwrap();
            serving.withdrew();
            for record in &records[height as usize..] {
                let mut record = record.clone();
                if record.height == height {
                    record.parts[RECEIPTS] = neve_store::Part::uncompressed(receipts);
                }
                writer.append(&record).unwrap();
            }
        }
        assert!(stream.catch_up().await.is_ok());
        let frames = frames();
        assert_eq!(frames.first(), Some(&Frame::Withdrawn { from: 3 }.encode()));
        assert_eq!(frames.len(), 5, "and heights 3 to 6 again");
        assert!(stream.catch_up().await.is_ok() && sent.try_recv().is_err());
    }
}
