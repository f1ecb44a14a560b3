//! Reading of a height no more than is wanted.

use super::packed_codec::{LogTest, PackedDamage, PackedLogs, Wanted};
use super::record_ref::RecordRef;
use super::segment::Segment;
use crate::memory::residency;
use crate::memory::residency::Cold;

/// A height as it was found.
pub enum Found {
    /// In a segment: its record.
    Stored(RecordRef),
    /// In a packed file: what is wanted was unpacked and appended.
    Unpacked {
        /// Height of the block.
        height: u64,
        /// Number of its transactions, if that is wanted.
        transactions: usize,
    },
}

impl Found {
    /// Height of the block.
    pub fn height(&self) -> u64 {
        match self {
            Self::Stored(record) => record.height(),
            Self::Unpacked { height, .. } => *height,
        }
    }
}

impl Segment {
    /// Reads a height: its record, or what is wanted of it if it is in a packed file.
    #[inline]
    pub(crate) fn read(
        &self,
        height: u64,
        wanted: Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Found>, Cold> {
        match self.slot(height)? {
            Some((at, slot)) => Ok(self.intact(height, at, slot)?.map(Found::Stored)),
            None => self.read_packed(height, wanted, out),
        }
    }

    #[cold]
    fn read_packed(
        &self,
        height: u64,
        wanted: Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Found>, Cold> {
        let before = out.len();
        let read = self.unpacked(height, |packed| packed.range().read(height, wanted, out));
        if !matches!(read, Ok(Some(Some(_)))) {
            out.truncate(before); // an error may have left some
        }
        Ok(read?.flatten().map(|transactions| Found::Unpacked { height, transactions }))
    }

    /// Finds the logs of a packed height that `matches` accepts; returns the bytes that were unpacked.
    pub(crate) fn logs_of_packed(
        &self,
        height: u64,
        matches: &mut LogTest<'_>,
        out: &mut PackedLogs,
    ) -> Result<Option<usize>, Cold> {
        self.unpacked(height, |packed| packed.range().logs(height, matches, out))
    }

    /// Does `work` on the packed file that has `height`, and notes whether it is damaged.
    pub(super) fn unpacked<T>(
        &self,
        height: u64,
        work: impl FnOnce(&super::Packed) -> Result<T, PackedDamage>,
    ) -> Result<Option<T>, Cold> {
        let Some((packed, at)) = self.packed_slot(height) else { return Ok(None) };
        if self.checked.is_damaged(at) {
            return Ok(None);
        }
        let damage = match work(packed) {
            Ok(done) => {
                self.checked.note_intact(at);
                return Ok(Some(done));
            }
            Err(damage) => damage,
        };
        if residency::has_failed() {
            self.checked.note_damaged(self.base(), at, "packed height cannot be read");
        }
        damage.unless_cold()?;
        if let PackedDamage::NoMemory(error) = damage {
            tracing::debug!(height, error, "no memory to unpack");
        } else {
            self.checked.note_damaged(self.base(), at, "packed height is damaged");
            tracing::debug!(height, %damage, "packed height not read");
        }
        Ok(None)
    }

    /// The packed file that has `height`, and the number of the height in it.
    fn packed_slot(&self, height: u64) -> Option<(&super::Packed, u32)> {
        let at = height.checked_sub(self.base()).filter(|at| *at < u64::from(self.count()))? as u32;
        Some((self.as_packed()?, at))
    }
}
