//! Ranged reads for requests, with all bounds.

use std::ops::Range;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use metrics::{counter, histogram};
use neve_archive::ObjectName;
use object_store::Error;
use tokio::sync::{SemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::not_read::ObjectNotRead;
use super::read_gate::{Payer, ReadGate, ReadPlace, read_time_max};
use super::read_hedges::ReadHedges;
use super::read_queue::ReadQueue;
use super::read_rate::{ReadRate, ReadRates};
use super::store_breaker::{BreakerState, StoreBreaker};
use crate::archive::error::Failed;
use crate::archive::store::ArchiveStore;

/// Time for which the store rests before a probe.
const RESTS_FOR: Duration = Duration::from_secs(1);

/// Reads of objects.
pub(crate) struct ObjectReader {
    store: ArchiveStore,
    queue: ReadQueue,
    gate: ReadGate,
    breaker: StoreBreaker,
    hedges: ReadHedges,
    rate: ReadRate,
}

impl ObjectReader {
    /// Reads from a store at most so much a second.
    pub(crate) fn new(store: ArchiveStore, rates: ReadRates) -> Self {
        Self::with_gate(store, rates, ReadGate::default())
    }

    pub(super) fn with_gate(store: ArchiveStore, rates: ReadRates, gate: ReadGate) -> Self {
        let (queue, breaker, hedges) =
            (ReadQueue::default(), StoreBreaker::default(), ReadHedges::default());
        Self { store, queue, gate, breaker, hedges, rate: ReadRate::new(rates) }
    }

    /// Bytes that one read should have at most: more would be a debt that other clients wait for.
    pub(crate) fn read_bytes_max(&self) -> u64 {
        self.rate.read_bytes_max()
    }

    /// Watches the breaker.
    pub(crate) fn watch(&self) -> watch::Receiver<BreakerState> {
        self.breaker.watch()
    }

    /// Probes the store while it fails. Never ends.
    pub(crate) async fn keep_probing(&self) {
        loop {
            self.breaker.opened().await;
            sleep(RESTS_FOR).await;
            self.breaker.half_open();
            let probed = timeout(read_time_max(1), self.store.probe()).await;
            count_read("manifest");
            // A store that says that the manifest is absent or forbidden answers, and its objects may be there.
            let answered = probed.is_ok_and(|probed| {
                probed.err().is_none_or(|failed| answer_of(&failed).0 != FailedResponse::None)
            });
            self.breaker.probed(answered);
        }
    }

    /// Takes all parts of an object of so many bytes from the rate; `read_paid` reads them. A rate that refuses the last
    /// parts would never let a large object be read.
    pub(crate) fn pay(&self, parts: u64, bytes: u64, payer: Payer) -> Result<(), ObjectNotRead> {
        let taken = self.rate.take(payer, (parts, bytes));
        taken.map_err(|reason| refused(reason, payer))
    }

    /// Reads a range of an object. The caller compares it with digests.
    pub(crate) async fn read(
        &self,
        name: &ObjectName,
        range: Range<u64>,
        payer: Payer,
    ) -> Result<Bytes, ObjectNotRead> {
        self.read_range(name, &range, payer, Payment::Due).await
    }

    /// Waits for the place of an object that is read whole. Until the place is dropped, it counts twice: as bytes, and
    /// as what they are parsed to.
    pub(crate) async fn hold(
        &self,
        bytes: u64,
        payer: Payer,
    ) -> Result<ReadPlace<'_>, ObjectNotRead> {
        let place = self.place(2 * bytes, payer, Payment::Made).await;
        place.map_err(|reason| refused(reason, payer))
    }

    /// Reads a part of an object that was taken from the rate, in the place of the object if it has one.
    pub(crate) async fn read_paid(
        &self,
        name: &ObjectName,
        range: Range<u64>,
        payer: Payer,
        place: Option<&ReadPlace<'_>>,
    ) -> Result<Bytes, ObjectNotRead> {
        let payment = if place.is_some() { Payment::WithPlace } else { Payment::Made };
        self.read_range(name, &range, payer, payment).await
    }

    async fn read_range(
        &self,
        name: &ObjectName,
        range: &Range<u64>,
        payer: Payer,
        payment: Payment,
    ) -> Result<Bytes, ObjectNotRead> {
        let reading = self.read_in_place(name, range, payer, payment);
        let read = tokio::select! {
            biased;
            // A store that fails must not hold up the reads that wait.
            () = self.breaker.opened() => {
                count_error("paused");
                return Err(ObjectNotRead::Failed);
            }
            read = reading => read.map_err(|reason| refused(reason, payer))?,
        };
        self.note(name, read)
    }

    /// Reads in a place of its own, unless the object has one. The outer error is the reason why the read is refused.
    async fn read_in_place(
        &self,
        name: &ObjectName,
        range: &Range<u64>,
        payer: Payer,
        payment: Payment,
    ) -> Result<Result<Bytes, Failed>, &'static str> {
        let _place = match payment {
            Payment::WithPlace => None,
            _ => Some(self.place(range.end - range.start, payer, payment).await?),
        };
        Ok(self.hedged(name, range, payer).await)
    }

    /// Notes how a read ended, for the breaker and the metrics.
    fn note(&self, name: &ObjectName, read: Result<Bytes, Failed>) -> Result<Bytes, ObjectNotRead> {
        let failed = match read {
            Ok(bytes) => {
                self.breaker.note(true);
                counter!("neve_archive_read_bytes_total").increment(bytes.len() as u64);
                return Ok(bytes);
            }
            Err(failed) => failed,
        };
        debug!(object = %name, error = %failed, "archive read failed");
        let (answer, why, reason) = answer_of(&failed);
        if answer != FailedResponse::Forbidden {
            self.breaker.note(answer == FailedResponse::Given);
        }
        count_error(reason);
        Err(why)
    }

    /// Takes a read from the rate, and waits for its place. An error is the reason why it is refused.
    async fn place(
        &self,
        length: u64,
        payer: Payer,
        payment: Payment,
    ) -> Result<ReadPlace<'_>, &'static str> {
        // What neve reads by itself comes one after the other.
        let _turn = payer.address().map(|address| self.queue.enter(address)).transpose()?;
        if payment == Payment::Due {
            self.rate.take(payer, (1, length))?; // before the gate: a read beyond the rate waits for nothing
        }
        self.gate.enter(length, payer).await.ok_or("wait")
    }

    /// Reads a second time if the first one takes long. The first answer counts.
    async fn hedged(
        &self,
        name: &ObjectName,
        range: &Range<u64>,
        payer: Payer,
    ) -> Result<Bytes, Failed> {
        let (begun, length) = (Instant::now(), range.end - range.start);
        let mut first = pin!(self.once(name, range));
        let Some(after) = self.hedges.after(length) else { return first.await };
        let read = timeout(after, &mut first).await;
        if let Ok(read) = read {
            return read;
        }
        let Some(_place) = self.hedge(length, payer) else { return first.await };
        counter!("neve_archive_hedges_total").increment(1);
        let (read, is_won) = first_good(first, pin!(self.once(name, range))).await;
        if is_won {
            self.hedges.note(length, begun.elapsed()); // the first one takes at least as long
            counter!("neve_archive_hedges_won_total").increment(1);
        }
        read
    }

    /// Takes the place of a second read of so many bytes, if it may begin.
    fn hedge(&self, length: u64, payer: Payer) -> Option<SemaphorePermit<'_>> {
        let place = self.hedges.take();
        // A second read of a request takes what the first ones of others leave.
        let spare = payer.address().map_or(Payer::Neve, Payer::Ahead);
        place.filter(|_| self.rate.take(spare, (1, length)).is_ok())
    }

    async fn once(&self, name: &ObjectName, range: &Range<u64>) -> Result<Bytes, Failed> {
        let kind = name.kind.text();
        count_read(kind);
        let (begun, length) = (Instant::now(), range.end - range.start);
        let limit = read_time_max(length);
        let read = timeout(limit, self.store.range(name, range.clone())).await;
        let read = read.unwrap_or(Err(Failed::Slow(limit)));
        if read.is_ok() {
            self.hedges.note(length, begun.elapsed());
        }
        histogram!("neve_archive_read_duration_seconds", "kind" => kind).record(begun.elapsed());
        read
    }
}

/// Waits for the first of two reads that succeeds, or for both. Also returns true if the second one ended first, and
/// succeeded.
async fn first_good(
    mut first: Pin<&mut impl Future<Output = Result<Bytes, Failed>>>,
    mut second: Pin<&mut impl Future<Output = Result<Bytes, Failed>>>,
) -> (Result<Bytes, Failed>, bool) {
    tokio::select! {
        read = &mut first => if read.is_ok() { (read, false) } else { (second.await, false) },
        read = &mut second => if read.is_ok() { (read, true) } else { (first.await, false) },
    }
}

/// State of the payment of a read by the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Payment {
    /// The read takes from the rate when it has its turn.
    Due,
    /// `pay` took all parts of the object before.
    Made,
    /// Taken before, and the object has a place.
    WithPlace,
}

/// Answer of a store to a read that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailedResponse {
    /// The object is absent, or has other bytes.
    Given,
    /// S3 says this of an absent object too, to those who may not list: it stops no other read.
    Forbidden,
    None,
}

/// Says what a failure tells of the store, the outcome of the read, and the label of its reason.
fn answer_of(failed: &Failed) -> (FailedResponse, ObjectNotRead, &'static str) {
    match failed {
        Failed::Absent(_) | Failed::Objects(Error::NotFound { .. }) => {
            (FailedResponse::Given, ObjectNotRead::Absent, "absent")
        }
        Failed::Changed(_) | Failed::Objects(Error::Precondition { .. }) => {
            (FailedResponse::Given, ObjectNotRead::Changed, "changed")
        }
        // S3 says so of an absent object, too, to a reader that may not list.
        Failed::Objects(Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) => {
            (FailedResponse::Forbidden, ObjectNotRead::Failed, "denied")
        }
        Failed::Slow(_) => (FailedResponse::None, ObjectNotRead::Failed, "timeout"),
        _ => (FailedResponse::None, ObjectNotRead::Failed, "failed"),
    }
}

/// Counts a read that is refused. No client misses one that was only ahead.
fn refused(reason: &'static str, payer: Payer) -> ObjectNotRead {
    if !matches!(payer, Payer::Ahead(_)) {
        counter!("neve_archive_refused_reads_total", "reason" => reason).increment(1);
    }
    ObjectNotRead::Refused
}

fn count_read(kind: &'static str) {
    counter!("neve_archive_reads_total", "kind" => kind).increment(1);
}

fn count_error(reason: &'static str) {
    counter!("neve_archive_read_errors_total", "reason" => reason).increment(1);
}
