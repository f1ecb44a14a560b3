//! The window of published heights that no header has settled yet, and its rebuilding.

use neve_chain::{CheckedHeader, Checks, Settlement};
use neve_store::Reader;
use tracing::warn;

use super::assemble::{Assembled, assemble};
use super::source::Source;
use super::upstream::CallError;
use crate::parts::{FULL, RECEIPTS, plain};

/// Memory for unsettled receipts. Ten heights of mainnet take half a MiB.
const BYTES_MAX: usize = 16 << 20;

/// The window for the height after `last`: empty below the first height of a chain, else rebuilt
/// from the store or, for what is not stored, from the upstream.
pub(super) async fn rebuild(
    reader: &Reader,
    source: &Source,
    last: Option<u64>,
    checks: Checks,
) -> Result<Settlement, CallError> {
    let Some(last) = last else { return Ok(Settlement::new(BYTES_MAX)) };
    let checks = Checks { senders: false, ..checks };
    let header = height(reader, source, last, checks).await?.header;
    let mut window = Settlement::resume(&CheckedHeader::of(&header), BYTES_MAX);
    for unsettled in window.unsettled() {
        let assembled = height(reader, source, unsettled, checks).await?;
        assembled.unsettled.into_iter().for_each(|receipts| window.push(receipts));
    }
    Ok(window)
}

async fn height(
    reader: &Reader,
    source: &Source,
    height: u64,
    checks: Checks,
) -> Result<Assembled, CallError> {
    match stored(reader, height, checks) {
        Some(assembled) => Ok(assembled),
        None => source.fetch(height, checks).await,
    }
}

/// A stored height, proven again.
fn stored(reader: &Reader, height: u64, checks: Checks) -> Option<Assembled> {
    let record = reader.record(height)?;
    let (block, receipts) = (plain(&record, FULL)?, plain(&record, RECEIPTS)?);
    match assemble(block.as_ref(), receipts.as_ref(), &checks) {
        Ok(assembled) => Some(assembled),
        Err(error) => {
            warn!(height, %error, "what is stored does not check out; run neve verify");
            None
        }
    }
}
