//! A committed record, as readers hold it.

use std::borrow::Cow;
use std::sync::Arc;

use super::slice::{SegmentSlice, touch};
use crate::format::{
    self, Encoding, HEADER_COUNT_AT, HEADER_HASH_AT, HEADER_LEN, PARTS_MAX, RecordHeader, Slot,
    Terms,
};
use crate::id::Hash;
use crate::memory::PinnedMap;
use crate::memory::residency::{self, Cold, probe};

/// A committed record. It keeps its segment mapped, evicted or not.
#[derive(Clone)]
pub struct RecordRef {
    pub(super) map: Arc<PinnedMap>,
    pub(super) height: u64,
    pub(super) slot: Slot,
}

impl RecordRef {
    /// Height of the block.
    pub fn height(&self) -> u64 {
        self.height
    }

    /// The caller's bits.
    pub fn flags(&self) -> u32 {
        self.slot.flags
    }

    /// Bytes that the record takes in its segment, without padding.
    pub fn stored_len(&self) -> u64 {
        self.slot.length.into()
    }

    /// CRC-32 of the record as stored, made when it was written: records with different bytes have
    /// different ones, but for one pair in 2^32 and for those who want them to agree.
    pub fn checksum(&self) -> u32 {
        self.slot.record_crc
    }

    /// Part `at` of the record; empty if it was stored without one.
    pub fn part(&self, at: usize) -> PartRef {
        self.clone().into_part(at)
    }

    /// Returns a part with the record's pin of its segment.
    pub fn into_part(self, at: usize) -> PartRef {
        let (offset, len, encoding) = self.place(at);
        PartRef { slice: SegmentSlice { map: self.map, offset, len }, encoding }
    }

    /// Returns the bytes of part `at` and their form.
    pub fn read_part(&self, at: usize) -> Result<Option<PartBytes<'_>>, Cold> {
        let (offset, len, encoding) = self.place(at);
        let Some(bytes) = self.map.bytes(offset..offset + u64::from(len)) else { return Ok(None) };
        Ok(Some((residency::read(&self.map, bytes)?, encoding)))
    }

    /// Place where part `at` begins, how long it is, and what it is.
    fn place(&self, at: usize) -> (u64, u32, Encoding) {
        let encoding = self.slot.encodings.get(at).copied().unwrap_or_default();
        let at = at.min(PARTS_MAX - 1);
        let offset = self.slot.offset + u64::from(self.slot.bounds[at]);
        (offset, self.slot.bounds[at + 1].saturating_sub(self.slot.bounds[at]), encoding)
    }

    /// All bytes of the record.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        self.map.bytes(self.slot.offset..self.slot.end()?)
    }

    /// The block's hash.
    pub fn hash(&self) -> Hash {
        self.blocking_header().hash
    }

    /// The parent's hash.
    pub fn parent(&self) -> Hash {
        self.blocking_header().parent
    }

    /// The block's time, seconds since 1970.
    pub fn timestamp(&self) -> u64 {
        self.blocking_header().timestamp
    }

    /// Number of transactions it has.
    pub fn transaction_count(&self) -> u32 {
        self.blocking_header().transactions
    }

    /// The hash of transaction `at`.
    pub fn transaction(&self, at: usize) -> Result<Option<Hash>, Cold> {
        let count = self.header()?.transactions as usize;
        let (from, end) = (format::header_len(at, 0), format::header_len(at + 1, 0));
        let hash = (at < count).then(|| self.start(end)?.get(from..end)).flatten();
        let Some(hash) = hash else { return Ok(None) };
        Ok(Some(Hash(residency::read_array(&self.map, hash)?)))
    }

    /// True if it is of the block with `hash`.
    #[inline]
    pub(crate) fn is_block(&self, hash: &Hash) -> Result<bool, Cold> {
        Ok(self.read_header(HEADER_HASH_AT)? == Some(hash.0))
    }

    /// True if transaction `at` has `hash`.
    #[inline]
    pub(crate) fn is_transaction(&self, at: usize, hash: &Hash) -> Result<bool, Cold> {
        let count = self.read_header(HEADER_COUNT_AT)?.map_or(0, u32::from_le_bytes);
        Ok(at < count as usize && self.read_header(format::header_len(at, 0))? == Some(hash.0))
    }

    /// Reads `N` bytes before the parts: a field, and no more.
    #[inline]
    fn read_header<const N: usize>(&self, at: usize) -> Result<Option<[u8; N]>, Cold> {
        match self.start(at + N).and_then(|start| start.get(at..at + N)) {
            Some(bytes) => residency::read_array(&self.map, bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Number of logs it has.
    pub fn log_count(&self) -> u32 {
        self.blocking_header().logs
    }

    /// The terms of its logs, in order.
    pub fn terms(&self) -> Result<impl Iterator<Item = Terms> + '_, Cold> {
        let header = self.header()?;
        Ok(format::all_terms(self.head_bytes()?, &header))
    }

    /// Touches what is before the parts: hashes, and the terms of logs.
    pub fn load_head(&self) -> Result<(), Cold> {
        touch(self.head_bytes()?);
        Ok(())
    }

    /// Bytes before the parts.
    fn head_bytes(&self) -> Result<&[u8], Cold> {
        let bytes = self.start(self.slot.bounds[0] as usize).unwrap_or_default();
        probe(&self.map, bytes)?;
        Ok(bytes)
    }

    /// The first `len` bytes of it, which were not looked at.
    fn start(&self, len: usize) -> Option<&[u8]> {
        let len = u64::from(self.slot.bounds[0]).min(len as u64);
        self.map.bytes(self.slot.offset..self.slot.offset + len)
    }

    /// Hash, parent, time and counts of the block.
    #[inline]
    pub fn header(&self) -> Result<RecordHeader, Cold> {
        // A checked slot leaves space for a head.
        let Some(bytes) = self.start(HEADER_LEN) else { return Ok(RecordHeader::default()) };
        let bytes = residency::read_array::<HEADER_LEN>(&self.map, bytes)?;
        Ok(RecordHeader::read(&bytes).unwrap_or_default())
    }

    /// The header for a thread that may wait; zeros if the disk fails, which drops the work.
    fn blocking_header(&self) -> RecordHeader {
        let header = self.header();
        debug_assert!(header.is_ok() || residency::has_failed(), "this thread must not wait");
        header.unwrap_or_default()
    }
}

/// Bytes of a part, as they lie or copied, and their form.
pub type PartBytes<'r> = (Cow<'r, [u8]>, Encoding);

/// A part of a committed record.
pub struct PartRef {
    /// Bytes as stored.
    pub slice: SegmentSlice,
    /// Form of the bytes.
    pub encoding: Encoding,
}
