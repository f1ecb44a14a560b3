//! Opening a store.

use crate::error::Error;
use crate::format::{SLOT_COUNT_MAX, slot_offset};
use crate::id::Identity;
use crate::segment::RANGE_BLOCKS_MAX;

/// Sizes of new segments. Opening an existing store takes segments of any size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Heights that a segment has slots for.
    pub segment_blocks: u32,
    /// Bytes reserved for a segment's records and hash table. A record that does not fit an
    /// empty segment gets a larger one.
    pub segment_bytes: u64,
    /// Bytes that must stay free on the file system: below it no segment is allocated.
    pub disk_reserve_bytes: u64,
    /// The chain that the store must belong to, if the caller knows.
    pub expected: Option<Identity>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_blocks: 4096,
            segment_bytes: 128 << 20,
            disk_reserve_bytes: 1 << 30,
            expected: None,
        }
    }
}

impl Options {
    /// The smallest `segment_bytes`.
    pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;
    /// The largest `segment_bytes`.
    pub const SEGMENT_BYTES_MAX: u64 = 64 << 30;

    /// Heights of a packed file of this store.
    pub fn range_blocks(&self) -> u32 {
        range_blocks(self.segment_blocks)
    }

    /// Bytes of the longest segment file that is received: its sender says how long it is.
    pub(super) fn received_bytes_max(&self) -> u64 {
        let records = self.segment_bytes.max(Self::default().segment_bytes);
        slot_offset(SLOT_COUNT_MAX) + 2 * records
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let within = |name, found, min, max| {
            let allowed = format!("{min} to {max}");
            if (min..=max).contains(&found) {
                Ok(())
            } else {
                Err(Error::BadOption { name, found, allowed })
            }
        };
        within("segment_blocks", self.segment_blocks.into(), 1, SLOT_COUNT_MAX.into())?;
        let (min, max) = (Self::SEGMENT_BYTES_MIN, Self::SEGMENT_BYTES_MAX);
        within("segment_bytes", self.segment_bytes, min, max)
    }
}

/// Length of the ranges of a store whose segments have `segment_blocks` heights at most.
pub(crate) fn range_blocks(segment_blocks: u32) -> u32 {
    1 << segment_blocks.clamp(1, RANGE_BLOCKS_MAX).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_the_largest_power_of_two_in_a_segment() {
        let lengths = [1, 2, 3, 31, 32, 33, 1023, 1024, 4096, 1 << 20].map(range_blocks);
        assert_eq!(lengths, [1, 2, 2, 16, 32, 32, 512, 1024, 1024, 1024]);
    }
}
