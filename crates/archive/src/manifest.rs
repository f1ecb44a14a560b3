//! The manifest: one small object that names all others.

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, OBJECT_BYTES_MAX, Signature};
use crate::error::ArchiveError;
use crate::links::Descent;
use crate::name::{Kind, ObjectName};
use crate::span::{SPAN_SEGMENTS, span_groups};

/// Version of the manifest that this release reads and writes.
pub const VERSION: u64 = 3;
/// Name of the manifest, below the prefix of the archive.
pub const MANIFEST_NAME: &str = "manifest.json";
/// Most bytes of a manifest.
pub const MANIFEST_BYTES_MAX: u64 = 256 << 20;
/// Most segments of an archive: a billion heights in ranges of 1,024.
pub const SEGMENTS_MAX: usize = 1 << 20;
/// Most objects of a deletion.
pub const DELETED_MAX: usize = 1 << 16;

const WHAT: &str = "manifest";

/// Chain of an archive, and the length of its ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// Chain id (EIP-155).
    pub chain_id: u64,
    /// Hash of the genesis block.
    pub genesis: Digest,
    /// Heights of a segment.
    pub range: u32,
}

/// Content of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the form.
    pub version: u64,
    /// Number of changes that led here; the first manifest has 1.
    pub sequence: u64,
    /// Chain of the links up to the manifest before this one, see [`Links::chain`](crate::Links::chain).
    pub before: Option<Digest>,
    /// Links up to the manifest before: the latest ones here, earlier ones in objects.
    pub descent: Descent,
    /// Chain id (EIP-155).
    pub chain_id: u64,
    /// Hash of the genesis block.
    pub genesis: Digest,
    /// Heights of a segment: a power of two up to 1,024.
    pub range: u32,
    /// The segments, ascending, without a gap.
    pub segments: Vec<SegmentEntry>,
    /// The spans, ascending, which cover the segments.
    pub spans: Vec<SpanEntry>,
    /// Height below which writers add no segment. Manifests of earlier writers lack this and the next two.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub from: u64,
    /// Result of the trial of the store; `None` for a directory, or before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// The last deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    /// Signature of the bytes of the manifest that has none.
    pub signature: Option<Signature>,
}

/// Bytes of a signature in quotation marks.
const SIGNATURE_TEXT_BYTES: usize = 2 + 128;
/// Bytes of a segment in the manifest, at most.
const SEGMENT_TEXT_BYTES: usize = 54 + 3 * 64 + 2 * 20;
/// Bytes of a span, at most.
const SPAN_TEXT_BYTES: usize = 140 + 4 * 64 + 5 * 20;
/// Bytes of a name, at most.
const NAME_TEXT_BYTES: usize = 160;
/// Bytes of all else, at most: up to 140 kB of links, and a trial.
const REST_TEXT_BYTES: usize = 160 << 10;

/// A segment in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentEntry {
    /// First height of the segment.
    pub first: u64,
    /// Bytes of the object.
    pub bytes: u64,
    /// Digest that names the object.
    pub digest: Digest,
    /// Hash of the last block.
    pub last: Digest,
    /// Parent hash of the first block.
    pub parent: Digest,
}

impl SegmentEntry {
    /// Checks the entry without its neighbors, in an archive with ranges of so many heights.
    fn check(&self, range: u64) -> Result<(), ArchiveError> {
        if !self.first.is_multiple_of(range) || self.first.checked_add(range - 1).is_none() {
            return Err(self.malformed("no whole range begins there"));
        }
        if self.bytes == 0 || self.bytes > OBJECT_BYTES_MAX {
            return Err(self.malformed("an impossible length"));
        }
        Ok(())
    }

    fn malformed(&self, why: &str) -> ArchiveError {
        ArchiveError::malformed(WHAT, format!("segment {}: {why}", self.first))
    }
}

/// A span in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpanEntry {
    /// First height of the span.
    pub first: u64,
    /// Number of segments.
    pub segments: u32,
    /// Bytes of the object.
    pub bytes: u64,
    /// Digest that names the object.
    pub digest: Digest,
    /// Page lists of the span and of its segments.
    pub pages: IndexEntry,
    /// Filter of its hashes.
    pub filter: IndexEntry,
    /// Terms of its logs. Archives of earlier writers have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<IndexEntry>,
}

impl SpanEntry {
    /// Checks the entry with the segments that it counts, in an archive with ranges of so many heights.
    fn check(&self, range: u32, held: &[SegmentEntry]) -> Result<(), ArchiveError> {
        let group = |segment: &SegmentEntry| span_groups(segment.first, range);
        match (held.first(), held.last()) {
            (Some(a), Some(z)) if a.first == self.first && group(a) == group(z) => {}
            _ => return Err(self.malformed("not the segments of a group")),
        }
        let is_possible = |bytes: u64| bytes > 0 && bytes <= OBJECT_BYTES_MAX;
        let lengths = [self.bytes, self.pages.bytes, self.filter.bytes].into_iter();
        let mut lengths = lengths.chain(self.terms.map(|terms| terms.bytes));
        if self.segments > SPAN_SEGMENTS || !lengths.all(is_possible) {
            return Err(self.malformed("an impossible length"));
        }
        Ok(())
    }

    fn malformed(&self, why: &str) -> ArchiveError {
        ArchiveError::malformed(WHAT, format!("span {}: {why}", self.first))
    }
}

/// Object of a span in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexEntry {
    /// Bytes of the object.
    pub bytes: u64,
    /// Digest that names the object.
    pub digest: Digest,
}

/// Result of a trial of the store: whether it keeps the conditions of a PUT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Scheme and host of the store, or `s3` for that of AWS.
    pub endpoint: String,
    /// Time in seconds since 1970.
    pub at: u64,
    /// True if it kept them. Otherwise one writer only may change the manifest.
    pub holds: bool,
}

/// Deletion of objects that no manifest names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deletion {
    /// Sequence of the manifest that began it.
    pub since: u64,
    /// Names of the objects, ascending; empty once they are deleted.
    pub objects: Vec<String>,
}

/// Version of any manifest.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Manifest {
    /// Returns a manifest without segments, and without a sequence.
    pub fn empty(chain: Chain) -> Self {
        let Chain { chain_id, genesis, range } = chain;
        let (segments, spans) = (Vec::new(), Vec::new());
        Self {
            version: VERSION,
            sequence: 0,
            before: None,
            descent: Descent::default(),
            chain_id,
            genesis,
            range,
            segments,
            spans,
            from: 0,
            trial: None,
            deletion: None,
            signature: None,
        }
    }

    /// Reads a manifest and checks its form.
    ///
    /// # Errors
    /// Bytes that no writer makes, or another version.
    pub fn read(bytes: &[u8]) -> Result<Self, ArchiveError> {
        let malformed = |error: serde_json::Error| ArchiveError::malformed(WHAT, error.to_string());
        if bytes.len() as u64 > MANIFEST_BYTES_MAX {
            return Err(ArchiveError::malformed(WHAT, "too long"));
        }
        let manifest: Self = match serde_json::from_slice(bytes) {
            Ok(manifest) => manifest,
            // One of another version has another form. One of the whole chain is parsed once if it has this one.
            Err(error) => {
                return Err(match serde_json::from_slice(bytes).map_err(malformed)? {
                    Versioned { version: VERSION } => malformed(error),
                    Versioned { version } => {
                        ArchiveError::Version { what: WHAT, version, read: VERSION }
                    }
                });
            }
        };
        manifest.check()?;
        Ok(manifest)
    }

    /// Returns the bytes of the object.
    ///
    /// # Errors
    /// A manifest that [`Self::read`] would refuse.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ArchiveError> {
        self.check()?;
        // At once: while a vector grows, its bytes are in memory twice.
        let mut bytes = Vec::with_capacity(self.bytes_at_most());
        serde_json::to_writer(&mut bytes, self)
            .map_err(|error| ArchiveError::malformed(WHAT, error.to_string()))?;
        Ok(bytes)
    }

    /// Returns the bytes that a signature signs: those of the manifest without one.
    ///
    /// # Errors
    /// A manifest that [`Self::read`] would refuse.
    pub fn unsigned_bytes(&self) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = self.to_bytes()?;
        if self.signature.is_some() {
            // The last member, and the brace behind it. A copy of the manifest would take 11 MB for mainnet.
            bytes.truncate(bytes.len() - SIGNATURE_TEXT_BYTES - 1);
            bytes.extend_from_slice(b"null}");
        }
        Ok(bytes)
    }

    /// Bytes that the object has, or some more.
    fn bytes_at_most(&self) -> usize {
        let deleted = self.deletion.as_ref().map_or(0, |deletion| deletion.objects.len());
        REST_TEXT_BYTES
            + self.segments.len() * SEGMENT_TEXT_BYTES
            + self.spans.len() * SPAN_TEXT_BYTES
            + deleted * NAME_TEXT_BYTES
    }

    /// Returns the chain, and the length of the ranges.
    pub fn chain(&self) -> Chain {
        Chain { chain_id: self.chain_id, genesis: self.genesis, range: self.range }
    }

    /// Returns the first and the last height; `None` without segments.
    pub fn heights(&self) -> Option<(u64, u64)> {
        let last = self.segments.last()?.first.checked_add(u64::from(self.range) - 1)?;
        Some((self.segments.first()?.first, last))
    }

    /// Returns the segment with a height.
    pub fn segment_of(&self, height: u64) -> Option<&SegmentEntry> {
        let after = self.segments.partition_point(|segment| segment.first <= height);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        (height - segment.first < u64::from(self.range)).then_some(segment)
    }

    /// Returns the name of a segment's object.
    pub fn segment_name(&self, segment: &SegmentEntry) -> ObjectName {
        let SegmentEntry { first, digest, .. } = *segment;
        ObjectName { chain_id: self.chain_id, kind: Kind::Segment, first, digest }
    }

    /// Returns the name of a span's object.
    pub fn span_name(&self, span: &SpanEntry) -> ObjectName {
        let SpanEntry { first, digest, .. } = *span;
        ObjectName { chain_id: self.chain_id, kind: Kind::Span, first, digest }
    }

    /// Returns the name of the object with the page lists of a span.
    pub fn pages_name(&self, span: &SpanEntry) -> ObjectName {
        let SpanEntry { first, pages: IndexEntry { digest, .. }, .. } = *span;
        ObjectName { chain_id: self.chain_id, kind: Kind::Pages, first, digest }
    }

    /// Returns the name of the object with the filter of a span.
    pub fn filter_name(&self, span: &SpanEntry) -> ObjectName {
        let SpanEntry { first, filter: IndexEntry { digest, .. }, .. } = *span;
        ObjectName { chain_id: self.chain_id, kind: Kind::Filter, first, digest }
    }

    /// Returns the name of the object with the terms of a span, if it has one.
    pub fn terms_name(&self, span: &SpanEntry) -> Option<ObjectName> {
        let SpanEntry { first, terms, .. } = *span;
        let IndexEntry { digest, .. } = terms?;
        Some(ObjectName { chain_id: self.chain_id, kind: Kind::Terms, first, digest })
    }

    /// Returns the span with a segment.
    pub fn span_of(&self, segment: &SegmentEntry) -> Option<&SpanEntry> {
        let after = self.spans.partition_point(|span| span.first <= segment.first);
        self.spans.get(after.checked_sub(1)?)
    }

    fn check(&self) -> Result<(), ArchiveError> {
        let wrong = |why: String| Err(ArchiveError::malformed(WHAT, why));
        if self.version != VERSION {
            return Err(ArchiveError::Version { what: WHAT, version: self.version, read: VERSION });
        }
        if self.sequence == 0 || (self.sequence == 1) != self.before.is_none() {
            return wrong("a sequence without a manifest before".to_owned());
        }
        if !self.range.is_power_of_two() || self.range > 1024 {
            return wrong(format!("ranges of {} heights", self.range));
        }
        if self.segments.len() > SEGMENTS_MAX {
            return wrong(format!("over {SEGMENTS_MAX} segments"));
        }
        self.check_descent()?;
        self.check_segments()?;
        self.check_spans()?;
        self.check_deletion()
    }

    fn check_segments(&self) -> Result<(), ArchiveError> {
        let range = u64::from(self.range);
        for segment in &self.segments {
            segment.check(range)?;
        }
        for (below, above) in self.segments.iter().zip(self.segments.iter().skip(1)) {
            // Replicas take segments one behind the other: a gap would end them there.
            if below.first.checked_add(range) != Some(above.first) {
                return Err(above.malformed("not behind the one before"));
            }
            if above.parent != below.last {
                return Err(above.malformed("its parent is another block"));
            }
        }
        Ok(())
    }

    fn check_spans(&self) -> Result<(), ArchiveError> {
        let mut left = &self.segments[..];
        for span in &self.spans {
            let Some((held, after)) = left.split_at_checked(span.segments as usize) else {
                return Err(span.malformed("more segments than there are"));
            };
            span.check(self.range, held)?;
            left = after;
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(ArchiveError::malformed(WHAT, "segments without a span"))
        }
    }
}

mod descent;
mod objects;
#[cfg(test)]
mod tests;
