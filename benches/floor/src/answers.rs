//! Recorded answers, and the order in which they are given.

use std::io::{self, ErrorKind};
use std::ops::Range;

/// Answers in memory.
pub(crate) struct Answers {
    bytes: Vec<u8>,
    ranges: Vec<Range<usize>>,
    at: usize,
    step: usize,
}

impl Answers {
    /// Reads a file of answers.
    pub(crate) fn read(path: &str) -> io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let ranges = ranges(&bytes).ok_or(ErrorKind::UnexpectedEof)?;
        if ranges.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidData, "there are no answers in it"));
        }
        let step = step(ranges.len());
        Ok(Self { bytes, ranges, at: 0, step })
    }

    /// The place of the next answer.
    pub(crate) fn next(&mut self) -> Range<usize> {
        self.at = (self.at + self.step) % self.ranges.len();
        self.ranges[self.at].clone()
    }

    /// The bytes at such a place.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }
}

fn ranges(bytes: &[u8]) -> Option<Vec<Range<usize>>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (length, _) = bytes[at..].split_first_chunk::<4>()?;
        let start = at + 4;
        at = start + u32::from_le_bytes(*length) as usize;
        ranges.push(start..at);
    }
    (at == bytes.len()).then_some(ranges)
}

/// A step near the golden section that visits all of them before one comes again.
fn step(count: usize) -> usize {
    let wanted = count * 382 / 1_000;
    (wanted.max(1)..=count + 1).find(|step| divisor(*step, count) == 1).unwrap_or(1)
}

fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_comes_before_one_comes_again() {
        for count in [1, 2, 3, 10, 382, 1_000, 2_000] {
            let step = step(count);
            let mut seen: Vec<_> = (1..=count).map(|turn| turn * step % count).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_file_that_ends_early_is_refused() {
        assert_eq!(ranges(b"\x02\0\0\0ab\x01\0\0\0c"), Some(vec![4..6, 10..11]));
        assert_eq!(ranges(b"\x02\0\0\0a"), None);
        assert_eq!(ranges(b"\x02\0"), None);
    }
}
