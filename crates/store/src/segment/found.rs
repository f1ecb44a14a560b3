//! Reading of a height no more than is wanted, and of records that may be damaged.

use super::packed::Packed;
use super::packed_codec::{LogTest, PackedDamage, PackedLogs, Wanted};
use super::record_ref::RecordRef;
use super::segment::Segment;
use crate::format::{RecordHeader, Slot};
use crate::id::Hash;
use crate::memory::residency;
use crate::memory::residency::{Cold, ReadFailed};
use crate::reads;

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
        work: impl FnOnce(&Packed) -> Result<T, PackedDamage>,
    ) -> Result<Option<T>, Cold> {
        let Some((packed, at)) = self.packed_slot(height) else { return Ok(None) };
        if self.checked.is_damaged(at) {
            return Ok(None);
        }
        match work(packed) {
            Ok(done) => {
                self.checked.note_intact(at);
                Ok(Some(done))
            }
            Err(damage) => self.note_not_unpacked(height, at, &damage).map(|()| None),
        }
    }

    /// Notes the damage of a packed height. Fails if it was not read.
    fn note_not_unpacked(&self, height: u64, at: u32, damage: &PackedDamage) -> Result<(), Cold> {
        // Noted before the work ends: its repetition then finds a miss, and does not fail again.
        if residency::has_failed() {
            self.checked.note_damaged(self.base(), at, "packed height cannot be read");
        }
        damage.unless_cold()?;
        // Says nothing of the file: the height is a miss now, and may be read later.
        if let PackedDamage::NoMemory(error) = damage {
            tracing::debug!(height, error, "no memory to unpack");
        } else {
            self.checked.note_damaged(self.base(), at, "packed height is damaged");
            tracing::debug!(height, %damage, "packed height not read");
        }
        Ok(())
    }

    /// The packed file that has `height`, and the number of the height in it.
    fn packed_slot(&self, height: u64) -> Option<(&Packed, u32)> {
        let at = height.checked_sub(self.base()).filter(|at| *at < u64::from(self.count()))? as u32;
        Some((self.as_packed()?, at))
    }
}

impl Segment {
    /// Slot and bytes of the record at `height` as they are stored, damaged or not; `None` if
    /// they cannot be read.
    pub(crate) fn stored(&self, height: u64) -> Option<(Slot, Vec<u8>)> {
        if let Some((packed, at)) = self.packed_slot(height) {
            // Also if it was found damaged: the disk may deliver it now.
            let note = |_: &_| self.checked.note_damaged(self.base(), at, "packed height not read");
            let proven =
                reads::again(|_| true, || residency::with_blocking_reads(|| packed.proven(height)));
            let record = proven.inspect_err(note).ok()?.ok()?;
            return Some((record.slot, record.whole()?.to_vec()));
        }
        let find = || residency::with_blocking_reads(|| self.slot(height).ok().flatten());
        let (at, slot) = reads::again(|_| true, find).ok().flatten()?;
        // A copy of it replaces the only other one.
        let read = || self.map.read(slot.offset, slot.length as usize);
        let read = reads::again(reads::is_disk_failure, read);
        let note = |_: &_| self.checked.note_damaged(self.base(), at, "record cannot be read");
        Some((slot, read.inspect_err(note).ok()?))
    }

    /// Header, slot and bytes of the record at `height` as they are stored, if they are intact.
    pub(crate) fn stored_intact(&self, height: u64) -> Option<(RecordHeader, (Slot, Vec<u8>))> {
        let (slot, bytes) = self.stored(height)?;
        let head = RecordHeader::read(&bytes).filter(|head| head.fits(height, &slot))?;
        (crc32fast::hash(&bytes) == slot.record_crc).then_some((head, (slot, bytes)))
    }

    /// Height and hash of the newest record, which need not be intact.
    pub(crate) fn tip(&self) -> Option<(u64, Hash)> {
        self.read_tip().ok().flatten()
    }

    /// Returns the tip, or says that the disk did not deliver it.
    pub(crate) fn read_tip(&self) -> Result<Option<(u64, Hash)>, ReadFailed> {
        let last = self.end_height().checked_sub(1).filter(|last| *last >= self.base());
        let Some(last) = last else { return Ok(None) };
        Ok(self.read_hash(last)?.map(|hash| (last, hash)))
    }

    /// Time of the newest record as the seal has it; 0 if it is not known.
    pub(crate) fn tip_timestamp(&self) -> u64 {
        // A segment that was cut has the time of a block that is no longer in it.
        self.last_hash.map_or(0, |_| self.last_timestamp)
    }

    /// The hash of the block at `height`, whose record need not be intact.
    pub(crate) fn hash_at(&self, height: u64) -> Option<Hash> {
        let sealed = self.last_hash.filter(|_| height + 1 == self.end_height());
        let packed = || self.as_packed().and_then(|packed| packed.hash(height));
        sealed.or_else(packed).or_else(|| self.read_hash(height).ok().flatten())
    }

    /// Returns this hash, or says that the disk did not deliver it.
    pub(crate) fn read_hash(&self, height: u64) -> Result<Option<Hash>, ReadFailed> {
        if let Some(hash) = self.last_hash.filter(|_| height + 1 == self.end_height()) {
            return Ok(Some(hash));
        }
        let read = || {
            let packed = self.as_packed().and_then(|packed| packed.hash(height));
            packed.or_else(|| Some(self.peek(height)?.hash()))
        };
        reads::again(|_| true, || residency::with_blocking_reads(read))
    }
}
