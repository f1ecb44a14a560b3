//! Checking an archive: each object against its name, its form, the manifest and its span; and putting
//! absent or changed objects again.

use neve_archive::{
    Digest, Key, Manifest, ObjectName, SegmentEntry, Span, SpanEntry, object_digest,
};
use neve_record::packed::Codec;

use super::error::Failed;
use super::local::{Opened, PackedOnDisk, chain_of, unless_evicted};
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
    /// True if the object was put again.
    pub(crate) repaired: bool,
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
    /// Faults that are left.
    pub(crate) findings: u64,
    /// Objects that were put again.
    pub(crate) repaired: u64,
    /// First and last height.
    pub(crate) heights: Option<(u64, u64)>,
}

/// Reads all of an archive. Each fault goes to `found`. With packed files of `local`, an absent or changed
/// segment is put again if one of them has its bytes, and a span if all its segments are whole.
pub(crate) async fn verify(
    archive: &ArchiveStore,
    local: Option<&[PackedOnDisk]>,
    mut found: impl FnMut(Finding),
) -> Result<Verified, Failed> {
    let held = archive.manifest().await?.ok_or(Failed::NoManifest)?;
    let manifest = &held.manifest;
    let mut done = Verified { heights: manifest.heights(), ..Verified::default() };
    let mut note = |done: &mut Verified, object: ObjectName, (kind, detail): Fault, repaired| {
        *(if repaired { &mut done.repaired } else { &mut done.findings }) += 1;
        found(Finding { object: object.to_string(), kind, detail, repaired });
    };
    let mut segments = manifest.segments.iter();
    for span in &manifest.spans {
        let mut keys = Some(Vec::new());
        for segment in segments.by_ref().take(span.segments as usize) {
            let mut more = check_segment(archive, manifest, segment).await?;
            if let Err(fault) = more {
                let name = manifest.segment_name(segment);
                let bytes = bytes_of(&name, local.unwrap_or_default())?;
                let repaired = replaced(archive, &name, bytes).await?;
                note(&mut done, name, fault, repaired);
                more = check_segment(archive, manifest, segment).await?;
            }
            keys = keys.zip(more.ok()).map(|(mut keys, more)| {
                keys.extend(more);
                keys
            });
            done.segments += 1;
            done.bytes += segment.bytes;
        }
        let made = keys.map(|keys| made(manifest, span, &keys)).transpose()?;
        if let Err(fault) = check_span(archive, manifest, span, made.as_deref()).await? {
            let name = manifest.span_name(span);
            let bytes = made.filter(|made| local.is_some() && object_digest(made) == name.digest);
            let repaired = replaced(archive, &name, bytes).await?;
            note(&mut done, name, fault, repaired);
        }
        done.spans += 1;
        done.bytes += span.bytes;
    }
    Ok(done)
}

/// Bytes of the packed file with the digest of an object, if there is one.
fn bytes_of(name: &ObjectName, local: &[PackedOnDisk]) -> Result<Option<Vec<u8>>, Failed> {
    let Some(file) = local.iter().find(|file| file.header.first == name.first) else {
        return Ok(None);
    };
    let bytes = unless_evicted(file.read())?;
    Ok(bytes.filter(|bytes| object_digest(bytes) == name.digest))
}

/// Puts an object again; false if there are no bytes for it.
async fn replaced(
    archive: &ArchiveStore,
    name: &ObjectName,
    bytes: Option<Vec<u8>>,
) -> Result<bool, Failed> {
    match bytes {
        Some(bytes) => archive.put(name, bytes).await,
        None => Ok(false),
    }
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

/// Makes the span of segments with these hashes.
fn made(manifest: &Manifest, span: &SpanEntry, keys: &[Key]) -> Result<Vec<u8>, Failed> {
    let empty = Span::empty(span.first, manifest.range, span.segments)?;
    Ok(empty.with(None, keys)?.to_bytes())
}

/// Compares a span with the one that its segments make, if they are whole.
async fn check_span(
    archive: &ArchiveStore,
    manifest: &Manifest,
    span: &SpanEntry,
    made: Option<&[u8]>,
) -> Result<Result<(), Fault>, Failed> {
    let bytes = match archive.get(&manifest.span_name(span), span.bytes).await {
        Ok(bytes) => bytes,
        Err(failed) => return fault(failed),
    };
    if let Err(error) = Span::read(&bytes) {
        return Ok(Err(("span", error.to_string())));
    }
    let same = made.is_none_or(|made| made == bytes);
    let other = || ("span", "it has other hashes than its segments".to_owned());
    Ok(if same { Ok(()) } else { Err(other()) })
}
