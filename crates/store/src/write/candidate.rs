//! Segment files that opening a directory may serve.

use crate::disk::segment_name;
use crate::format::{Seal, SegmentHeader};
use crate::segment::Segment;

/// A segment file whose header was believed.
pub(super) enum Candidate {
    Sealed(SegmentHeader, Seal),
    Active(SegmentHeader),
    Packed(Box<Segment>),
}

impl Candidate {
    pub(super) fn header(&self) -> &SegmentHeader {
        match self {
            Self::Sealed(header, _) | Self::Active(header) => header,
            Self::Packed(segment) => &segment.header,
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Packed(segment) => segment.name(),
            Self::Sealed(..) | Self::Active(_) => segment_name(self.header().base_height),
        }
    }

    /// The height after its last record; for an unsealed one its base.
    pub(super) fn end_height(&self) -> u64 {
        match self {
            Self::Sealed(header, seal) => header.base_height + u64::from(seal.count),
            Self::Active(header) => header.base_height,
            Self::Packed(segment) => segment.end_height(),
        }
    }
}
