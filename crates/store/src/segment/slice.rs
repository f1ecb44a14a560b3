//! Bytes of a mapped segment that outlive the look-up that found them.

use std::ops::Range;
use std::sync::Arc;

use crate::memory::PinnedMap;
use crate::memory::residency::{self, Cold, probe};

/// Bytes inside a mapped segment; they stay valid as long as this value lives.
#[derive(Clone)]
pub struct SegmentSlice {
    pub(super) map: Arc<PinnedMap>,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl SegmentSlice {
    /// The bytes `from..to` of this slice, cut to its length.
    #[must_use]
    pub fn slice(&self, from: u32, to: u32) -> Self {
        self.clone().into_slice(from, to)
    }

    /// Turns this slice into a part of it.
    #[must_use]
    pub fn into_slice(self, from: u32, to: u32) -> Self {
        let to = to.min(self.len);
        let from = from.min(to);
        Self { map: self.map, offset: self.offset + u64::from(from), len: to - from }
    }

    /// Takes `next` in, if it begins behind this slice with just the byte `between` in front of it.
    #[must_use]
    pub fn join(&mut self, between: u8, next: &Self) -> bool {
        let end = self.offset + u64::from(self.len);
        let Some(len) = self.len.checked_add(1).and_then(|len| len.checked_add(next.len)) else {
            return false;
        };
        let joins = next.offset == end + 1
            && self.map.same(&next.map)
            // Bytes between the two must be the comma alone, or the list would be no JSON.
            && self.map.bytes(end..end + 1) == Some(&[between]);
        if joins {
            self.len = len;
        }
        joins
    }

    /// True if it is of a height that was unpacked into memory of this process.
    pub fn is_unpacked(&self) -> bool {
        self.map.is_anonymous()
    }

    /// Fails unless this thread may touch its bytes.
    pub fn probe(&self) -> Result<(), Cold> {
        self.probe_in(0..self.len())
    }

    /// Fails unless this thread may touch a range of its bytes.
    pub fn probe_in(&self, range: Range<usize>) -> Result<(), Cold> {
        probe(&self.map, &self.as_ref()[range])
    }

    /// Fails unless its bytes may be sent, by copies where [`residency::memory_is_short`].
    pub fn probe_to_send(&self) -> Result<(), Cold> {
        residency::probe_to_send(&self.map, self.as_ref())
    }

    /// Copies some of its bytes, if those are in memory, to be sent: without touching them where
    /// [`residency::memory_is_short`].
    pub fn copy_in(&self, range: Range<usize>, into: &mut [u8]) -> Result<(), Cold> {
        residency::copy_to_send(&self.map, &self.as_ref()[range], into)
    }

    /// Touches every page, which waits until all are in memory.
    pub fn load(&self) {
        self.load_in(0..self.len());
    }

    /// Does this for a range of its bytes.
    pub fn load_in(&self, range: Range<usize>) {
        touch(&self.as_ref()[range]);
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl AsRef<[u8]> for SegmentSlice {
    fn as_ref(&self) -> &[u8] {
        self.map
            .bytes(self.offset..self.offset + u64::from(self.len))
            .expect("a slice is made of committed bytes only")
    }
}

impl std::fmt::Debug for SegmentSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SegmentSlice({} bytes at {})", self.len, self.offset)
    }
}

/// Waits until all pages of mapped bytes are in memory.
pub(super) fn touch(bytes: &[u8]) {
    // The last byte may lie on a page that the steps leave out.
    let touched = bytes.iter().step_by(rustix::param::page_size()).chain(bytes.last());
    std::hint::black_box(touched.fold(0, |all, byte| all ^ byte));
}
