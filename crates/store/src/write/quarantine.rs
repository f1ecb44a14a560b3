//! Segment files that are set aside: kept under another name, neither served nor removed.
//!
//! The served range has no gap, so a segment below a gap cannot be served, and a damaged one must
//! not be. Both keep their bytes: opening renames them, and only retention or an operator removes
//! them. A whole segment is served again once its heights join the served range from below.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::retention::SegmentFacts;
use crate::disk::{Latch, Op, parse_quarantined_name, quarantined_name, segment_name};
use crate::error::Error;
use crate::format::{Seal, SegmentHeader};
use crate::id::Hash;
use crate::read::QuarantineStatus;
use crate::reads;
use crate::segment::{OpenedSegment, Packed, PackedCodec, Segment, inspect};

/// Files of one base height that can be set aside.
const NUMBERS_MAX: u32 = 10_000;

/// Renames file `name`, which is not to be served. Returns its new name.
pub(crate) fn set_aside(latch: &mut Latch, name: &str) -> Result<String, Error> {
    for number in 0..NUMBERS_MAX {
        let to = quarantined_name(name, number);
        let path = latch.dir().join(&to);
        // Renaming would replace a file of that name, so an error must not count as its absence.
        let is_there = reads::again(reads::is_disk_failure, || reads::is_there(&path));
        if !is_there.map_err(|error| Error::read(path, error))? {
            latch.apply(Op::Rename { from: name, to: &to })?;
            return Ok(to);
        }
    }
    let path = latch.dir().join(name);
    Err(Error::read(path, std::io::Error::other("too many quarantined files of this name")))
}

/// True if one of the files begins above the newest height that is served.
pub(super) fn is_any_above(names: &[String], head: Option<(u64, Hash)>) -> bool {
    let base = |name: &String| parse_quarantined_name(name).map(|(base, _)| base);
    names.iter().any(|name| base(name) > head.map(|(height, _)| height))
}

/// A file that is set aside.
pub(crate) struct Aside {
    pub(crate) name: String,
    pub(crate) base: u64,
    /// Facts for the retention rule.
    pub(crate) held: SegmentFacts,
    /// Content, if it can be served again.
    pub(crate) whole: Option<Whole>,
}

/// Content of a whole file.
pub(crate) enum Whole {
    Sealed(SegmentHeader, Seal),
    Packed(Box<Segment>),
}

impl Whole {
    fn find(path: &Path, base: u64, codec: Option<&Arc<dyn PackedCodec>>) -> Option<Self> {
        if let Ok(OpenedSegment::Sealed(header, seal)) = inspect(path, base) {
            return Some(Self::Sealed(header, seal));
        }
        let opened = Packed::open(path, codec?).ok()?.ok()?;
        let is_named_so = opened.packed.header().first == base;
        let segment = Segment::packed(opened).ok().filter(|_| is_named_so)?;
        Some(Self::Packed(Box::new(segment)))
    }

    fn end_height(&self) -> u64 {
        match self {
            Self::Sealed(header, seal) => header.base_height + u64::from(seal.count),
            Self::Packed(segment) => segment.end_height(),
        }
    }

    fn last_timestamp(&self) -> u64 {
        match self {
            Self::Sealed(_, seal) => seal.last_timestamp,
            Self::Packed(segment) => segment.last_timestamp,
        }
    }

    fn last_hash(&self) -> Option<Hash> {
        match self {
            Self::Sealed(_, seal) => Some(seal.last_hash),
            Self::Packed(segment) => Some(segment.tip()?.1),
        }
    }

    /// Name of the file while it is served.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Sealed(header, _) => segment_name(header.base_height),
            Self::Packed(segment) => segment.name(),
        }
    }

    /// Opens it, once it has its name back.
    pub(crate) fn open(self, dir: &Path) -> Result<Segment, Error> {
        match self {
            Self::Sealed(header, seal) => {
                Segment::open_sealed(&dir.join(segment_name(header.base_height)), header, &seal)
            }
            Self::Packed(segment) => Ok(*segment),
        }
    }
}

/// Facts of a file that is set aside.
fn facts_of(base: u64, whole: Option<&Whole>, metadata: &Metadata) -> SegmentFacts {
    let time = whole.map(Whole::last_timestamp).filter(|time| *time > 0);
    SegmentFacts {
        base,
        end_height: whole.map_or(base + 1, Whole::end_height),
        disk_bytes: metadata.blocks() * 512,
        packs_by: 0,
        // Not known: the newest block in it is at most as new as the file.
        last_timestamp: time.unwrap_or(metadata.mtime().unsigned_abs()),
        is_packed: matches!(whole, Some(Whole::Packed(_))),
        range: None,
    }
}

impl Aside {
    /// The file `name`, whose name was parsed; `None` if it is gone.
    pub(crate) fn find(
        dir: &Path,
        name: &str,
        base: u64,
        codec: Option<&Arc<dyn PackedCodec>>,
    ) -> Option<Self> {
        let path = dir.join(name);
        let metadata = reads::again(reads::is_disk_failure, || reads::facts(&path)).ok()?;
        let whole = Whole::find(&path, base, codec);
        let held = facts_of(base, whole.as_ref(), &metadata);
        Some(Self { name: name.to_owned(), base, held, whole })
    }

    fn last_hash(&self) -> Option<Hash> {
        self.whole.as_ref()?.last_hash()
    }

    /// True if it may be served again once the heights from its end to `first` are. One that ends at `first` would be
    /// served, unless it `is_due`.
    pub(crate) fn can_rejoin(&self, first: u64, is_due: bool) -> bool {
        let end = self.held.end_height;
        self.whole.is_some() && (end < first || is_due && end == first)
    }
}

/// The files that are set aside, ascending by base height.
#[derive(Default)]
pub(crate) struct Quarantine {
    pub(crate) files: Vec<Aside>,
    /// True if a file could be served again, and the disk had no space for its name.
    pub(crate) is_due: bool,
    pub(crate) shown: Arc<QuarantineStatus>,
}

impl Quarantine {
    /// Looks at each file of `names` that is set aside.
    pub(crate) fn load(dir: &Path, names: &[String], codec: Option<&Arc<dyn PackedCodec>>) -> Self {
        let found = |name: &String| {
            let (base, _) = parse_quarantined_name(name)?;
            Aside::find(dir, name, base, codec)
        };
        let mut files: Vec<_> = names.iter().filter_map(found).collect();
        files.sort_by_key(|aside| aside.base);
        Self { files, is_due: false, shown: Arc::default() }
    }

    /// Tells readers, whose lowest height is `first`.
    pub(crate) fn show(&self, first: Option<u64>) {
        let below = |aside: &&Aside| {
            aside.whole.is_some() && first.is_some_and(|first| aside.held.end_height < first)
        };
        let end = self.files.iter().filter(below).map(|aside| aside.held.end_height).max();
        let bytes = self.files.iter().map(|aside| aside.held.disk_bytes).sum();
        self.shown.set(self.files.len() as u64, bytes, end);
    }

    /// Takes the segment out that ends with block `last` at the height below `first`.
    pub(crate) fn take(&mut self, first: u64, last: Hash) -> Option<Aside> {
        let joins = |aside: &Aside| {
            // The hash too: a file of another chain, or from before a withdrawal, may end at the
            // right height.
            aside.held.end_height == first && aside.last_hash() == Some(last) && aside.base < first
        };
        let at = self.files.iter().position(joins)?;
        Some(self.files.remove(at))
    }

    /// Sets files aside that a start kept because the disk had no space for their new names.
    pub(crate) fn set_kept_aside(
        &mut self,
        latch: &mut Latch,
        codec: Option<&Arc<dyn PackedCodec>>,
    ) -> Result<(), Error> {
        while let Some(name) = latch.kept() {
            let to = match set_aside(latch, &name) {
                Err(error) if error.is_gone() => {
                    latch.forget_kept(&name);
                    continue; // an operator removed it
                }
                to => to?,
            };
            tracing::warn!(file = name, to, "file set aside");
            let base = parse_quarantined_name(&to).map(|(base, _)| base);
            let aside = base.and_then(|base| Aside::find(latch.dir(), &to, base, codec));
            aside.into_iter().for_each(|aside| self.put_back(aside));
        }
        Ok(())
    }

    /// Puts a segment here that may be served again, and could not be just now.
    pub(crate) fn put_back(&mut self, aside: Aside) {
        let at = self.files.partition_point(|other| other.base < aside.base);
        self.files.insert(at, aside);
        self.is_due = true;
    }

    /// Puts files back that stay aside.
    pub(crate) fn keep(&mut self, files: Vec<Aside>) {
        self.files.extend(files);
        self.files.sort_by_key(|aside| aside.base);
    }

    /// Takes those out that retention drops, the lowest heights first.
    pub(crate) fn drop_surplus(&mut self, drops: impl FnMut(&SegmentFacts) -> bool) -> Vec<Aside> {
        let mut drops = drops;
        self.files.extract_if(.., |aside| drops(&aside.held)).collect()
    }
}
