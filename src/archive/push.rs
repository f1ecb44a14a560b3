//! Pushing packed files of a data directory: each object once, then the manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use neve_archive::{
    Digest, HashFilter, IndexEntry, Key, Kind, Manifest, ObjectName, PageLists, SegmentEntry,
    SegmentPages, Span, SpanEntry, object_digest, span_groups,
};
use neve_record::packed::Codec;

use super::error::Failed;
use super::local::{Opened, PackedOnDisk, chain_of, packed_files, unless_evicted};
use super::signature::SigningKey;
use super::store::{ArchiveStore, Held};

/// Attempts at a change of the manifest.
const ATTEMPTS_MAX: u32 = 100;

/// Result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pushed {
    /// Segments that were put.
    pub(crate) segments: u64,
    /// Bytes of these.
    pub(crate) bytes: u64,
    /// Segments that were there.
    pub(crate) present: u64,
    /// Packed files that are left for later: heights between them and the others are not packed yet.
    pub(crate) apart: u64,
    /// Packed files that the server evicted before they were read.
    pub(crate) evicted: u64,
    /// First and last height of the archive.
    pub(crate) heights: Option<(u64, u64)>,
    /// Sequence of the manifest.
    pub(crate) sequence: u64,
}

/// Segments of one group of heights, and their hashes.
struct Group {
    number: u64,
    segments: Vec<SegmentEntry>,
    /// Pages of these.
    pages: Vec<SegmentPages>,
    keys: Vec<Key>,
}

/// Pushes the packed files of `dir`, and signs the manifest if there is a key. `progress` is called behind each change of the manifest.
pub(crate) async fn push(
    archive: &ArchiveStore,
    dir: &Path,
    signer: Option<&SigningKey>,
    mut progress: impl FnMut(&Pushed),
) -> Result<Pushed, Failed> {
    let files = packed_files(dir)?;
    let first = files.first().ok_or_else(|| Failed::NothingPacked(dir.to_owned()))?;
    let chain = chain_of(&first.header);
    if let Some(other) = files.iter().find(|file| chain_of(&file.header) != chain) {
        return Err(Failed::OtherChain(other.path.clone()));
    }
    let held = archive.manifest().await?;
    if held.as_ref().is_some_and(|held| held.manifest.chain() != chain) {
        return Err(Failed::OtherChain(dir.to_owned()));
    }
    let mut manifest = held.map_or_else(|| Manifest::empty(chain), |held| held.manifest);
    let mut done =
        Pushed { heights: manifest.heights(), sequence: manifest.sequence, ..Pushed::default() };
    let (files, apart) = joining(files, &manifest)?;
    done.apart = apart;
    for files in in_order(files, &manifest) {
        let missing = missing(files, &manifest, &mut done)?;
        if missing.is_empty() {
            continue;
        }
        let firsts = missing.iter().map(|file| file.header.first);
        unbroken(&manifest, firsts)?; // before anything is put that no manifest names
        let group = put_segments(archive, &missing, &mut done).await?;
        if group.segments.is_empty() {
            continue;
        }
        manifest = add(archive, &manifest, &group, signer).await?;
        (done.heights, done.sequence) = (manifest.heights(), manifest.sequence);
        progress(&done);
    }
    Ok(done)
}

/// The unbroken runs of files that meet the archive, or the newest run if that is empty, and the number of
/// the other files. neve packs the newest ranges first, so that a store may have several runs.
fn joining(
    files: Vec<PackedOnDisk>,
    manifest: &Manifest,
) -> Result<(Vec<PackedOnDisk>, u64), Failed> {
    let all = files.len();
    let mut runs: Vec<Vec<PackedOnDisk>> = Vec::new();
    for file in files {
        match runs.last_mut() {
            Some(run) if end_of(run) == file.header.first => run.push(file),
            _ => runs.push(vec![file]),
        }
    }
    let newest = runs.last().map_or((0, 0), |run| (run[0].header.first, end_of(run)));
    let (first, end) =
        manifest.heights().map_or(newest, |(first, last)| (first, last.saturating_add(1)));
    runs.retain(|run| run[0].header.first <= end && end_of(run) >= first);
    if runs.is_empty() {
        let above = Failed::Gap { first: end, last: newest.0.saturating_sub(1) };
        let below = Failed::Gap { first: newest.1, last: first.saturating_sub(1) };
        return Err(if newest.0 > end { above } else { below });
    }
    let joining: Vec<PackedOnDisk> = runs.into_iter().flatten().collect();
    let apart = (all - joining.len()) as u64;
    Ok((joining, apart))
}

/// Height after a run of files.
fn end_of(run: &[PackedOnDisk]) -> u64 {
    run.last().map_or(0, |file| file.header.end())
}

/// The files by groups, in the order in which they join the archive: upward, then downward.
fn in_order(files: Vec<PackedOnDisk>, manifest: &Manifest) -> Vec<Vec<PackedOnDisk>> {
    let mut groups: BTreeMap<u64, Vec<PackedOnDisk>> = BTreeMap::new();
    for file in files {
        groups.entry(span_groups(file.header.first, manifest.range)).or_default().push(file);
    }
    let Some((first, _)) = manifest.heights() else { return groups.into_values().collect() };
    let above = groups.split_off(&span_groups(first, manifest.range));
    above.into_values().chain(groups.into_values().rev()).collect()
}

/// The files that the archive lacks. A file that it has must have the same parent.
fn missing(
    files: Vec<PackedOnDisk>,
    manifest: &Manifest,
    done: &mut Pushed,
) -> Result<Vec<PackedOnDisk>, Failed> {
    let mut missing = Vec::new();
    for file in files {
        match manifest.segment_of(file.header.first) {
            None => missing.push(file),
            Some(there) if there.parent == Digest(file.header.parent.0) => done.present += 1,
            Some(there) => return Err(Failed::OtherBlocks(there.first)),
        }
    }
    Ok(missing)
}

async fn put_segments(
    archive: &ArchiveStore,
    files: &[PackedOnDisk],
    done: &mut Pushed,
) -> Result<Group, Failed> {
    let codec = Codec::default();
    let (segments, pages, keys) = (Vec::new(), Vec::new(), Vec::new());
    let mut group = Group { number: 0, segments, pages, keys };
    for file in files {
        let Some(bytes) = unless_evicted(file.read())? else {
            done.evicted += 1;
            continue;
        };
        let (segment, pages, keys) = segment_of(&codec, &file.path, &bytes)?;
        group.number = span_groups(segment.first, file.header.heights);
        let (first, digest) = (segment.first, segment.digest);
        let chain_id = file.header.identity.chain_id;
        let name = ObjectName { chain_id, kind: Kind::Segment, first, digest };
        if archive.put(&name, bytes).await? {
            done.segments += 1;
            done.bytes += segment.bytes;
        } else {
            done.present += 1;
        }
        group.segments.push(segment);
        group.pages.push(pages);
        group.keys.extend(keys);
    }
    Ok(group)
}

/// Entry of a packed file in the manifest, its pages and its hashes. All checksums are compared first.
fn segment_of(
    codec: &Codec,
    path: &Path,
    bytes: &[u8],
) -> Result<(SegmentEntry, SegmentPages, Vec<Key>), Failed> {
    let packed = |why: String| Failed::Packed { path: PathBuf::from(path), why };
    let opened = Opened::of(codec, bytes.to_vec()).map_err(packed)?;
    let header = opened.header();
    let segment = SegmentEntry {
        first: header.first,
        bytes: bytes.len() as u64,
        digest: opened.pages.pages.object_digest(),
        last: opened.last().map_err(packed)?,
        parent: Digest(header.parent.0),
    };
    let keys = opened.keys().map_err(packed)?;
    Ok((segment, opened.pages, keys))
}

/// Adds a group to the manifest that is there, as often as another writer comes first.
async fn add(
    archive: &ArchiveStore,
    empty: &Manifest,
    group: &Group,
    signer: Option<&SigningKey>,
) -> Result<Manifest, Failed> {
    for _ in 0..ATTEMPTS_MAX {
        let held = archive.manifest().await?;
        let mut next = joined(archive, held.as_ref(), empty, group).await?;
        match signer {
            Some(key) => key.sign(&mut next)?,
            None if next.signature.is_some() => return Err(Failed::Unsigned),
            None => {}
        }
        if archive.replace(held.as_ref(), &next).await? {
            return Ok(next);
        }
    }
    Err(Failed::Busy(ATTEMPTS_MAX))
}

async fn joined(
    archive: &ArchiveStore,
    held: Option<&Held>,
    empty: &Manifest,
    group: &Group,
) -> Result<Manifest, Failed> {
    let before = held.map_or_else(|| Manifest::empty(empty.chain()), |held| held.manifest.clone());
    if before.chain() != empty.chain() {
        return Err(Failed::OtherChain(PathBuf::from("what is pushed")));
    }
    let mut next = before.clone();
    next.sequence = before.sequence.saturating_add(1);
    next.before = held.map(|held| held.digest);
    for segment in &group.segments {
        match before.segment_of(segment.first) {
            None => next.segments.push(*segment),
            Some(there) if (there.last, there.parent) == (segment.last, segment.parent) => {}
            Some(there) => return Err(Failed::OtherBlocks(there.first)),
        }
    }
    next.segments.sort_by_key(|segment| segment.first);
    linked(&next)?;
    let span = span(archive, &before, &next, group).await?;
    let number = |span: &SpanEntry| span_groups(span.first, before.range);
    next.spans.retain(|span| number(span) != group.number);
    next.spans.push(span);
    next.spans.sort_by_key(|span| span.first);
    Ok(next)
}

/// Fails if segments that begin at these heights would leave a gap.
fn unbroken(manifest: &Manifest, more: impl Iterator<Item = u64>) -> Result<(), Failed> {
    let there = manifest.segments.iter().map(|segment| segment.first);
    let firsts: BTreeSet<u64> = there.chain(more).collect();
    let range = u64::from(manifest.range);
    for (below, above) in firsts.iter().zip(firsts.iter().skip(1)) {
        let end = below.saturating_add(range);
        if end < *above {
            return Err(Failed::Gap { first: end, last: above - 1 });
        }
    }
    Ok(())
}

fn linked(manifest: &Manifest) -> Result<(), Failed> {
    unbroken(manifest, std::iter::empty())?;
    for pair in manifest.segments.windows(2) {
        let [below, above] = pair else { continue };
        if above.parent != below.last {
            return Err(Failed::OtherBlocks(above.first));
        }
    }
    Ok(())
}

/// Makes and puts the span of a group, its page lists and its filter.
async fn span(
    archive: &ArchiveStore,
    before: &Manifest,
    next: &Manifest,
    group: &Group,
) -> Result<SpanEntry, Failed> {
    let of_group = |first: u64| span_groups(first, next.range) == group.number;
    let segments: Vec<_> = next.segments.iter().filter(|segment| of_group(segment.first)).collect();
    let first = segments.first().map(|segment| segment.first).unwrap_or_default();
    let old = before.spans.iter().find(|span| of_group(span.first));
    let (old_span, old_pages) = match old {
        Some(old) => {
            let span = Span::read(&archive.get(&before.span_name(old), old.bytes).await?)?;
            let pages = archive.get(&before.pages_name(old), old.pages.bytes).await?;
            (Some(span), Some(PageLists::read(&pages)?))
        }
        None => (None, None),
    };
    let span = Span::empty(first, next.range, segments.len() as u32)?;
    let span = span.with(old_span.as_ref(), &group.keys)?;
    let pages = segments.iter().map(|segment| pages_of(segment, old_pages.as_ref(), group));
    let pages = PageLists::new(&span, pages.collect::<Result<_, _>>()?)?;
    let (entry, [span, pages, filter]) = entry_of(&span, &pages);
    archive.put(&next.span_name(&entry), span).await?;
    archive.put(&next.pages_name(&entry), pages).await?;
    archive.put(&next.filter_name(&entry), filter).await?;
    Ok(entry)
}

/// Entry of a span in the manifest, and the bytes of its objects: span, page lists, filter.
pub(super) fn entry_of(span: &Span, pages: &PageLists) -> (SpanEntry, [Vec<u8>; 3]) {
    let objects = [span.to_bytes(), pages.to_bytes(), HashFilter::of(span).as_bytes().to_vec()];
    let index =
        |object: &Vec<u8>| IndexEntry { bytes: object.len() as u64, digest: object_digest(object) };
    let [IndexEntry { bytes, digest }, pages, filter] = objects.each_ref().map(index);
    let (first, segments) = (span.first(), span.segments());
    (SpanEntry { first, segments, bytes, digest, pages, filter }, objects)
}

/// Pages of a segment, which is new or was there.
fn pages_of(
    segment: &SegmentEntry,
    old: Option<&PageLists>,
    group: &Group,
) -> Result<SegmentPages, Failed> {
    let is_it = |pages: &&SegmentPages| pages.pages.object_digest() == segment.digest;
    let old = old.and_then(|old| old.segment(segment.first)).filter(is_it);
    let found = old.or_else(|| group.pages.iter().find(is_it));
    found.cloned().ok_or(Failed::NoPages(segment.first))
}
