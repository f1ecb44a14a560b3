//! Logs that a read found.

use std::ops::Range;

/// Logs that [`PackedHeight::logs`](crate::PackedHeight::logs) found: their texts, back to back.
#[derive(Debug, Default)]
pub struct LogOut {
    /// Texts of the logs.
    pub text: Vec<u8>,
    /// Place in `text` and the block's number of each log.
    pub found: Vec<(Range<usize>, u32)>,
    start: usize,
}

impl LogOut {
    pub(crate) fn begin(&mut self) {
        self.start = self.text.len();
    }

    pub(crate) fn end(&mut self, index: u32) {
        self.found.push((self.start..self.text.len(), index));
    }
}
