//! Segment files that opening a directory may serve.

use std::path::Path;

use crate::disk::segment_name;
use crate::error::Error;
use crate::format::{Seal, SegmentHeader};
use crate::segment::{OpenedSegment, Segment, inspect};

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

    /// True if sealed segments, of which `bases` names the first heights, hold all heights of a packed file: power
    /// went before one or the other was removed. A repair may have written the segments because the file is damaged.
    pub(super) fn is_in_segments(&self, dir: &Path, bases: &[u64]) -> Result<bool, Error> {
        let Self::Packed(packed) = self else { return Ok(false) };
        let (mut at, mut last) = (packed.base(), None);
        while at < packed.end_height() && bases.binary_search(&at).is_ok() {
            match inspect(&dir.join(segment_name(at)), at)? {
                OpenedSegment::Sealed(_, seal) if seal.count > 0 => {
                    at += u64::from(seal.count);
                    last = Some((at - 1, seal.last_hash));
                }
                _ => return Ok(false),
            }
        }
        Ok(at == packed.end_height() && last.is_some() && last == packed.tip())
    }
}
