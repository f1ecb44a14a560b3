//! A stored record against the one that its block and receipts make: `neve verify` and mirrors
//! believe no other.

use neve_store::Encoding;
use neve_store::verify::Stored;

use crate::assemble::Assembled;
use crate::parts::{HASHES, HEADER, SPANS};
use crate::precompressed::{PRECOMPRESSED, is_of};

/// The names of the parts, as findings have them.
const PART_NAMES: [&str; 5] = ["block with hashes", "header", "spans", "block", "receipts"];

/// Differences: for each a short label that scripts may rely on, and the whole story.
pub fn differences(stored: &Stored<'_>, assembled: &Assembled) -> Vec<(&'static str, String)> {
    let record = &assembled.record;
    let same = record.height == stored.height
        && record.hash == stored.hash
        && record.parent == stored.parent
        && record.timestamp == stored.timestamp
        && record.transactions == stored.transactions
        && record.flags == stored.flags;
    let mut different = Vec::new();
    let mut note = |kind, detail: String| different.push((kind, detail));
    if !same {
        note("record_header", "the record's header is not that of its block".into());
    }
    if record.logs != stored.logs {
        note("terms", "the terms of the logs are not those of the block".into());
    }
    for part in [HASHES, HEADER, SPANS] {
        if record.parts[part].bytes != stored.parts[part].0 {
            note("part", format!("{} is not that of the block", PART_NAMES[part]));
        }
    }
    // Other releases may compress otherwise: only what comes out is compared.
    if !precompressed_is_whole(stored) {
        note("precompressed", "a compressed form is not that of its part".into());
    }
    let plain = stored.parts.iter().all(|part| part.1 == Encoding::Uncompressed);
    if !plain || stored.parts[PRECOMPRESSED + 1..].iter().any(|part| !part.0.is_empty()) {
        note("part", "a part, or an encoding of one, that this release does not know".into());
    }
    different
}

/// True if each compressed form stands for its part, or if there is none.
fn precompressed_is_whole(stored: &Stored<'_>) -> bool {
    let parts: Vec<&[u8]> = stored.parts.iter().map(|part| part.0).collect();
    let forms = parts.get(PRECOMPRESSED).copied().unwrap_or_default();
    forms.is_empty() || is_of(forms, &parts)
}
