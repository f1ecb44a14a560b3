//! Whole segments that are not published yet.

use std::sync::Arc;

use crate::disk::{Claim, Latch, Op};
use crate::id::Hash;
use crate::segment::Segment;

/// Segments that are whole and safe on the disk, and not published yet. What is dropped before it
/// is published is removed.
pub struct BuiltSegments {
    pub(crate) latch: Latch,
    /// Ascending, each beginning where the one before ends.
    pub(crate) segments: Vec<(Arc<Segment>, String)>,
    /// Height and hash of the newest record.
    pub(crate) last: Option<(u64, Hash)>,
    /// Their names, until they are published or removed.
    pub(crate) claims: Vec<Claim>,
}

/// First part of a split segment. The whole segment has its name still.
pub(crate) struct FirstPart {
    pub(crate) segment: Arc<Segment>,
    pub(crate) unfinished: String,
}

impl BuiltSegments {
    /// The lowest height.
    pub fn first(&self) -> Option<u64> {
        Some(self.segments.first()?.0.base())
    }

    /// Height and hash of the newest record.
    pub fn last(&self) -> Option<(u64, Hash)> {
        self.last
    }

    /// Bytes that they take on disk.
    pub fn disk_bytes(&self) -> u64 {
        self.segments.iter().map(|(segment, _)| segment.disk_bytes).sum()
    }
}

impl Drop for BuiltSegments {
    fn drop(&mut self) {
        for (_, name) in std::mem::take(&mut self.segments) {
            remove(&mut self.latch, &name);
        }
    }
}

/// Removes a file. If that fails, the next start removes it.
pub(super) fn remove(latch: &mut Latch, name: &str) {
    if let Err(error) = latch.apply(Op::Remove { name }) {
        tracing::warn!(name, %error, "unfinished segment left");
    }
}
