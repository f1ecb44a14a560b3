//! Slices that a body consists of.

use std::ops::Range;

use bytes::Bytes;
use neve_record::coding::Coding;
use neve_record::precompressed::Precompressed;
use neve_store::SegmentSlice;

/// Shorter slices of a long body are copied.
pub(super) const COPIED_BELOW: usize = 1024;

/// A slice of a body.
#[derive(Debug)]
pub(crate) enum BodySlice {
    /// Written for this reply: where in its text.
    Text(Range<usize>),
    /// Bytes that are not this reply's alone.
    Shared(Bytes),
    /// Bytes of a mapped segment, which stays mapped until they are sent.
    Stored(SegmentSlice),
    /// Bytes of a mapped segment that are stored in a content coding too.
    CodedPart(Box<CodedPart>),
}

impl BodySlice {
    /// The stored bytes, if it is such.
    pub(super) fn stored(&self) -> Option<&SegmentSlice> {
        match self {
            Self::Stored(slice) => Some(slice),
            Self::CodedPart(part) => Some(&part.plain),
            Self::Text(_) | Self::Shared(_) => None,
        }
    }

    /// True if frames of a long body have a copy of it.
    pub(super) fn is_copied(&self) -> bool {
        self.stored().is_none_or(|slice| slice.len() < COPIED_BELOW)
    }

    /// Splits the first `len` bytes off, if it is a longer slice of text.
    pub(super) fn split_begin(&mut self, len: usize) -> Option<Self> {
        match self {
            Self::Text(range) if range.len() > len => {
                let begin = range.start..range.start + len;
                range.start = begin.end;
                Some(Self::Text(begin))
            }
            Self::Shared(bytes) if bytes.len() > len => Some(Self::Shared(bytes.split_to(len))),
            _ => None,
        }
    }

    pub(super) fn bytes<'p>(&'p self, text: &'p [u8]) -> &'p [u8] {
        match self {
            Self::Text(range) => &text[range.clone()],
            Self::Shared(bytes) => bytes,
            Self::Stored(slice) => slice.as_ref(),
            Self::CodedPart(part) => part.plain.as_ref(),
        }
    }
}

/// On the heap: a body is handed on more than once on its way out, and so it is short
/// (docs/decisions/0025).
pub(super) type BodySlices = Vec<BodySlice>;

/// A stored part that can also go out compressed.
#[derive(Debug)]
pub(crate) struct CodedPart {
    pub(crate) plain: SegmentSlice,
    pub(crate) coding: Coding,
    pub(crate) blocks: SegmentSlice,
    pub(crate) crc: u32,
}

impl CodedPart {
    pub(crate) fn new(plain: SegmentSlice, coding: Coding, packed: Precompressed) -> Self {
        Self { plain, coding, blocks: packed.blocks, crc: packed.crc }
    }
}
