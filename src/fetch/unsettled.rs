//! The window of published heights that no header has settled yet, and its rebuilding.

use neve_chain::{CheckedHeader, Checks, Settlement};
use neve_record::assemble::{Assembled, assemble};
use neve_record::parts::{FULL, RECEIPTS, readable_part};
use neve_store::Reader;
use neve_store::residency::loaded;
use tracing::warn;

use super::height_fetcher::HeightFetcher;
use crate::upstream::{FetchNeed, Priority};

/// Memory for unsettled receipts. Ten heights of mainnet take half a MiB. A byte costs at least eight gas, as
/// `ProofError::LogGas` says, so made-up receipts cannot drive out true ones: this is the gas of four full blocks of ten
/// seconds at the 3.2 million gas a second that Fuji had.
const BYTES_MAX: usize = 16 << 20;

/// A window, and where its heights came from.
pub(crate) struct Rebuilt {
    pub(crate) window: Settlement,
    /// Heights in it with the places of the upstreams that gave them; `None`: the store has them.
    pub(crate) givers: Vec<(u64, Option<usize>)>,
    /// False if all upstreams lack some of its heights.
    pub(crate) is_whole: bool,
}

/// The window for the height after `last`: empty below the first height of a chain, else rebuilt
/// from the store or, for what is not stored, from upstreams. For history it has no heights that all upstreams lack:
/// what is below all that can be had cannot be proven, and the segment below is held against the stored headers.
pub(crate) async fn rebuild(
    reader: &Reader,
    source: &HeightFetcher,
    last: Option<u64>,
    purpose: Priority,
    checks: Checks,
) -> Rebuilt {
    let (mut givers, mut is_whole) = (Vec::new(), true);
    let empty = |is_whole| {
        let window = Settlement::new(BYTES_MAX);
        Rebuilt { window, givers: Vec::new(), is_whole }
    };
    let Some(last) = last else { return empty(true) };
    // Only receipts are needed here, and no sender proves those.
    let checks = Checks { senders: false, ..checks };
    let Some((newest, _)) = height(reader, source, last, purpose, checks).await else {
        return empty(false);
    };
    let mut window = Settlement::resume(&CheckedHeader::of(&newest.header), BYTES_MAX);
    for unsettled in window.unsettled() {
        let Some((assembled, from)) = height(reader, source, unsettled, purpose, checks).await
        else {
            is_whole = false;
            continue;
        };
        givers.push((unsettled, from));
        assembled.unsettled.into_iter().for_each(|receipts| window.push(receipts));
    }
    Rebuilt { window, givers, is_whole }
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
) -> Option<(Assembled, Option<usize>)> {
    // A damaged record is fetched instead, like one that was evicted.
    if let Some(assembled) = stored(reader, height, checks) {
        return Some((assembled, None));
    }
    let fetched = source.fetch_needed(FetchNeed::new(height, purpose), checks).await?;
    Some((fetched.assembled, Some(fetched.from)))
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
