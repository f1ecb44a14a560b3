//! Pushing packed files of a data directory: each object once, then the manifest.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use neve_archive::{
    Chain, Digest, Key, Manifest, SegmentEntry, SegmentPages, SpanEntry, span_groups,
};

use super::change::{Writer, put_unless_deleted};
use super::segment_file::{SegmentFile, read_aside};
use crate::archive::error::Failed;
use crate::archive::local::{BadFile, PackedFiles, PackedOnDisk, chain_of, packed_files};
use crate::archive::store::{ArchiveStore, HeldManifest};

mod order;
mod spans;

use order::{in_order, joining};
use spans::put_span_of;

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

impl Pushed {
    /// Counts the files anew for a manifest, since some were set aside. What was put is there.
    fn anew(self, manifest: &Manifest) -> Self {
        let Self { segments, bytes, bad, .. } = self;
        let mut anew = Self { segments, bytes, bad, ..Self::default() };
        anew.note(manifest);
        anew
    }

    /// Notes the manifest that is there now.
    fn note(&mut self, manifest: &Manifest) {
        (self.heights, self.sequence) = (manifest.heights(), manifest.sequence);
        self.from = manifest.from;
    }

    /// Counts a segment; `None` if its file was evicted.
    fn count(&mut self, put: Option<&PutSegment>) {
        match put {
            Some(put) if put.is_put => {
                self.segments += 1;
                self.bytes += put.segment.bytes;
            }
            Some(_) => self.present += 1,
            None => self.evicted += 1,
        }
    }
}

/// A segment that the archive has now.
struct PutSegment {
    segment: SegmentEntry,
    pages: SegmentPages,
    /// Hashes of its blocks and transactions, and terms of its logs.
    content: (Vec<Key>, Vec<u64>),
    /// False if it was there before.
    is_put: bool,
}

/// Segments of one group of heights, and their hashes.
#[derive(Default)]
struct SegmentGroup {
    number: u64,
    segments: Vec<SegmentEntry>,
    /// Pages of these.
    pages: Vec<SegmentPages>,
    keys: Vec<Key>,
    /// First heights of segments, and the terms of their logs.
    terms: Vec<(u64, u64)>,
}

impl SegmentGroup {
    /// Adds a segment of an archive with ranges of so many heights.
    fn add(&mut self, put: PutSegment, range: u32) {
        let PutSegment { segment, pages, content: (keys, terms), .. } = put;
        self.number = span_groups(segment.first, range);
        self.segments.push(segment);
        self.pages.push(pages);
        self.keys.extend(keys);
        self.terms.extend(terms.into_iter().map(|term| (segment.first, term)));
    }
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
    progress: impl FnMut(Progress<'_>),
) -> Result<Pushed, Failed> {
    let PackedFiles { files, bad } = packed_files(dir)?;
    if files.is_empty() && bad.is_empty() {
        return Err(Failed::NothingPacked(dir.to_owned()));
    }
    let mut pushing = Pushing { writer, dir, at_once, done: Pushed::default(), progress };
    pushing.push(files, bad).await?;
    Ok(pushing.done)
}

/// True if the manifest is another one than `before`.
async fn is_another(writer: &Writer<'_>, before: Option<Digest>) -> Result<bool, Failed> {
    Ok(writer.manifest().await?.map(|held| held.digest) != before)
}

/// Push of the packed files of a directory.
struct Pushing<'p, F> {
    writer: &'p Writer<'p>,
    dir: &'p Path,
    /// Files that are read and put at once.
    at_once: usize,
    done: Pushed,
    progress: F,
}

impl<F: FnMut(Progress<'_>)> Pushing<'_, F> {
    /// Pushes the files without the bad ones.
    async fn push(
        &mut self,
        mut files: Vec<PackedOnDisk>,
        mut bad: Vec<BadFile>,
    ) -> Result<(), Failed> {
        // One bad file is found at a time, since its bytes are read only when it is put. Each time the
        // others begin again without it.
        loop {
            for bad in bad.drain(..) {
                self.done.bad += 1;
                (self.progress)(Progress::SetAside(&bad));
                files.retain(|file| file.path != bad.path);
            }
            let held = self.writer.manifest().await?;
            let planned = held.as_ref().map(|held| held.digest);
            match self.push_files(held, &files).await {
                Err(Failed::Packed { path, why }) => bad.push(BadFile { path, why }),
                // Another writer came first: the files join its heights in another order.
                Err(Failed::Gap { .. }) if is_another(self.writer, planned).await? => {}
                pushed => return pushed,
            }
        }
    }

    /// Pushes files to the archive as it is `held`. The first one whose bytes are not right ends it.
    async fn push_files(
        &mut self,
        held: Option<Arc<HeldManifest>>,
        files: &[PackedOnDisk],
    ) -> Result<(), Failed> {
        let newest = files.last().map(|file| chain_of(&file.header));
        let Some(chain) = held.as_ref().map(|held| held.manifest.chain()).or(newest) else {
            return Ok(()); // no file is left, and there is no archive
        };
        check_chain(self.dir, files, chain)?;
        let mut manifest = manifest_of(held, chain);
        self.done = self.done.anew(&manifest);
        let is_below = |file: &PackedOnDisk| file.header.end() <= manifest.from;
        // Retained heights went from the archive on purpose: to push them again would undo that.
        let (below, files): (Vec<_>, Vec<_>) = files.iter().cloned().partition(is_below);
        self.done.below = below.len() as u64;
        let (files, apart) = joining(files, &manifest)?;
        self.done.apart = apart;
        for files in in_order(files, &manifest) {
            manifest = self.push_group(manifest, &files).await?;
        }
        Ok(())
    }

    /// Pushes the files of a group, again if others deleted objects meanwhile. Returns the manifest.
    async fn push_group(
        &mut self,
        mut manifest: Manifest,
        files: &[PackedOnDisk],
    ) -> Result<Manifest, Failed> {
        let before = self.done;
        for _ in 0..ATTEMPTS_MAX {
            // An attempt that is overtaken must not count its files twice.
            self.done = before;
            let (next, is_done) = self.try_group(manifest, files).await?;
            if is_done {
                return Ok(next);
            }
            manifest = next;
        }
        Err(Failed::Busy(ATTEMPTS_MAX))
    }

    /// Tries to push the files of a group. Returns the manifest, and false if others deleted objects meanwhile.
    async fn try_group(
        &mut self,
        manifest: Manifest,
        files: &[PackedOnDisk],
    ) -> Result<(Manifest, bool), Failed> {
        let missing = missing(files, &manifest, &mut self.done)?;
        if missing.is_empty() {
            return Ok((manifest, true));
        }
        let firsts = missing.iter().map(|file| file.header.first);
        unbroken(&manifest, firsts)?; // before anything is put that no manifest names
        let group = self.put_segments(&manifest, missing).await?;
        // All of them were evicted meanwhile.
        if group.segments.is_empty() {
            return Ok((manifest, true));
        }
        let (manifest, is_added) = add(self.writer, &manifest, &group).await?;
        if is_added {
            self.done.note(&manifest);
            (self.progress)(Progress::Added(&self.done));
        }
        Ok((manifest, is_added))
    }

    /// Puts the segments of files that the archive lacks. Returns those that were not evicted before.
    async fn put_segments(
        &mut self,
        manifest: &Manifest,
        files: Vec<PackedOnDisk>,
    ) -> Result<SegmentGroup, Failed> {
        let (archive, at_once) = (self.writer.archive, self.at_once);
        let mut group = SegmentGroup::default();
        // Their hashes take longer than their bytes, so that several are read on threads of their own. Those of a server
        // are read on the thread of the lowest priority.
        let putting = stream::iter(files).map(|file| async move {
            let Some(read) = read_aside(file, at_once > 1).await? else { return Ok(None) };
            put_segment(archive, manifest, read).await.map(Some)
        });
        let mut putting = pin!(putting.buffered(at_once));
        while let Some(put) = putting.try_next().await? {
            self.done.count(put.as_ref());
            if let Some(put) = put {
                group.add(put, manifest.range);
            }
        }
        Ok(group)
    }
}

/// Fails if a file is of another chain than the archive, or of another length of ranges.
fn check_chain(dir: &Path, files: &[PackedOnDisk], chain: Chain) -> Result<(), Failed> {
    let is_other = |file: &&PackedOnDisk| chain_of(&file.header) != chain;
    if !files.is_empty() && files.iter().all(|file| is_other(&file)) {
        return Err(Failed::OtherChain(dir.to_owned()));
    }
    if let Some(other) = files.iter().find(is_other) {
        let why =
            "it is of another chain, or of another length of ranges, than the archive".to_owned();
        return Err(Failed::Packed { path: other.path.clone(), why });
    }
    Ok(())
}

/// Copy of the manifest that is held, or one without segments. One that is shared goes: it may have 30 MB.
fn manifest_of(held: Option<impl Deref<Target = HeldManifest>>, chain: Chain) -> Manifest {
    held.map_or_else(|| Manifest::empty(chain), |held| held.manifest.clone())
}

/// Puts a segment that was read.
async fn put_segment(
    archive: &ArchiveStore,
    manifest: &Manifest,
    read: SegmentFile,
) -> Result<PutSegment, Failed> {
    let SegmentFile { segment, pages, content, bytes } = read;
    let name = manifest.segment_name(&segment);
    let is_put = put_unless_deleted(archive, manifest, &name, bytes).await?;
    Ok(PutSegment { segment, pages, content, is_put })
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
    let before = manifest_of(held, empty.chain());
    if before.chain() != empty.chain() {
        return Err(Failed::OtherChain(PathBuf::from("what is pushed")));
    }
    let mut next = match held {
        Some(held) => before.following(held.digest),
        None => Manifest { sequence: 1, ..before.clone() },
    };
    add_segments(&before, &mut next, group)?;
    let span = put_span_of(archive, &before, &next, group).await?;
    let number = |span: &SpanEntry| span_groups(span.first, before.range);
    next.spans.retain(|span| number(span) != group.number);
    next.spans.push(span);
    next.spans.sort_by_key(|span| span.first);
    Ok(next)
}

/// Adds those segments of a group to the next manifest that the one before lacks.
fn add_segments(
    before: &Manifest,
    next: &mut Manifest,
    group: &SegmentGroup,
) -> Result<(), Failed> {
    for segment in &group.segments {
        match before.segment_of(segment.first) {
            None => next.segments.push(*segment),
            // The same blocks, perhaps packed by another writer: that file stays.
            Some(there) if (there.last, there.parent) == (segment.last, segment.parent) => {}
            Some(there) => return Err(Failed::OtherBlocks(there.first)),
        }
    }
    next.segments.sort_by_key(|segment| segment.first);
    linked(next)
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
