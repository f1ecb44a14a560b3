//! Pushing packed files of a data directory: each object once, then the manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use neve_archive::{
    Digest, Key, Kind, Manifest, ObjectName, PageLists, SegmentEntry, SegmentPages, Span,
    SpanEntry, Terms, span_groups,
};

use super::change::{Writer, put_span, put_unless_deleted};
use super::segment_file::{SegmentFile, read_aside};
use crate::archive::error::Failed;
use crate::archive::local::{BadFile, PackedFiles, PackedOnDisk, chain_of, packed_files};
use crate::archive::store::{ArchiveStore, HeldManifest};

/// Attempts at a group of segments while others delete objects.
const ATTEMPTS_MAX: u32 = 10;
/// Files that are read and put at once. Each is in memory once, and so is the object of its name if the store has one:
/// 2 GiB with files of the largest length.
const AT_ONCE_MAX: usize = 4;

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
    /// Packed files below the height that the archive is retained from.
    pub(crate) below: u64,
    /// Packed files that the server evicted before they were read.
    pub(crate) evicted: u64,
    /// Packed files that no archive takes.
    pub(crate) bad: u64,
    /// First and last height of the archive.
    pub(crate) heights: Option<(u64, u64)>,
    /// Height that the archive is retained from.
    pub(crate) from: u64,
    /// Sequence of the manifest.
    pub(crate) sequence: u64,
}

/// Segments of one group of heights, and their hashes.
struct SegmentGroup {
    number: u64,
    segments: Vec<SegmentEntry>,
    /// Pages of these.
    pages: Vec<SegmentPages>,
    keys: Vec<Key>,
    /// First heights of segments, and the terms of their logs.
    terms: Vec<(u64, u64)>,
}

/// Event of a push.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Progress<'a> {
    /// The manifest was changed.
    Added(&'a Pushed),
    /// A file is left out. The others go on, as far as they meet the archive without it.
    SetAside(&'a BadFile),
}

/// Pushes the packed files of `dir`, several at once.
pub(crate) async fn push(
    writer: &Writer<'_>,
    dir: &Path,
    progress: impl FnMut(Progress<'_>),
) -> Result<Pushed, Failed> {
    push_at_once(writer, dir, AT_ONCE_MAX, progress).await
}

/// Pushes them one after the other, on the thread of the caller.
pub(super) async fn push_in_turn(
    writer: &Writer<'_>,
    dir: &Path,
    progress: impl FnMut(Progress<'_>),
) -> Result<Pushed, Failed> {
    push_at_once(writer, dir, 1, progress).await
}

async fn push_at_once(
    writer: &Writer<'_>,
    dir: &Path,
    at_once: usize,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Pushed, Failed> {
    let PackedFiles { mut files, mut bad } = packed_files(dir)?;
    if files.is_empty() && bad.is_empty() {
        return Err(Failed::NothingPacked(dir.to_owned()));
    }
    // One bad file is found at a time, since its bytes are read only when it is put. Each time the
    // others begin again without it.
    let mut done = Pushed::default();
    loop {
        for bad in bad.drain(..) {
            done.bad += 1;
            progress(Progress::SetAside(&bad));
            files.retain(|file| file.path != bad.path);
        }
        let held = writer.manifest().await?;
        let planned = held.as_ref().map(|held| held.digest);
        let pushed = push_files(writer, held, (dir, at_once), &files, &mut done, &mut progress);
        match pushed.await {
            Err(Failed::Packed { path, why }) => bad.push(BadFile { path, why }),
            // Another writer came first: the files join its heights in another order.
            Err(Failed::Gap { .. }) if is_another(writer, planned).await? => {}
            pushed => return pushed.map(|()| done),
        }
    }
}

/// True if the manifest is another one than `before`.
async fn is_another(writer: &Writer<'_>, before: Option<Digest>) -> Result<bool, Failed> {
    Ok(writer.manifest().await?.map(|held| held.digest) != before)
}

/// Pushes files to the archive as it is `held`. The first one whose bytes are not right ends it.
async fn push_files(
    writer: &Writer<'_>,
    held: Option<Arc<HeldManifest>>,
    (dir, at_once): (&Path, usize),
    files: &[PackedOnDisk],
    done: &mut Pushed,
    progress: &mut impl FnMut(Progress<'_>),
) -> Result<(), Failed> {
    let newest = files.last().map(|file| chain_of(&file.header));
    let Some(chain) = held.as_ref().map(|held| held.manifest.chain()).or(newest) else {
        return Ok(()); // no file is left, and there is no archive
    };
    let is_other = |file: &&PackedOnDisk| chain_of(&file.header) != chain;
    if !files.is_empty() && files.iter().all(|file| is_other(&file)) {
        return Err(Failed::OtherChain(dir.to_owned()));
    }
    if let Some(other) = files.iter().find(is_other) {
        let why =
            "it is of another chain, or of another length of ranges, than the archive".to_owned();
        return Err(Failed::Packed { path: other.path.clone(), why });
    }
    let mut manifest = held.map_or_else(|| Manifest::empty(chain), |held| held.manifest.clone());
    let Pushed { segments, bytes, bad, .. } = *done;
    // Files were set aside: the others are counted anew, but what was put is there.
    *done = Pushed { segments, bytes, bad, sequence: manifest.sequence, ..Pushed::default() };
    (done.heights, done.from) = (manifest.heights(), manifest.from);
    let is_below = |file: &&PackedOnDisk| file.header.end() <= manifest.from;
    done.below = files.iter().filter(is_below).count() as u64;
    // Retained heights went from the archive on purpose: to push them again would undo that.
    let files = files.iter().filter(|file| !is_below(file)).cloned().collect();
    let (files, apart) = joining(files, &manifest)?;
    done.apart = apart;
    for files in in_order(files, &manifest) {
        manifest = push_group(writer, manifest, (&files, at_once), done, progress).await?;
    }
    Ok(())
}

/// Pushes the files of a group, again if others deleted objects meanwhile. Returns the manifest.
async fn push_group(
    writer: &Writer<'_>,
    mut manifest: Manifest,
    (files, at_once): (&[PackedOnDisk], usize),
    done: &mut Pushed,
    progress: &mut impl FnMut(Progress<'_>),
) -> Result<Manifest, Failed> {
    // An attempt that is overtaken must not count its files twice.
    let before = *done;
    for _ in 0..ATTEMPTS_MAX {
        *done = before;
        let missing = missing(files, &manifest, done)?;
        if missing.is_empty() {
            return Ok(manifest);
        }
        let firsts = missing.iter().map(|file| file.header.first);
        unbroken(&manifest, firsts)?; // before anything is put that no manifest names
        let group = put_segments(writer.archive, &manifest, (&missing, at_once), done).await?;
        // All of them were evicted meanwhile.
        if group.segments.is_empty() {
            return Ok(manifest);
        }
        let (next, is_added) = add(writer, &manifest, &group).await?;
        manifest = next;
        if is_added {
            (done.heights, done.sequence) = (manifest.heights(), manifest.sequence);
            done.from = manifest.from;
            progress(Progress::Added(done));
            return Ok(manifest);
        }
    }
    Err(Failed::Busy(ATTEMPTS_MAX))
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
    if runs.is_empty() && all == 0 {
        return Ok((Vec::new(), 0)); // all are below the retained heights
    }
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
    // Each group must meet the archive, or its manifest would have a gap for a while.
    let Some((first, _)) = manifest.heights() else { return groups.into_values().collect() };
    let above = groups.split_off(&span_groups(first, manifest.range));
    above.into_values().chain(groups.into_values().rev()).collect()
}

/// The files that the archive lacks. A file that it has must have the same parent.
fn missing(
    files: &[PackedOnDisk],
    manifest: &Manifest,
    done: &mut Pushed,
) -> Result<Vec<PackedOnDisk>, Failed> {
    let mut missing = Vec::new();
    for file in files {
        match manifest.segment_of(file.header.first) {
            // Another one dropped heights meanwhile.
            None if file.header.end() <= manifest.from => done.below += 1,
            None => missing.push(file.clone()),
            // The parent stands for the blocks: to compare all of them would read the object. A
            // packed file may differ in bytes with the same blocks.
            Some(there) if there.parent == Digest(file.header.parent.0) => done.present += 1,
            Some(there) => return Err(Failed::OtherBlocks(there.first)),
        }
    }
    Ok(missing)
}

async fn put_segments(
    archive: &ArchiveStore,
    manifest: &Manifest,
    (files, at_once): (&[PackedOnDisk], usize),
    done: &mut Pushed,
) -> Result<SegmentGroup, Failed> {
    let (segments, pages, keys) = (Vec::new(), Vec::new(), Vec::new());
    let mut group = SegmentGroup { number: 0, segments, pages, keys, terms: Vec::new() };
    // Their hashes take longer than their bytes, so that several are read on threads of their own. Those of a server
    // are read on the thread of the lowest priority.
    let putting = stream::iter(files.to_vec()).map(|file| async move {
        let read = read_aside(file, at_once > 1).await?;
        let Some(SegmentFile { segment, pages, content, bytes }) = read else { return Ok(None) };
        let (first, digest) = (segment.first, segment.digest);
        let name = ObjectName { chain_id: manifest.chain_id, kind: Kind::Segment, first, digest };
        let is_put = put_unless_deleted(archive, manifest, &name, bytes).await?;
        Ok::<_, Failed>(Some((segment, pages, content, is_put)))
    });
    let mut putting = pin!(putting.buffered(at_once));
    while let Some(put) = putting.try_next().await? {
        let Some((segment, pages, (keys, terms), is_put)) = put else {
            done.evicted += 1;
            continue;
        };
        if is_put {
            done.segments += 1;
            done.bytes += segment.bytes;
        } else {
            done.present += 1;
        }
        group.number = span_groups(segment.first, manifest.range);
        group.segments.push(segment);
        group.pages.push(pages);
        group.keys.extend(keys);
        group.terms.extend(terms.into_iter().map(|term| (segment.first, term)));
    }
    Ok(group)
}

/// Adds a group to the manifest that is there, as often as another writer comes first. Returns the manifest,
/// and false if objects or heights were removed since `known`: those of the group may be among them.
async fn add(
    writer: &Writer<'_>,
    known: &Manifest,
    group: &SegmentGroup,
) -> Result<(Manifest, bool), Failed> {
    let mut overtaken = None;
    let added = writer.change(async |held| {
        let state = |manifest: &Manifest| (manifest.deleted_since(), manifest.from);
        if held.map_or((0, 0), |held| state(&held.manifest)) != state(known) {
            overtaken = held.map(|held| held.manifest.clone());
            return Ok(None);
        }
        joined(writer.archive, held, known, group).await.map(Some)
    });
    match (added.await?, overtaken) {
        (Some(manifest), _) => Ok((manifest, true)),
        (None, Some(manifest)) => Ok((manifest, false)),
        (None, None) => Err(Failed::NoManifest), // it was removed by hand
    }
}

async fn joined(
    archive: &ArchiveStore,
    held: Option<&HeldManifest>,
    empty: &Manifest,
    group: &SegmentGroup,
) -> Result<Manifest, Failed> {
    let before = held.map_or_else(|| Manifest::empty(empty.chain()), |held| held.manifest.clone());
    if before.chain() != empty.chain() {
        return Err(Failed::OtherChain(PathBuf::from("what is pushed")));
    }
    let mut next = match held {
        Some(held) => before.following(held.digest),
        None => Manifest { sequence: 1, ..before.clone() },
    };
    for segment in &group.segments {
        match before.segment_of(segment.first) {
            None => next.segments.push(*segment),
            // The same blocks, perhaps packed by another writer: that file stays.
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

/// Makes and puts the span of a group, its page lists, its filter and its terms.
async fn span(
    archive: &ArchiveStore,
    before: &Manifest,
    next: &Manifest,
    group: &SegmentGroup,
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
    let terms = terms(archive, before, old, &span, group).await?;
    let pages = PageLists::new(&span, pages.collect::<Result<_, _>>()?, terms.as_ref())?;
    put_span(archive, next, (&span, &pages, terms.as_ref())).await
}

/// Terms of a span. One of an earlier writer, which has none, does not get those of its new segments alone.
async fn terms(
    archive: &ArchiveStore,
    before: &Manifest,
    old: Option<&SpanEntry>,
    span: &Span,
    group: &SegmentGroup,
) -> Result<Option<Terms>, Failed> {
    let old = match old.map(|old| (before.terms_name(old), old.terms)) {
        Some((Some(name), Some(at))) => Some(Terms::read(&archive.get(&name, at.bytes).await?)?),
        Some(_) => return Ok(None),
        None => None,
    };
    Ok(Some(Terms::new(span, old.as_ref(), group.terms.iter().copied())?))
}

/// Pages of a segment, which is new or was there.
fn pages_of(
    segment: &SegmentEntry,
    old: Option<&PageLists>,
    group: &SegmentGroup,
) -> Result<SegmentPages, Failed> {
    let is_it = |pages: &&SegmentPages| pages.pages.object_digest() == segment.digest;
    let old = old.and_then(|old| old.segment(segment.first)).filter(is_it);
    let found = old.or_else(|| group.pages.iter().find(is_it));
    found.cloned().ok_or(Failed::NoPages(segment.first))
}
