//! A stored record made again from its block and receipts, and compared.

use neve_chain::{Checks, ProofError};
use neve_store::verify::Stored;

use crate::assemble::{Assembled, assemble};
use crate::compare::differences;
use crate::parts::{FULL, RECEIPTS};

/// A record made again, and how the stored one differs: kind and detail.
pub type Audited = (Assembled, Vec<(&'static str, String)>);

/// Makes a record again with the proofs of ingest, and compares.
///
/// # Errors
/// A block or receipts that do not check out.
pub fn audit(stored: &Stored<'_>, checks: &Checks) -> Result<Audited, ProofError> {
    let (block, receipts) = (stored.parts[FULL].0, stored.parts[RECEIPTS].0);
    let assembled = assemble(block, receipts, checks)?;
    let differences = differences(stored, &assembled);
    Ok((assembled, differences))
}
