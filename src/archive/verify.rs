//! Checking an archive: each object against its name, its form, the manifest and its span; and putting
//! absent or changed objects again.

use std::collections::HashSet;

use neve_archive::{
    Digest, Key, MANIFEST_NAME, Manifest, ObjectName, SegmentEntry, SegmentPages, SpanEntry,
    object_digest,
};
use neve_record::packed::Codec;

use super::error::Failed;
use super::local::{OpenedFile, PackedOnDisk, chain_of, unless_evicted};
use super::store::ArchiveStore;

mod indexes;
mod links;
mod proving;

use indexes::{Index, check_index, made};
use links::check_links;
pub(super) use links::descends;
pub(super) use proving::UNPROVEN;
pub(crate) use proving::{NeighborProof, Proving};

/// Kind of the fault of an object that is not there.
const ABSENT: &str = "absent";

/// A fault of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArchiveFinding {
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
    /// Objects that are absent, and that the manifest names no more: others changed it meanwhile.
    pub(crate) dropped: u64,
    /// First and last height.
    pub(crate) heights: Option<(u64, u64)>,
    /// True if the blocks were to be proven.
    pub(crate) is_proof: bool,
    /// First and last height of the blocks that are proven with their receipts.
    pub(crate) proven: Option<(u64, u64)>,
    /// Digest of the manifest.
    pub(crate) manifest: Option<Digest>,
    /// Sequence of the manifest.
    pub(crate) sequence: u64,
}

/// A check of an archive, or of its upper part.
pub(crate) struct ArchiveCheck<'a> {
    /// Packed files. If one of them has the bytes of an absent or changed segment, the segment is put again, and a span if
    /// all its segments are whole.
    pub(crate) local: Option<&'a [PackedOnDisk]>,
    /// Proof of all blocks that are read, if they are to be proven.
    pub(crate) proving: Option<Proving>,
    /// Spans that end below this height are not read.
    pub(crate) from: u64,
}

/// Event of a check.
pub(crate) enum CheckEvent<'a> {
    /// A fault was found.
    Found(ArchiveFinding),
    /// A span was read, and others follow. The totals so far.
    Read(&'a Verified),
}

/// Reads all of an archive.
#[cfg(test)]
pub(crate) async fn verify(
    archive: &ArchiveStore,
    local: Option<&[PackedOnDisk]>,
    proving: Option<Proving>,
    mut found: impl FnMut(ArchiveFinding),
) -> Result<Verified, Failed> {
    let check = ArchiveCheck { local, proving, from: 0 };
    let tell = |event: CheckEvent<'_>| {
        if let CheckEvent::Found(fault) = event {
            found(fault);
        }
    };
    verify_from(archive, check, tell).await
}

/// Reads an archive from a height on.
pub(crate) async fn verify_from(
    archive: &ArchiveStore,
    check: ArchiveCheck<'_>,
    tell: impl FnMut(CheckEvent<'_>),
) -> Result<Verified, Failed> {
    let held = archive.manifest().await?.ok_or(Failed::NoManifest)?;
    let ArchiveCheck { local, proving, from } = check;
    let manifest = &held.manifest;
    let heights = manifest.heights();
    if from > 0 && heights.is_none_or(|(_, last)| from > last) {
        return Err(Failed::AboveAll { height: from, heights });
    }
    let (manifest_digest, sequence) = (Some(held.digest), manifest.sequence);
    let done = Verified { manifest: manifest_digest, sequence, ..Verified::default() };
    let latest = Latest { tag: held.tag(), named: None };
    let mut checker = Checker { archive, manifest, local, proving, latest, done, tell };
    checker.spans(from).await?;
    for (object, fault) in check_links(archive, manifest).await? {
        checker.note(object, fault, false);
    }
    Ok(checker.ended())
}

/// A running check.
struct Checker<'a, T> {
    archive: &'a ArchiveStore,
    manifest: &'a Manifest,
    local: Option<&'a [PackedOnDisk]>,
    proving: Option<Proving>,
    latest: Latest,
    done: Verified,
    tell: T,
}

impl<T: FnMut(CheckEvent<'_>)> Checker<'_, T> {
    /// Checks the spans that end above a height, with their segments.
    async fn spans(&mut self, from: u64) -> Result<(), Failed> {
        let manifest = self.manifest;
        let mut rest = &manifest.segments[..];
        for span in &manifest.spans {
            let (segments, behind) = rest.split_at(rest.len().min(span.segments as usize));
            rest = behind;
            let end = span.first + u64::from(span.segments) * u64::from(manifest.range);
            if end > from {
                self.span(span, segments, end).await?;
            }
        }
        Ok(())
    }

    /// Checks a span that ends before height `end`, with its segments.
    async fn span(
        &mut self,
        span: &SpanEntry,
        segments: &[SegmentEntry],
        end: u64,
    ) -> Result<(), Failed> {
        if self.done.spans > 0 {
            (self.tell)(CheckEvent::Read(&self.done));
        }
        let content = self.segments(segments).await?;
        self.indexes(span, content).await?;
        self.done.spans += 1;
        let terms = span.terms.map_or(0, |terms| terms.bytes);
        self.done.bytes += span.bytes + span.pages.bytes + span.filter.bytes + terms;
        let first = self.done.heights.map_or(span.first, |(first, _)| first);
        self.done.heights = Some((first, end.saturating_sub(1)));
        Ok(())
    }

    /// Checks the segments of a span. Returns what they have, if they are whole.
    async fn segments(&mut self, segments: &[SegmentEntry]) -> Result<Option<Content>, Failed> {
        let (archive, manifest) = (self.archive, self.manifest);
        let mut content = Some(Content::default());
        for segment in segments {
            let more = match check_segment(archive, manifest, segment, &mut self.proving).await? {
                Ok(more) => Some(more),
                Err(fault) => {
                    let name = manifest.segment_name(segment);
                    if self.latest.dropped(archive, &name, &fault).await? {
                        self.done.dropped += 1;
                        content = None;
                        continue;
                    }
                    self.repaired(segment, fault).await?
                }
            };
            content = content.zip(more).map(|(content, more)| content.with(more));
            self.done.segments += 1;
            self.done.bytes += segment.bytes;
        }
        Ok(content)
    }

    /// Notes the fault of a segment, which is put again if a packed file has its bytes. Returns what it has then, if it
    /// is whole.
    async fn repaired(
        &mut self,
        segment: &SegmentEntry,
        fault: Fault,
    ) -> Result<Option<Content>, Failed> {
        let (archive, manifest) = (self.archive, self.manifest);
        let name = manifest.segment_name(segment);
        let bytes = bytes_of(&name, self.local.unwrap_or_default())?;
        let repaired = replaced(archive, &name, bytes).await?;
        self.note(name.to_string(), fault, repaired);
        if !repaired {
            return Ok(None);
        }
        let again = check_segment(archive, manifest, segment, &mut self.proving).await?;
        // Bytes of the right digest may be false.
        if let Err(left) = &again {
            self.note(name.to_string(), left.clone(), false);
        }
        Ok(again.ok())
    }

    /// Checks the objects that are made of the segments of a span.
    async fn indexes(&mut self, span: &SpanEntry, content: Option<Content>) -> Result<(), Failed> {
        let (archive, manifest) = (self.archive, self.manifest);
        let made = content.map(|content| made(manifest, span, content)).transpose()?;
        let kinds = [Index::Span, Index::Pages, Index::Filter, Index::Terms];
        for (index, kind) in kinds.into_iter().enumerate() {
            let Some(name) = kind.name(manifest, span) else { continue };
            let made = made.as_ref().and_then(|made| made.get(index));
            let Err(fault) = check_index(archive, &name, span, kind, made).await? else {
                continue;
            };
            if self.latest.dropped(archive, &name, &fault).await? {
                self.done.dropped += 1;
                continue;
            }
            // Without local files this is a check alone, which puts nothing.
            let is_same = |made: &&Vec<u8>| object_digest(made) == name.digest;
            let bytes = made.filter(|_| self.local.is_some()).filter(is_same);
            let repaired = replaced(archive, &name, bytes.cloned()).await?;
            self.note(name.to_string(), fault, repaired);
        }
        Ok(())
    }

    fn note(&mut self, object: String, (kind, detail): Fault, repaired: bool) {
        let done = &mut self.done;
        *(if repaired { &mut done.repaired } else { &mut done.findings }) += 1;
        (self.tell)(CheckEvent::Found(ArchiveFinding { object, kind, detail, repaired }));
    }

    /// Says which heights are proven, and returns the totals.
    fn ended(mut self) -> Verified {
        self.done.proven = self.proving.as_ref().and_then(Proving::proven);
        self.done.is_proof = self.proving.is_some();
        // A fault that was found says more.
        let first = self.done.heights.map(|(first, _)| first);
        let unproven = self.proving.as_ref().and_then(|proving| proving.unproven(first));
        if let Some(fault) = unproven.filter(|_| self.done.findings == 0) {
            self.note(MANIFEST_NAME.to_owned(), fault, false);
        }
        self.done
    }
}

/// The manifest that is there now. Beside a check others push, drop heights and delete objects.
struct Latest {
    tag: Option<String>,
    /// Objects that it names; `None` as long as it is the one that is checked.
    named: Option<HashSet<ObjectName>>,
}

impl Latest {
    /// True if an object is absent because the manifest names it no more.
    async fn dropped(
        &mut self,
        archive: &ArchiveStore,
        name: &ObjectName,
        (kind, _): &Fault,
    ) -> Result<bool, Failed> {
        // gc deletes whole objects: one with other bytes is a fault.
        if *kind != ABSENT {
            return Ok(false);
        }
        if let Some(newer) = archive.newer_manifest(self.tag.clone()).await? {
            self.tag = newer.tag();
            self.named = Some(newer.manifest.objects().map(|(name, _)| name).collect());
        }
        Ok(self.named.as_ref().is_some_and(|named| !named.contains(name)))
    }
}

/// Hashes and pages of neighboring segments.
#[derive(Default)]
struct Content {
    keys: Vec<Key>,
    pages: Vec<SegmentPages>,
    /// First heights of segments, and the terms of their logs.
    terms: Vec<(u64, u64)>,
}

impl Content {
    fn with(mut self, more: Self) -> Self {
        self.keys.extend(more.keys);
        self.pages.extend(more.pages);
        self.terms.extend(more.terms);
        self
    }
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

/// Kind of a fault, and the fault in words.
pub(super) type Fault = (&'static str, String);

/// A fault of an object, or a store that does not answer.
fn fault<T>(failed: Failed) -> Result<Result<T, Fault>, Failed> {
    match &failed {
        Failed::Absent(_) => Ok(Err((ABSENT, failed.to_string()))),
        Failed::Changed(_) => Ok(Err(("digest", failed.to_string()))),
        _ => Err(failed),
    }
}

async fn check_segment(
    archive: &ArchiveStore,
    manifest: &Manifest,
    entry: &SegmentEntry,
    proving: &mut Option<Proving>,
) -> Result<Result<Content, Fault>, Failed> {
    let bytes = match archive.get(&manifest.segment_name(entry), entry.bytes).await {
        Ok(bytes) => bytes,
        Err(failed) => return fault(failed),
    };
    let segment = |why| ("segment", why);
    let opened = match read_segment(manifest, entry, bytes.into()) {
        Ok(opened) => opened,
        Err(why) => return Ok(Err(segment(why))),
    };
    if let Some(Err(fault)) = proving.as_mut().map(|proving| proving.segment(&opened)) {
        return Ok(Err(fault));
    }
    Ok(content_of(opened).map_err(segment))
}

/// Opens a segment, and compares its blocks with those that the manifest names.
pub(super) fn read_segment(
    manifest: &Manifest,
    segment: &SegmentEntry,
    bytes: Vec<u8>,
) -> Result<OpenedFile, String> {
    let opened = OpenedFile::of(&Codec::default(), bytes)?;
    let header = opened.header();
    if chain_of(&header) != manifest.chain() {
        return Err("it is of another chain, or has another length".to_owned());
    }
    let ends = (header.first, Digest(header.parent.0), opened.last()?);
    if ends != (segment.first, segment.parent, segment.last) {
        return Err("the manifest names other blocks".to_owned());
    }
    Ok(opened)
}

fn content_of(opened: OpenedFile) -> Result<Content, String> {
    let (first, keys) = (opened.header().first, opened.keys()?);
    let terms = opened.terms()?.into_iter().map(|term| (first, term)).collect();
    Ok(Content { keys, pages: vec![opened.pages], terms })
}
