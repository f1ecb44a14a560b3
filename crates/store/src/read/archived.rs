//! Packed files that the store does not have, for one request.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use crate::id::Hash;
use crate::index::Locator;
use crate::segment::Segment;
use crate::segment::{OpenedPacked, Packed, PackedBytes, PackedCodec, PackedDamage, PackedHeader};

/// A packed file outside the store, opened. Clones share it.
#[derive(Clone)]
pub struct ArchivedSegment(
    pub(super) Arc<Segment>,
    #[expect(dead_code, reason = "it is there to be dropped with the others")] Option<Guard>,
);

/// Value that lives as long as a packed file is lent.
type Guard = Arc<dyn Any + Send + Sync>;

/// Place of a hash that the caller found elsewhere. It may be wrong: readers compare the whole hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchivedPlace {
    /// Hash of a block or transaction.
    pub hash: Hash,
    /// Height of the block.
    pub height: u64,
    /// Position of the transaction; `None` for the block.
    pub position: Option<usize>,
}

impl ArchivedPlace {
    pub(super) fn locator(&self) -> Locator {
        match self.position {
            None => Locator::block(self.height),
            Some(position) => Locator::transaction(self.height, position),
        }
    }
}

impl ArchivedSegment {
    /// Opens a packed file. What opening reads must be there.
    ///
    /// # Errors
    /// Bytes that no packer writes, or no memory.
    pub fn open(bytes: PackedBytes, codec: &Arc<dyn PackedCodec>) -> Result<Self, PackedDamage> {
        let len = bytes.len();
        let packed = Packed::of(codec.open(bytes)?, codec);
        let packed = Arc::new(packed);
        let (disk_bytes, last_timestamp, last_hash) = (0, 0, None);
        let opened = OpenedPacked { packed, disk_bytes, bytes: len, last_timestamp, last_hash };
        let segment = Segment::packed(opened);
        let segment = segment.map_err(|error| PackedDamage::NoMemory(error.to_string()))?;
        Ok(Self(Arc::new(segment), None))
    }

    /// Keeps a value as long as this packed file, its clones, and readers that have them.
    #[must_use]
    pub fn guarded(self, guard: Arc<dyn Any + Send + Sync>) -> Self {
        Self(self.0, Some(guard))
    }

    /// Returns range and identity.
    pub fn header(&self) -> Option<PackedHeader> {
        Some(self.0.as_packed()?.header())
    }

    /// Returns offset and length of the bytes that a read of a height needs, besides those of opening.
    pub fn extent(&self, height: u64) -> Option<(u64, usize)> {
        self.0.as_packed()?.range().extent(height).ok()
    }

    /// Returns offset and length of the bytes that [`Self::candidates`] needs, besides those of opening.
    pub fn terms_extent(&self) -> Option<(u64, usize)> {
        Some(self.0.as_packed()?.range().terms_extent())
    }

    /// Returns the hash of the last block.
    pub fn last_hash(&self) -> Option<Hash> {
        self.0.hash_at(self.0.end_height().checked_sub(1)?)
    }

    /// True if a height of it was found damaged.
    pub fn has_damage(&self) -> bool {
        self.0.checked.has_damage()
    }
}

/// Heights that have no log with a key of each list, as the caller found elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithoutLogs {
    /// Lists of keys, as in [`crate::Reader::logs`].
    pub criteria: Vec<Vec<u64>>,
    /// Heights, ascending and disjoint.
    pub heights: Vec<Range<u64>>,
}
