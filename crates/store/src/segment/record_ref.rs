//! A committed record, as readers hold it.

use std::borrow::Cow;
use std::sync::Arc;

use super::slice::{SegmentSlice, touch};
use crate::format::{self, Encoding, HEAD_LEN, PARTS_MAX, RecordHeader, Slot, Terms};
use crate::id::Hash;
use crate::memory::PinnedMap;
use crate::memory::residency::{self, probe};

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

    /// The bytes of part `at` and what they are, unless they cannot be read now.
    pub fn read_part(&self, at: usize) -> Option<(Cow<'_, [u8]>, Encoding)> {
        let (offset, len, encoding) = self.place(at);
        let bytes = self.map.bytes(offset..offset + u64::from(len))?;
        Some((residency::read(&self.map, bytes)?, encoding))
    }

    /// Place where part `at` begins, how long it is, and what it is.
    fn place(&self, at: usize) -> (u64, u32, Encoding) {
        let encoding = self.slot.encodings.get(at).copied().unwrap_or_default();
        let at = at.min(PARTS_MAX - 1);
        let offset = self.slot.offset + u64::from(self.slot.bounds[at]);
        (offset, self.slot.bounds[at + 1].saturating_sub(self.slot.bounds[at]), encoding)
    }

    /// All of its bytes.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        self.map.bytes(self.slot.offset..self.slot.end()?)
    }

    /// The block's hash.
    pub fn hash(&self) -> Hash {
        self.head().hash
    }

    /// The parent's hash.
    pub fn parent(&self) -> Hash {
        self.head().parent
    }

    /// The block's time, seconds since 1970.
    pub fn timestamp(&self) -> u64 {
        self.head().timestamp
    }

    /// Number of transactions it has.
    pub fn transaction_count(&self) -> u32 {
        self.head().transactions
    }

    /// The hash of transaction `at`.
    pub fn transaction(&self, at: usize) -> Option<Hash> {
        let count = self.head().transactions as usize;
        let (from, end) = (format::head_len(at, 0), format::head_len(at + 1, 0));
        let hash = (at < count).then(|| self.start(end)?.get(from..end))??;
        Some(Hash(residency::read_array(&self.map, hash)?))
    }

    /// Number of logs it has.
    pub fn log_count(&self) -> u32 {
        self.head().logs
    }

    /// The terms of its logs, in order; none if they cannot be read now.
    pub fn terms(&self) -> impl Iterator<Item = Terms> + '_ {
        let head = self.head();
        format::all_terms(self.head_bytes().unwrap_or_default(), &head)
    }

    /// Touches what is before the parts: hashes, and the terms of logs.
    pub fn load_head(&self) {
        touch(self.head_bytes().unwrap_or_default());
    }

    /// Bytes before the parts; `None` if they must not be touched now.
    fn head_bytes(&self) -> Option<&[u8]> {
        self.start(self.slot.bounds[0] as usize).filter(|start| probe(&self.map, start))
    }

    /// The first `len` bytes of it, which were not looked at.
    fn start(&self, len: usize) -> Option<&[u8]> {
        let len = u64::from(self.slot.bounds[0]).min(len as u64);
        self.map.bytes(self.slot.offset..self.slot.offset + len)
    }

    pub(crate) fn head(&self) -> RecordHeader {
        let bytes = self.start(HEAD_LEN).expect("a checked slot leaves room for a head");
        // If it cannot be read now, whoever asks is going to drop it: see `if_resident`.
        let bytes = residency::read_array::<HEAD_LEN>(&self.map, bytes);
        bytes.and_then(|bytes| RecordHeader::read(&bytes)).unwrap_or_default()
    }
}

/// A part of a committed record.
pub struct PartRef {
    /// Bytes as stored.
    pub slice: SegmentSlice,
    /// Form of the bytes.
    pub encoding: Encoding,
}
