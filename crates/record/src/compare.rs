//! A stored record against the one that its block and receipts make: `neve verify` and mirrors
//! believe no other.

use neve_store::verify::Stored;
use neve_store::{Encoding, Record};

use crate::assemble::Assembled;
use crate::parts::{HASHES, HEADER, SPANS};
use crate::precompressed::{PRECOMPRESSED, is_of};

/// The names of the parts, as findings have them.
const PART_NAMES: [&str; 5] = ["block with hashes", "header", "spans", "block", "receipts"];

/// Differences: for each a short label that scripts may rely on, and the whole story.
pub fn differences(stored: &Stored<'_>, assembled: &Assembled) -> Vec<(&'static str, String)> {
    let record = &assembled.record;
    let mut different = Vec::new();
    let mut note = |kind, detail: String| different.push((kind, detail));
    if !is_same_header(record, stored) {
        note("record_header", "the record's header is not that of its block".into());
    }
    if record.logs != stored.logs {
        note("terms", "the terms of the logs are not those of the block".into());
    }
    let is_other = |part: &usize| record.parts[*part].bytes != stored.parts[*part].0;
    for part in [HASHES, HEADER, SPANS].into_iter().filter(is_other) {
        note("part", format!("{} is not that of the block", PART_NAMES[part]));
    }
    // Other releases may compress otherwise: only what comes out is compared.
    if !precompressed_is_whole(stored) {
        note("precompressed", "a compressed form is not that of its part".into());
    }
    if has_unknown_part(stored) {
        note("part", "a part, or an encoding of one, that this release does not know".into());
    }
    different
}

/// Compares what the record's header says.
fn is_same_header(record: &Record, stored: &Stored<'_>) -> bool {
    record.height == stored.height
        && record.hash == stored.hash
        && record.parent == stored.parent
        && record.timestamp == stored.timestamp
        && record.transactions == stored.transactions
        && record.flags == stored.flags
}

/// True if a part, or the encoding of one, is not known to this release.
fn has_unknown_part(stored: &Stored<'_>) -> bool {
    let plain = stored.parts.iter().all(|part| part.1 == Encoding::Uncompressed);
    !plain || stored.parts[PRECOMPRESSED + 1..].iter().any(|part| !part.0.is_empty())
}

/// True if each compressed form stands for its part, or if there is none.
fn precompressed_is_whole(stored: &Stored<'_>) -> bool {
    let parts: Vec<&[u8]> = stored.parts.iter().map(|part| part.0).collect();
    let forms = parts.get(PRECOMPRESSED).copied().unwrap_or_default();
    forms.is_empty() || is_of(forms, &parts)
}
