//! Segments that are set aside, as readers see them: how many, and up to which height.

use std::sync::atomic::{AtomicU64, Ordering};

/// Files in quarantine.
#[derive(Debug, Default)]
pub(crate) struct QuarantineStatus {
    files: AtomicU64,
    bytes: AtomicU64,
    /// The height after the newest whole segment below the served range; 0: none.
    end: AtomicU64,
}

impl QuarantineStatus {
    /// Replaces all values. Only the writer calls this.
    pub(crate) fn set(&self, files: u64, bytes: u64, end: Option<u64>) {
        self.files.store(files, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.end.store(end.unwrap_or(0), Ordering::Relaxed);
    }

    /// Files and their bytes.
    pub(crate) fn usage(&self) -> (u64, u64) {
        (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// The height after the newest segment that would be served but for the gap above it.
    pub(crate) fn end(&self) -> Option<u64> {
        Some(self.end.load(Ordering::Relaxed)).filter(|end| *end > 0)
    }
}
