//! Checking an archive: each object against its name, its form, the manifest and its span.

use neve_archive::{Digest, Key, Manifest, SegmentEntry, Span, SpanEntry};
use neve_record::packed::Codec;

use super::error::Failed;
use super::local::{Opened, chain_of};
use super::store::ArchiveStore;

/// A fault of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Name of the object.
    pub(crate) object: String,
    /// Kind of the fault.
    pub(crate) kind: &'static str,
    /// The fault in words.
    pub(crate) detail: String,
}

/// Totals of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verified {
    /// Segments that were read.
    pub(crate) segments: u64,
    /// Spans that were read.
    pub(crate) spans: u64,
    /// Bytes of both.
    pub(crate) bytes: u64,
    /// Faults.
    pub(crate) findings: u64,
    /// First and last height.
    pub(crate) heights: Option<(u64, u64)>,
}

/// Reads all of an archive. Each fault goes to `found`.
pub(crate) async fn verify(
    archive: &ArchiveStore,
    mut found: impl FnMut(Finding),
) -> Result<Verified, Failed> {
    let held = archive.manifest().await?.ok_or(Failed::NoManifest)?;
    let manifest = &held.manifest;
    let mut done = Verified { heights: manifest.heights(), ..Verified::default() };
    let mut segments = manifest.segments.iter();
    for span in &manifest.spans {
        let mut keys = Some(Vec::new());
        for segment in segments.by_ref().take(span.segments as usize) {
            let name = manifest.segment_name(segment).to_string();
            match check_segment(archive, manifest, segment).await? {
                Ok(more) => keys = keys.map(|keys| [keys, more].concat()),
                Err((kind, detail)) => {
                    keys = None;
                    done.findings += 1;
                    found(Finding { object: name, kind, detail });
                }
            }
            done.segments += 1;
            done.bytes += segment.bytes;
        }
        if let Err((kind, detail)) = check_span(archive, manifest, span, keys).await? {
            done.findings += 1;
            found(Finding { object: manifest.span_name(span).to_string(), kind, detail });
        }
        done.spans += 1;
        done.bytes += span.bytes;
    }
    Ok(done)
}

type Fault = (&'static str, String);

/// A fault of an object, or a store that does not answer.
fn fault<T>(failed: Failed) -> Result<Result<T, Fault>, Failed> {
    match &failed {
        Failed::Absent(_) => Ok(Err(("absent", failed.to_string()))),
        Failed::Changed(_) => Ok(Err(("digest", failed.to_string()))),
        _ => Err(failed),
    }
}

async fn check_segment(
    archive: &ArchiveStore,
    manifest: &Manifest,
    segment: &SegmentEntry,
) -> Result<Result<Vec<Key>, Fault>, Failed> {
    let bytes = match archive.get(&manifest.segment_name(segment), segment.bytes).await {
        Ok(bytes) => bytes,
        Err(failed) => return fault(failed),
    };
    Ok(read_segment(manifest, segment, bytes.into()).map_err(|why| ("segment", why)))
}

fn read_segment(
    manifest: &Manifest,
    segment: &SegmentEntry,
    bytes: Vec<u8>,
) -> Result<Vec<Key>, String> {
    let opened = Opened::of(&Codec::default(), bytes)?;
    let header = opened.header();
    if chain_of(&header) != manifest.chain() {
        return Err("it is of another chain, or has another length".to_owned());
    }
    let ends = (header.first, Digest(header.parent.0), opened.last()?);
    if ends != (segment.first, segment.parent, segment.last) {
        return Err("the manifest names other blocks".to_owned());
    }
    opened.keys()
}

/// Compares a span with the one that its segments make.
async fn check_span(
    archive: &ArchiveStore,
    manifest: &Manifest,
    span: &SpanEntry,
    keys: Option<Vec<Key>>,
) -> Result<Result<(), Fault>, Failed> {
    let bytes = match archive.get(&manifest.span_name(span), span.bytes).await {
        Ok(bytes) => bytes,
        Err(failed) => return fault(failed),
    };
    if let Err(error) = Span::read(&bytes) {
        return Ok(Err(("span", error.to_string())));
    }
    let Some(keys) = keys else { return Ok(Ok(())) }; // a segment is at fault already
    let made = Span::empty(span.first, manifest.range, span.segments)?.with(None, &keys)?;
    let same = made.to_bytes() == bytes;
    let other = || ("span", "it has other hashes than its segments".to_owned());
    Ok(if same { Ok(()) } else { Err(other()) })
}
