//! Pushing packed files of a data directory: each object once, then the manifest.

use std::cell::Cell;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use neve_archive::{Chain, Digest, Manifest};

use super::change::Writer;
use crate::archive::error::Failed;
use crate::archive::local::{BadFile, PackedFiles, PackedOnDisk, chain_of, packed_files};
use crate::archive::store::HeldManifest;

mod adding;
mod group;
mod order;
mod putting;
mod segment_file;
mod spans;

use adding::{add, manifest_of};
use group::{PutSegment, SegmentGroup};
use order::{in_order, joining, unbroken};
use putting::{PutAhead, Putting};

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
    fn with(mut self, put: Option<&PutSegment>) -> Self {
        match put {
            Some(put) if put.is_put => {
                self.segments += 1;
                self.bytes += put.segment.bytes;
            }
            Some(_) => self.present += 1,
            None => self.evicted += 1,
        }
        self
    }

    /// Adds the segments that were counted apart.
    fn add(&mut self, counts: &Cell<Self>) {
        let Self { segments, bytes, present, evicted, .. } = counts.take();
        self.segments += segments;
        self.bytes += bytes;
        self.present += present;
        self.evicted += evicted;
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
    let putting = Putting { archive: writer.archive, dir, at_once };
    let (done, uncounted) = (Pushed::default(), Cell::default());
    let mut pushing = Pushing { writer, putting, done, uncounted, progress };
    pushing.push(files, bad).await?;
    Ok(pushing.done)
}

/// True if the manifest is another one than `before`.
async fn is_another(writer: &Writer<'_>, before: Option<Digest>) -> Result<bool, Failed> {
    Ok(writer.manifest().await?.map(|held| held.digest) != before)
}

/// Result of an attempt at a group.
struct GroupAttempt {
    manifest: Manifest,
    /// Segments of the next group that were put.
    ahead: Option<PutAhead>,
    /// False if others deleted objects meanwhile.
    is_done: bool,
}

impl GroupAttempt {
    fn without_change(manifest: Manifest) -> Self {
        Self { manifest, ahead: None, is_done: true }
    }
}

/// Push of the packed files of a directory.
struct Pushing<'p, F> {
    writer: &'p Writer<'p>,
    putting: Putting<'p>,
    done: Pushed,
    /// Segments that were put and are not in `done` yet.
    uncounted: Cell<Pushed>,
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
        check_chain(self.putting.dir, files, chain)?;
        let mut manifest = manifest_of(held, chain);
        self.done = self.done.anew(&manifest);
        let is_below = |file: &PackedOnDisk| file.header.end() <= manifest.from;
        // Retained heights went from the archive on purpose: to push them again would undo that.
        let (below, files): (Vec<_>, Vec<_>) = files.iter().cloned().partition(is_below);
        self.done.below = below.len() as u64;
        let (files, apart) = joining(files, &manifest)?;
        self.done.apart = apart;
        let (mut groups, mut ahead) = (in_order(files, &manifest).into_iter().peekable(), None);
        while let Some(files) = groups.next() {
            let next = groups.peek().map_or(&[][..], Vec::as_slice);
            (manifest, ahead) = self.push_group(manifest, (&files, ahead), next).await?;
        }
        Ok(())
    }

    /// Pushes the files of a group, again if others deleted objects meanwhile. Returns the manifest, and what was put of the
    /// `next` group.
    async fn push_group(
        &mut self,
        mut manifest: Manifest,
        (files, mut ahead): (&[PackedOnDisk], Option<PutAhead>),
        next: &[PackedOnDisk],
    ) -> Result<(Manifest, Option<PutAhead>), Failed> {
        let before = self.done;
        for _ in 0..ATTEMPTS_MAX {
            // An attempt that is overtaken must not count its files twice.
            self.done = before;
            let attempt = self.try_group(manifest, (files, ahead), next).await?;
            if attempt.is_done {
                return Ok((attempt.manifest, attempt.ahead));
            }
            (manifest, ahead) = (attempt.manifest, None);
            self.uncounted.take();
        }
        Err(Failed::Busy(ATTEMPTS_MAX))
    }

    /// Tries to push the files of a group. `ahead` has their segments if they were put before.
    async fn try_group(
        &mut self,
        manifest: Manifest,
        (files, ahead): (&[PackedOnDisk], Option<PutAhead>),
        next: &[PackedOnDisk],
    ) -> Result<GroupAttempt, Failed> {
        let missing = missing(files, &manifest, &mut self.done)?;
        if missing.is_empty() {
            return Ok(GroupAttempt::without_change(manifest));
        }
        let firsts = firsts(&missing);
        unbroken(&manifest, firsts.iter().copied())?; // before anything is put that no manifest names
        let put = if let Some(ahead) = ahead.filter(|ahead| ahead.firsts == firsts) {
            ahead.put
        } else {
            self.uncounted.take(); // of other files
            self.putting.put_segments(&manifest, missing, &self.uncounted).await
        };
        self.done.add(&self.uncounted);
        let group = Arc::new(SegmentGroup::of(put?, manifest.range));
        // All of them were evicted meanwhile.
        if group.segments.is_empty() {
            return Ok(GroupAttempt::without_change(manifest));
        }
        self.add_group(&manifest, &group, (firsts, next)).await
    }

    /// Adds a group to the manifest. Making the objects of its span keeps one processor busy, so the segments of the next
    /// group are put meanwhile.
    async fn add_group(
        &mut self,
        manifest: &Manifest,
        group: &Arc<SegmentGroup>,
        (firsts, next): (Vec<u64>, &[PackedOnDisk]),
    ) -> Result<GroupAttempt, Failed> {
        let adding = pin!(add(self.writer, manifest, group, self.putting));
        let ahead = pin!(self.putting.put_ahead(manifest, firsts, next, &self.uncounted));
        let (added, ahead) = match select(adding, ahead).await {
            Either::Left((added, ahead)) => (added, Either::Left(ahead)),
            Either::Right((ahead, adding)) => (adding.await, Either::Right(ahead)),
        };
        // What was put ahead is there, whatever comes of this group.
        let added = added.inspect_err(|_| self.done.add(&self.uncounted));
        let (manifest, is_done) = added?;
        if is_done {
            self.done.note(&manifest);
            (self.progress)(Progress::Added(&self.done));
        }
        let ahead = match ahead {
            Either::Left(ahead) if is_done => ahead.await,
            Either::Left(_) => None, // it would be put for a manifest that was overtaken
            Either::Right(ahead) => ahead,
        };
        Ok(GroupAttempt { manifest, ahead, is_done })
    }
}

/// First heights of files.
fn firsts(files: &[PackedOnDisk]) -> Vec<u64> {
    files.iter().map(|file| file.header.first).collect()
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
