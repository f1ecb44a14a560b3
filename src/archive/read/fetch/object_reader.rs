//! Ranged reads for requests, with all bounds.

use std::ops::Range;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use metrics::{counter, histogram};
use neve_archive::ObjectName;
use object_store::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::breaker::{Breaker, BreakerState};
use super::gate::{Gate, read_time_max};
use super::hedging::Hedging;
use super::not_read::NotRead;
use super::read_rate::ReadRate;
use crate::archive::error::Failed;
use crate::archive::store::ArchiveStore;
use crate::shared::ClientAddress;

/// Time for which the store rests before a probe.
const RESTS_FOR: Duration = Duration::from_secs(1);

/// Address that a read is for; `None` for what neve reads by itself.
pub(crate) type Payer = Option<ClientAddress>;

/// Reads of objects.
pub(crate) struct ObjectReader {
    store: ArchiveStore,
    gate: Gate,
    breaker: Breaker,
    hedging: Hedging,
    rate: ReadRate,
}

impl ObjectReader {
    /// Reads from a store at most so often a second.
    pub(crate) fn new(store: ArchiveStore, a_second: f64) -> Self {
        let (gate, breaker, hedging) = (Gate::default(), Breaker::default(), Hedging::default());
        Self { store, gate, breaker, hedging, rate: ReadRate::new(a_second) }
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
            self.breaker.probed(matches!(probed, Ok(Ok(()))));
        }
    }

    /// Reads a range of an object. The caller compares it with digests.
    pub(crate) async fn read(
        &self,
        name: &ObjectName,
        range: Range<u64>,
        payer: Payer,
    ) -> Result<Bytes, NotRead> {
        let length = range.end - range.start;
        let reading = async {
            let _place = self.gate.enter(length).await;
            if !self.rate.take(payer) {
                return None;
            }
            Some(self.hedged(name, &range, payer).await)
        };
        let read = tokio::select! {
            biased;
            // Whoever waits is not held up by a store that fails.
            () = self.breaker.opened() => {
                count_error("resting");
                return Err(NotRead::Failed);
            }
            read = reading => read.ok_or(NotRead::Refused)?,
        };
        let failed = match read {
            Ok(bytes) => {
                self.breaker.note(true);
                counter!("neve_archive_read_bytes_total").increment(bytes.len() as u64);
                return Ok(bytes);
            }
            Err(failed) => failed,
        };
        debug!(object = %name, error = %failed, "archive read failed");
        let (why, reason) = match failed {
            Failed::Absent(_) => (NotRead::Absent, "absent"),
            Failed::Changed(_) => (NotRead::Changed, "changed"),
            Failed::Slow(_) => (NotRead::Failed, "slow"),
            // S3 says this of an absent object too, to those who may not list: it stops no other read.
            Failed::Objects(Error::PermissionDenied { .. }) => (NotRead::Failed, "denied"),
            _ => (NotRead::Failed, "failed"),
        };
        if reason != "denied" {
            self.breaker.note(why != NotRead::Failed);
        }
        count_error(reason);
        Err(why)
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
        let Some(after) = self.hedging.after(length) else { return first.await };
        let read = timeout(after, &mut first).await;
        if let Ok(read) = read {
            return read;
        }
        let Some(_place) = self.hedging.take().filter(|_| self.rate.take(payer)) else {
            return first.await;
        };
        counter!("neve_archive_hedges_total").increment(1);
        let mut second = pin!(self.once(name, range));
        tokio::select! {
            read = &mut first => if read.is_ok() { read } else { second.await },
            read = &mut second => {
                if read.is_err() {
                    return first.await;
                }
                self.hedging.note(length, begun.elapsed()); // the first one takes at least as long
                counter!("neve_archive_hedges_won_total").increment(1);
                read
            }
        }
    }

    async fn once(&self, name: &ObjectName, range: &Range<u64>) -> Result<Bytes, Failed> {
        let kind = name.kind.text();
        count_read(kind);
        let (begun, length) = (Instant::now(), range.end - range.start);
        let limit = read_time_max(length);
        let read = timeout(limit, self.store.range(name, range.clone())).await;
        let read = read.unwrap_or(Err(Failed::Slow(limit)));
        if read.is_ok() {
            self.hedging.note(length, begun.elapsed());
        }
        histogram!("neve_archive_read_duration_seconds", "kind" => kind).record(begun.elapsed());
        read
    }
}

fn count_read(kind: &'static str) {
    counter!("neve_archive_reads_total", "kind" => kind).increment(1);
}

fn count_error(reason: &'static str) {
    counter!("neve_archive_read_errors_total", "reason" => reason).increment(1);
}
