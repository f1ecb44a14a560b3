//! Logs that a read found.

use std::ops::Range;

/// Space for the text of a log: a usual length.
pub(super) const LOG_ROOM: usize = 700;
/// Logs that space is made for at once.
pub(super) const LOGS_RESERVED: usize = 4096;

/// Logs that [`PackedHeight::logs`](crate::PackedHeight::logs) found: their texts with commas between them.
#[derive(Debug, Default)]
pub struct LogOut {
    /// Texts of the logs, as a list has them.
    pub text: Vec<u8>,
    /// Place in `text` and the block's number of each log.
    pub found: Vec<(Range<usize>, u32)>,
    /// Length of `text` before the first log.
    before: usize,
    start: usize,
}

impl LogOut {
    /// Appends logs to a text.
    pub fn after(text: Vec<u8>) -> Self {
        Self { before: text.len(), text, ..Self::default() }
    }

    /// Returns the texts of the logs.
    pub(crate) fn logs(&self) -> &[u8] {
        self.text.get(self.before..).unwrap_or_default()
    }

    /// Makes space for so many more logs of usual length.
    pub(crate) fn reserve(&mut self, logs: usize) {
        self.text.reserve(logs.min(LOGS_RESERVED) * LOG_ROOM);
        self.found.reserve(logs.min(LOGS_RESERVED));
    }

    pub(crate) fn begin(&mut self) {
        if !self.found.is_empty() {
            self.text.push(b',');
        }
        self.start = self.text.len();
    }

    pub(crate) fn end(&mut self, index: u32) {
        self.found.push((self.start..self.text.len(), index));
    }
}
