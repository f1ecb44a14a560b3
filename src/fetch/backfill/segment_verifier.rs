//! Verifies the file of a segment, or a packed file, against the chain: makes every record again from its block and
//! receipts, with the proofs of ingest, and compares. Checksums prove nothing, because a liar makes them anew.

use bytes::Bytes;
use metrics::counter;
use neve_chain::{CheckedHeader, Checks, Disproof, Proof, Settlement};
use neve_record::assemble::Assembled;
use neve_record::audit::audit;
use neve_record::parts::{FULL, RECEIPTS};
use neve_store::verify::{Finding, Stored, Visitor};
use neve_store::{BuiltSegments, PartialSegment, SealedPage};

/// Bytes of a damaged file that are kept, from the damage on.
const DAMAGED_BYTES: usize = 64 << 10;

/// Fault of a segment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}{}: {detail}", .height.map_or(String::new(), |height| format!(" at height {height}")))]
pub(crate) struct SegmentError {
    /// A short label, for the metric.
    pub(crate) reason: &'static str,
    pub(crate) height: Option<u64>,
    detail: String,
    /// Texts for people: the block and the receipts that are wrong, or the bytes that are damaged.
    pub(crate) texts: Option<(Bytes, Bytes)>,
}

impl SegmentError {
    /// A header above the segment disproves receipts in it.
    pub(crate) fn disproved(disproof: &Disproof) -> Self {
        let (reason, detail) = (disproof.reason(), disproof.to_string());
        Self { reason, height: None, detail, texts: None }
    }

    /// The file is not the one that its source names.
    #[cfg(feature = "archive")]
    pub(super) fn another() -> Self {
        let detail = "a file that is not the one in its list".to_owned();
        Self { reason: "segment", height: None, detail, texts: None }
    }

    /// The store ends at a block that no block of the file has as its parent.
    #[cfg(feature = "archive")]
    pub(super) fn apart(height: u64, hash: neve_store::Hash) -> Self {
        let detail = format!(
            "the store ends with its block {hash}, and the segment of --archive-anchor does not go on from \
             there; use an empty --data-dir"
        );
        Self { reason: "anchor", height: Some(height), detail, texts: None }
    }

    /// A block is not the one that is known to be in the chain.
    #[cfg(feature = "archive")]
    pub(super) fn anchor(height: u64, found: Option<neve_store::Hash>) -> Self {
        let detail = match found {
            Some(found) => format!("its block is {found}, not that of --archive-anchor"),
            None => "no header settles it in its segment; name a later block".to_owned(),
        };
        Self { reason: "anchor", height: Some(height), detail, texts: None }
    }
}

/// A segment that checks out and is safe on the disk, and the window of heights that headers above
/// it will settle.
pub(crate) struct VerifiedSegment {
    pub(crate) built: BuiltSegments,
    pub(crate) window: Settlement,
}

/// Looks at all of `incoming`. `window` has the heights below it that are not settled before it. A file
/// that does not check out is removed.
pub(crate) fn check(
    mut incoming: PartialSegment,
    page: &SealedPage,
    checks: Checks,
    window: Settlement,
) -> Result<Result<VerifiedSegment, SegmentError>, neve_store::Error> {
    let mut look = SegmentVerifier::new(checks, window);
    let summary = incoming.verify(&mut look)?;
    let is_the_time = page.last_timestamp.is_none_or(|time| time == look.timestamp);
    if summary.records != u64::from(page.records) || !is_the_time {
        look.damaged(0, "seal", None, "it says another number of records, or another time".into());
    }
    if let Some(mut wrong) = look.wrong {
        if let Some(offset) = look.damaged_at {
            wrong.texts = Some((incoming.piece(offset, DAMAGED_BYTES).into(), Bytes::new()));
        }
        // A later attempt, perhaps of another source, must not go on behind false bytes.
        incoming.restart()?;
        return Ok(Err(wrong));
    }
    Ok(Ok(VerifiedSegment { built: incoming.finish()?, window: look.window }))
}

/// Receiver of a file's records, which proves them.
pub(super) struct SegmentVerifier {
    checks: Checks,
    pub(super) window: Settlement,
    pub(super) wrong: Option<SegmentError>,
    /// Offset of damage in the file.
    damaged_at: Option<u64>,
    timestamp: u64,
}

impl SegmentVerifier {
    pub(super) fn new(checks: Checks, window: Settlement) -> Self {
        Self { checks, window, wrong: None, damaged_at: None, timestamp: 0 }
    }

    /// A damaged file. What was wrong first is told.
    fn damaged(&mut self, at: u64, reason: &'static str, height: Option<u64>, detail: String) {
        // The first fault is the cause: later ones may only follow from it.
        if self.wrong.is_none() {
            self.wrong = Some(SegmentError { reason, height, detail, texts: None });
            self.damaged_at = Some(at);
        }
    }

    /// Fault of a record's block or receipts.
    fn falsehood(&mut self, stored: &Stored<'_>) -> Option<(&'static str, String)> {
        let (assembled, mut differences) = match audit(stored, &self.checks) {
            Ok(audited) => audited,
            Err(refusal) => return Some((refusal.reason(), refusal.to_string())),
        };
        if let Some(different) = differences.pop() {
            return Some(different);
        }
        let disproof = self.settle(assembled).err()?;
        Some((disproof.reason(), disproof.to_string()))
    }

    fn settle(&mut self, assembled: Assembled) -> Result<(), Disproof> {
        let proof = self.window.settle(&CheckedHeader::of(&assembled.header))?;
        if matches!(proof, Proof::Unprovable { .. }) {
            counter!("neve_settlements_unproven_total").increment(1);
        }
        assembled.unsettled.into_iter().for_each(|receipts| self.window.push(receipts));
        Ok(())
    }
}

impl Visitor for SegmentVerifier {
    fn finding(&mut self, finding: Finding) {
        self.damaged(finding.offset, finding.kind, finding.height, finding.detail);
    }

    fn record(&mut self, stored: &Stored<'_>) {
        if self.wrong.is_some() {
            return; // it is refused as a whole
        }
        self.timestamp = stored.timestamp;
        if let Some((reason, detail)) = self.falsehood(stored) {
            let text = |part: usize| Bytes::copy_from_slice(stored.parts[part].0);
            let (height, texts) = (Some(stored.height), Some((text(FULL), text(RECEIPTS))));
            self.wrong = Some(SegmentError { reason, height, detail, texts });
        }
    }

    /// A file is refused as a whole, and its later heights may be made to cost much.
    fn is_done(&self) -> bool {
        self.wrong.is_some()
    }

    fn progress(&mut self, _: u64) {}
}
