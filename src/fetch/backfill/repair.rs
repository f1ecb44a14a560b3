//! Damaged records: fetched again, proven as history is, and their segment written anew.
//!
//! The hash of a damaged height is known: the intact record above it names it, or the seal of the
//! segment does. Receipts are held against the header that settles them, like all others.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use metrics::counter;
use neve_chain::{CheckedHeader, Checks, Settlement};
use neve_record::assemble::Assembled;
use neve_store::{Damaged, Error, Hash, Reader, Record, Repair};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::error::BackfillError;
use super::header_chain;
use super::interval::{BackfillInterval, parent_of};
use crate::client::Backoff;
use crate::fetch::{FetchedHeight, Follower, HeightFetcher, note_proof, unsettled};
use crate::upstream::{FetchNeed, Priority};

/// Interval of the search for damaged records.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Wait after a repair that failed: the first, and the longest.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_mins(5);
/// Damaged heights that are in flight at a time.
const IN_FLIGHT_MAX: usize = 8;
/// No upstream may have the height: others are repaired meanwhile.
const HEIGHT_TIMEOUT: Duration = Duration::from_mins(1);

/// Repairs for ever.
pub(crate) async fn repair_all(follower: Arc<Follower>, source: HeightFetcher) {
    let mut failed: HashMap<u64, (Backoff, Instant)> = HashMap::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let damaged = follower.serving.reader.damaged();
        failed.retain(|base, _| damaged.iter().any(|damaged| damaged.base == *base));
        let is_due = |damaged: &&Damaged| {
            failed.get(&damaged.base).is_none_or(|(_, again)| Instant::now() >= *again)
        };
        let Some(next) = damaged.iter().find(is_due) else { continue };
        match segment(&follower, &source, next.base).await {
            Ok(()) => drop(failed.remove(&next.base)),
            // The writer has stopped for good, and said why.
            Err(BackfillError::Writer(_)) => return,
            Err(why) => put_off(&mut failed, next.base, &why),
        }
    }
}

/// Puts a segment off after a repair that failed.
fn put_off(failed: &mut HashMap<u64, (Backoff, Instant)>, segment: u64, why: &BackfillError) {
    let new = || (Backoff::new(AGAIN_FIRST, AGAIN_MAX), Instant::now());
    let (backoff, again) = failed.entry(segment).or_insert_with(new);
    let retry_in = backoff.wait();
    *again = Instant::now() + retry_in;
    warn!(segment, error = %why, ?retry_in, "segment not repaired");
}

/// Repairs the segment that begins at `base`.
pub(crate) async fn segment(
    follower: &Follower,
    source: &HeightFetcher,
    base: u64,
) -> Result<(), BackfillError> {
    let Some(repair) = follower.ingest.repair(base).await?? else { return Ok(()) };
    let (repair, damaged) = with_damaged(repair).await?;
    let reader = &follower.serving.reader;
    let wanted = hashes(source, reader, &repair, &damaged).await?;
    let checks = BackfillInterval::new(follower, source, repair.heights()).checks;
    let mending = Mending { reader, source, checks, window: None, last: None };
    let repair = mending.write(repair, wanted).await?;
    let built = spawn_blocking(move || repair.finish()).await??;
    if !follower.ingest.replace(built).await?? {
        return Err(BackfillError::Changed);
    }
    let records = damaged.len() as u64;
    counter!("neve_store_repaired_records_total").increment(records);
    info!(segment = base, records, "segment repaired");
    Ok(())
}

/// Finds the damaged heights. It reads records that were not read yet, which waits for the disk.
async fn with_damaged(repair: Repair) -> Result<(Repair, Vec<u64>), BackfillError> {
    let found = spawn_blocking(move || {
        let damaged = repair.damaged();
        (repair, damaged)
    });
    Ok(found.await?)
}

/// Height and hash of each damaged record, ascending.
async fn hashes(
    source: &HeightFetcher,
    reader: &Reader,
    repair: &Repair,
    damaged: &[u64],
) -> Result<Vec<(u64, Hash)>, BackfillError> {
    let mut wanted = Vec::with_capacity(damaged.len());
    for run in damaged.chunk_by(|one, next| one + 1 == *next) {
        let hashes = run_hashes(source, reader, repair, run).await?;
        wanted.extend(run.iter().copied().zip(hashes));
    }
    Ok(wanted)
}

/// Hashes of damaged heights that follow each other.
async fn run_hashes(
    source: &HeightFetcher,
    reader: &Reader,
    repair: &Repair,
    run: &[u64],
) -> Result<Vec<Hash>, BackfillError> {
    let (first, last) = (run[0], run[run.len() - 1]);
    // No record of the segment names its last hash: the seal does.
    let known = if last == *repair.heights().end() {
        repair.last_hash()
    } else {
        parent_of(reader, last + 1).await
    };
    let known = known.ok_or(BackfillError::Unreadable)?;
    if first == last {
        return Ok(vec![known]); // no header need be fetched
    }
    let limit = HEIGHT_TIMEOUT * run.len().min(10_000) as u32;
    let asked = timeout(limit, header_chain::hashes(source, first..=last, known)).await;
    let hashes = asked.ok().filter(|hashes| hashes.len() >= run.len());
    hashes.ok_or(BackfillError::NotGiven(first))
}

struct Mending<'f> {
    reader: &'f Reader,
    source: &'f HeightFetcher,
    checks: Checks,
    /// Heights that no header has settled yet, and the height that it takes next.
    window: Option<(Settlement, u64)>,
    /// The newest fetched height that must be settled.
    last: Option<u64>,
}

impl Mending<'_> {
    /// Writes all records of a segment, those that are damaged from upstreams.
    async fn write(
        mut self,
        mut repair: Repair,
        wanted: Vec<(u64, Hash)>,
    ) -> Result<Repair, BackfillError> {
        let heights = repair.heights();
        let (source, checks) = (self.source.clone(), self.checks);
        let fetches = stream::iter(wanted).map(|next| fetch(source.clone(), next, checks));
        let mut fetches = std::pin::pin!(fetches.buffered(IN_FLIGHT_MAX));
        let mut next = *heights.start();
        while let Some(fetched) = fetches.next().await {
            let FetchedHeight { assembled, .. } = fetched?;
            let height = assembled.record.height;
            self.pass_to(height).await?;
            repair = keep(repair, next..height).await?;
            let record = self.take(height, assembled)?;
            self.last = Some(height);
            repair = append(repair, record).await?;
            next = height + 1;
        }
        let repair = keep(repair, next..heights.end() + 1).await?;
        self.settle_all().await?;
        Ok(repair)
    }

    /// Leads the window over stored heights to `height`, or begins a new one there.
    async fn pass_to(&mut self, height: u64) -> Result<(), BackfillError> {
        while let Some((_, next)) = &self.window
            && *next < height
            && !self.is_settled()
        {
            let next = *next;
            self.pass(next).await?;
        }
        // Between two damaged heights that are far apart a new window is cheaper than all headers
        // in between.
        if self.window.as_ref().is_none_or(|(_, next)| *next != height) {
            self.begin_window(height).await?;
        }
        Ok(())
    }

    /// Begins a new window at `height`, with the unsettled heights below it.
    async fn begin_window(&mut self, height: u64) -> Result<(), BackfillError> {
        let (source, before) = (self.source, height.checked_sub(1));
        let rebuilt =
            unsettled::rebuild(self.reader, source, before, Priority::Backfill, self.checks);
        let rebuilt = timeout(HEIGHT_TIMEOUT, rebuilt).await;
        // Without all of them the receipts that are fetched here could not be proven.
        let whole = rebuilt.ok().filter(|rebuilt| rebuilt.is_whole);
        self.window = Some((whole.ok_or(BackfillError::NotGiven(height))?.window, height));
        Ok(())
    }

    /// True if headers have settled all that was fetched.
    fn is_settled(&self) -> bool {
        let settled = self.window.as_ref().and_then(|(window, _)| window.settled());
        self.last.is_none_or(|last| settled.is_some_and(|settled| settled >= last))
    }

    /// Lets stored headers settle all that was fetched.
    async fn settle_all(&mut self) -> Result<(), BackfillError> {
        while !self.is_settled() {
            let Some((_, next)) = self.window else { return Err(BackfillError::Unreadable) };
            self.pass(next).await?;
        }
        Ok(())
    }

    async fn pass(&mut self, height: u64) -> Result<(), BackfillError> {
        let checks = Checks { senders: false, ..self.checks };
        let stored = unsettled::stored(self.reader, height, checks).await;
        self.take(height, stored.ok_or(BackfillError::Unreadable)?).map(drop)
    }

    /// Holds receipts that are not settled yet against this height's header.
    fn take(&mut self, height: u64, assembled: Assembled) -> Result<Record, BackfillError> {
        let Assembled { record, header, unsettled, .. } = assembled;
        if let Some((window, next)) = &mut self.window {
            note_proof(height, &window.settle(&CheckedHeader::of(&header))?);
            unsettled.into_iter().for_each(|receipts| window.push(receipts));
            *next = height + 1;
        }
        Ok(record)
    }
}

/// Fetches a damaged height with a known hash, for a limited time.
fn fetch(
    source: HeightFetcher,
    (height, hash): (u64, Hash),
    checks: Checks,
) -> impl Future<Output = Result<FetchedHeight, BackfillError>> {
    let need = FetchNeed { hash: Some(hash), ..FetchNeed::new(height, Priority::Backfill) };
    // A task: a future that is not polled would keep its permit for the upstream.
    let fetching = AbortOnDropHandle::new(tokio::spawn(async move {
        timeout(HEIGHT_TIMEOUT, source.fetch_needed(need, checks)).await
    }));
    async move {
        let fetched = fetching.await?.ok().flatten();
        fetched.ok_or(BackfillError::NotGiven(height))
    }
}

/// Copies stored records.
async fn keep(mut repair: Repair, heights: Range<u64>) -> Result<Repair, BackfillError> {
    let kept = spawn_blocking(move || {
        for height in heights {
            if !repair.keep(height)? {
                return Ok::<_, Error>(None); // it was found damaged just now
            }
        }
        Ok(Some(repair))
    });
    kept.await??.ok_or(BackfillError::Unreadable)
}

async fn append(mut repair: Repair, record: Record) -> Result<Repair, BackfillError> {
    let appended = spawn_blocking(move || repair.append(&record).map(|()| repair));
    Ok(appended.await??)
}
