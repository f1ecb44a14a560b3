//! The window of published heights that no header has settled yet, and its rebuilding.

use neve_chain::{CheckedHeader, Checks, Settlement};
use neve_record::assemble::{Assembled, assemble};
use neve_record::parts::{FULL, RECEIPTS, readable_part};
use neve_store::Reader;
use neve_store::residency::loaded;
use tracing::warn;

use super::height_fetcher::HeightFetcher;
use crate::upstream::Priority;

/// Memory for unsettled receipts. Ten heights of mainnet take half a MiB. A byte costs at least eight gas, as
/// `ProofError::LogGas` says, so made-up receipts cannot drive out true ones: this is the gas of four full blocks of ten
/// seconds at the 3.2 million gas a second that Fuji had.
const BYTES_MAX: usize = 16 << 20;

/// A window, and the heights in it with the places of the upstreams that gave them; `None`: the store has them.
pub(crate) type Rebuilt = (Settlement, Vec<(u64, Option<usize>)>);

/// The window for the height after `last`: empty below the first height of a chain, else rebuilt
/// from the store or, for what is not stored, from upstreams.
pub(crate) async fn rebuild(
    reader: &Reader,
    source: &HeightFetcher,
    last: Option<u64>,
    purpose: Priority,
    checks: Checks,
) -> Rebuilt {
    let mut givers = Vec::new();
    let Some(last) = last else { return (Settlement::new(BYTES_MAX), givers) };
    // Only receipts are needed here, and no sender proves those.
    let checks = Checks { senders: false, ..checks };
    let header = height(reader, source, last, purpose, checks).await.0.header;
    let mut window = Settlement::resume(&CheckedHeader::of(&header), BYTES_MAX);
    for unsettled in window.unsettled() {
        let (assembled, from) = height(reader, source, unsettled, purpose, checks).await;
        givers.push((unsettled, from));
        assembled.unsettled.into_iter().for_each(|receipts| window.push(receipts));
    }
    (window, givers)
}

/// Rebuilds the window above the head from the store alone. Settled heights that the store lacks
/// stay unproven.
///
/// # Errors
/// A height that cannot be read.
pub(crate) fn of_store(reader: &Reader, checks: Checks) -> Result<Settlement, u64> {
    let Some(range) = reader.range() else { return Ok(Settlement::new(BYTES_MAX)) };
    let checks = Checks { senders: false, ..checks };
    let read = |height| stored(reader, height, checks).ok_or(height);
    let header = read(*range.end())?.header;
    let mut window = Settlement::resume(&CheckedHeader::of(&header), BYTES_MAX);
    for height in window.unsettled().filter(|height| height >= range.start()) {
        read(height)?.unsettled.into_iter().for_each(|receipts| window.push(receipts));
    }
    Ok(window)
}

async fn height(
    reader: &Reader,
    source: &HeightFetcher,
    height: u64,
    purpose: Priority,
    checks: Checks,
) -> (Assembled, Option<usize>) {
    // A damaged record is fetched instead, like one that was evicted.
    if let Some(assembled) = stored(reader, height, checks) {
        return (assembled, None);
    }
    let fetched = source.fetch(height, purpose, checks).await;
    (fetched.assembled, Some(fetched.from))
}

/// A stored height, proven again.
pub(crate) fn stored(reader: &Reader, height: u64, checks: Checks) -> Option<Assembled> {
    let (block, receipts) = loaded(|| {
        let record = reader.record(height)?;
        Some((readable_part(&record, FULL).ok()??, readable_part(&record, RECEIPTS).ok()??))
    })?;
    match assemble(block.as_ref(), receipts.as_ref(), &checks) {
        Ok(assembled) => Some(assembled),
        Err(error) => {
            warn!(height, %error, "stored record fails its proof");
            None
        }
    }
}
