//! A packed file, opened: identity, directory, indexes, and its heights.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, OnceLock};

use alloy_primitives::B256;

use crate::container::directory::{self, Entry};
use crate::container::hash_index::{self, IndexWidths, IndexedHashes, Locator, Position};
use crate::container::layout::{FileHeader, HEADER_BYTES, Place, Section};
use crate::container::log_index;
use crate::container::page_sums::PageSums;
use crate::container::source::{Source, read};
use crate::error::{PackError, PackedError};
use crate::frames::model::Model;
use crate::frames::model_cache::{CachedModel, ModelCache};
use crate::read::height::PackedHeight;

/// Bytes of the directory, the tables and the dictionary that an opening accepts.
const OPENED_BYTES_MAX: u64 = 16 << 20;
/// Terms that are looked up one after the other, some microseconds each. For more, the whole index of logs is read once: some
/// milliseconds, however many a client asks for.
const LOOK_UPS_MAX: usize = 256;
/// Longest index that is read whole: ten times that of a range of mainnet. A longer one would take much memory.
const WHOLE_INDEX_BYTES_MAX: u64 = 4 << 20;

/// A packed file that was opened.
///
/// Opening reads and checks the file header, the directory, the tables and the dictionary, and keeps
/// the header. A read of a height reads the other three again unless they are in memory (see
/// [`ModelCache`]). The two indexes are checked at their first use. The one of hashes stays in memory from then on, as
/// long as the tables do.
///
/// No byte on disk is believed because it was right before. A read of a frame, of tables or of the whole
/// directory compares the checksum of the file; one of an entry or of an index those of its pages, which
/// the first read made.
#[derive(Debug)]
pub struct PackedFile<S> {
    source: S,
    header: FileHeader,
    places: [Place; 6],
    model: CachedModel,
    directory: PageSums,
    /// Those of the indexes, once they were read: `None` if the section is damaged.
    hashes: OnceLock<Option<(PageSums, IndexWidths)>>,
    terms: OnceLock<Option<PageSums>>,
}

/// A height that was found in a file, with the tables for a read of it.
#[derive(Debug)]
pub struct Located {
    height: u64,
    before: Option<Entry>,
    entry: Entry,
    model: Arc<Model>,
}

impl Located {
    fn new(height: u64, index: usize, model: Arc<Model>) -> Result<Self, PackedError> {
        let (before, entry) = model.entries(index)?;
        Ok(Self { height, before, entry, model })
    }
}

impl<S: Source> PackedFile<S> {
    /// Opens a file whose tables stay in memory.
    pub fn open(source: S) -> Result<Self, PackedError> {
        Self::open_in(source, &ModelCache::new(usize::MAX))
    }

    /// Opens a file whose tables take space of `cache`.
    pub fn open_in(source: S, cache: &Arc<ModelCache>) -> Result<Self, PackedError> {
        let page = read(&source, 0, HEADER_BYTES.min(source.len() as usize))?;
        let (header, places) = FileHeader::read(&page, source.len())?;
        drop(page);
        // Opening reads these three whole: a forged header must not take any amount of memory.
        if places[..3].iter().any(|place| place.bytes > OPENED_BYTES_MAX) {
            return Err(PackedError::malformed("file header", "tables over 16 MiB"));
        }
        let section = checked_directory(&source, &header, &places)?.into_owned();
        let directory = PageSums::of(&section, Section::Directory);
        let (hashes, terms) = (OnceLock::new(), OnceLock::new());
        let model = CachedModel::new(cache);
        let file = Self { source, header, places, model, directory, hashes, terms };
        // Here, and not at the first read: an opened file has tables that can be read.
        file.model.get_or(|| file.read_model(section))?;
        Ok(file)
    }

    fn model(&self) -> Result<Arc<Model>, PackedError> {
        self.model.get_or(|| {
            let directory = checked_directory(&self.source, &self.header, &self.places)?;
            self.read_model(directory.into_owned())
        })
    }

    fn read_model(&self, directory: Vec<u8>) -> Result<Model, PackedError> {
        let FileHeader { identity, first, .. } = self.header;
        let section = |section| checked(&self.source, &self.places, section);
        let (tables, dictionary) = (section(Section::Tables)?, section(Section::Dictionary)?);
        let model = Model::read(identity.chain_id, first, &tables, &dictionary)?;
        Ok(model.with_directory(directory))
    }

    /// True if the tables are in memory, so that a read of a height does not read them first.
    pub fn is_ready(&self) -> bool {
        self.model.get().is_some()
    }

    /// Returns identity and range.
    pub fn header(&self) -> &FileHeader {
        &self.header
    }

    /// Returns the heights of the file.
    pub fn heights(&self) -> RangeInclusive<u64> {
        self.header.first..=self.header.last()
    }

    /// Returns the hash of the block at a height of the file.
    pub fn hash(&self, height: u64) -> Option<B256> {
        Some(self.entries(self.number(height).ok()?).ok()?.1.hash)
    }

    /// Reads a part of a section and compares its pages with `sums`.
    fn part(
        &self,
        section: Section,
        sums: &PageSums,
        range: Range<u64>,
    ) -> Result<Cow<'_, [u8]>, PackedError> {
        sums.part(&self.source, &self.places[section as usize], section, range)
    }

    /// Reads the entry of a height and the one before it, from memory if the tables are there.
    pub(super) fn entries(&self, index: usize) -> Result<(Option<Entry>, Entry), PackedError> {
        if let Some(model) = self.model.get() {
            return model.entries(index);
        }
        let entries = directory::entries_of(index);
        directory::read(&self.part(Section::Directory, &self.directory, entries)?)
    }

    /// Reads a frame, which has a checksum of its own.
    fn frame(&self, range: Range<u64>) -> Result<Cow<'_, [u8]>, PackedError> {
        let (offset, bytes) = self.place(range)?;
        read(&self.source, offset, bytes)
    }

    fn number(&self, height: u64) -> Result<usize, PackedError> {
        let index = height.checked_sub(self.header.first);
        let index = index.filter(|index| *index < u64::from(self.header.heights));
        index.map(|index| index as usize).ok_or(PackedError::Height {
            height,
            first: self.header.first,
            last: self.header.last(),
        })
    }

    /// Reads the frame of a height and checks it.
    pub fn height(&self, height: u64) -> Result<PackedHeight<'_>, PackedError> {
        let (index, model) = (self.number(height)?, self.model()?);
        self.read(Located::new(height, index, model)?)
    }

    /// Finds a height. `None` if the tables are not in memory, so that a read of it would read them first.
    pub fn locate(&self, height: u64) -> Result<Option<Located>, PackedError> {
        let index = self.number(height)?;
        self.model.get().map(|model| Located::new(height, index, model)).transpose()
    }

    /// Reads the frame of a height that was found, and checks it.
    pub fn read(&self, located: Located) -> Result<PackedHeight<'_>, PackedError> {
        let Located { height, before, entry, model } = located;
        let frame = self.frame(range(before, entry))?;
        if directory::checksum(height, &frame) != entry.crc {
            return Err(PackedError::FrameChecksum(height));
        }
        let parent = before.map_or(self.header.parent, |before| before.hash);
        Ok(PackedHeight { height, hash: entry.hash, parent, frame, model })
    }

    /// Returns offset and length of the bytes of the file that a read of the height needs, besides
    /// those that opening reads.
    pub fn extent(&self, height: u64) -> Result<(u64, usize), PackedError> {
        let (before, entry) = self.entries(self.number(height)?)?;
        self.place(range(before, entry))
    }

    /// Returns them for a height that was found.
    pub fn extent_of(&self, located: &Located) -> Result<(u64, usize), PackedError> {
        self.place(range(located.before, located.entry))
    }

    /// Offset and length in the file of a part of the section of frames.
    fn place(&self, frame: Range<u64>) -> Result<(u64, usize), PackedError> {
        let place = self.places[Section::Frames as usize].part(frame);
        place.ok_or_else(|| PackedError::malformed("directory", "a frame out of bounds"))
    }

    /// Returns offset and length of the index of logs.
    pub fn terms_extent(&self) -> (u64, usize) {
        let Place { offset, bytes, .. } = self.places[Section::Terms as usize];
        (offset, bytes as usize)
    }

    /// Returns the checksums of the hash index's pages, and its widths. The first use reads the index whole
    /// and compares its own checksum.
    fn hashes(&self) -> Result<&(PageSums, IndexWidths), PackedError> {
        let section = Section::Hashes;
        if self.hashes.get().is_none() {
            let place = &self.places[section as usize];
            let known = match PageSums::read(&self.source, place, section)? {
                Some(sums) => {
                    let widths =
                        hash_index::widths(|range| self.part(section, &sums, range), place.bytes);
                    match widths {
                        // Not remembered: the next read may succeed.
                        Err(error @ PackedError::Read { .. }) => return Err(error),
                        // Widths that no packer writes: damaged, as one with another checksum is.
                        widths => widths.ok().map(|widths| (sums, widths)),
                    }
                }
                None => None,
            };
            let _ = self.hashes.set(known); // another thread was first
        }
        let known = self.hashes.get().and_then(Option::as_ref);
        known.ok_or_else(|| PackedError::Checksum(section.name()))
    }

    /// Returns the checksums of the log index's pages. The first use reads it whole.
    fn terms(&self) -> Result<&PageSums, PackedError> {
        let section = Section::Terms;
        if self.terms.get().is_none() {
            let sums = PageSums::read(&self.source, &self.places[section as usize], section)?;
            let _ = self.terms.set(sums); // another thread was first
        }
        let sums = self.terms.get().and_then(Option::as_ref);
        sums.ok_or_else(|| PackedError::Checksum(section.name()))
    }

    /// Finds a block or transaction by its hash. Reads the frames of the candidates, which are
    /// almost always one at most.
    pub fn find(&self, hash: &B256) -> Result<Option<Position>, PackedError> {
        self.find_with(hash, |at| {
            let found = match at.transaction {
                None => Some(self.entries(self.number(at.height)?)?.1.hash),
                Some(transaction) => {
                    self.height(at.height)?.transaction_hash(transaction as usize)?
                }
            };
            Ok((found.as_ref() == Some(hash)).then_some(at))
        })
    }

    /// Calls `take` with each place at which the hash may be, until it returns something. `take`
    /// compares the whole hash.
    pub fn find_with<T>(
        &self,
        hash: &B256,
        mut take: impl FnMut(Position) -> Result<Option<T>, PackedError>,
    ) -> Result<Option<T>, PackedError> {
        let candidates = self.candidates(hash)?;
        // A place behind the last height is no candidate.
        for at in candidates.into_iter().filter(|at| at.height < self.header.heights) {
            let height = self.header.first + u64::from(at.height);
            let found = take(Position { height, transaction: at.ordinal.checked_sub(1) })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns the number of bits of each hash in the index, and all hashes: these bits, highest in a number, with the place. `None`
    /// if the index has not `count`.
    pub fn indexed_hashes(&self, count: usize) -> Result<Option<IndexedHashes>, PackedError> {
        let ((sums, widths), section) = (self.hashes()?, Section::Hashes);
        if widths.entries() != count {
            return Ok(None); // before any is in memory
        }
        let index = self.part(section, sums, 0..self.places[section as usize].bytes)?;
        let entries = hash_index::all(&index, self.header.heights)?.into_iter();
        let position = |at: Locator| {
            let height = self.header.first + u64::from(at.height);
            Position { height, transaction: at.ordinal.checked_sub(1) }
        };
        let hashes = entries.map(|(prefix, at)| (prefix, position(at))).collect();
        Ok(Some((widths.hash_bits(), hashes)))
    }

    /// Places at which the hash may be, from memory if the tables are there.
    fn candidates(&self, hash: &B256) -> Result<Vec<Locator>, PackedError> {
        let ((sums, widths), section) = (self.hashes()?, Section::Hashes);
        let model = self.model.get();
        if let Some(model) = &model {
            self.add_index(model, sums)?;
        }
        let Some(index) = model.as_ref().and_then(|model| model.index()) else {
            return hash_index::candidates(|range| self.part(section, sums, range), widths, hash);
        };
        let part = |range: Range<u64>| {
            let found = index.get(range.start as usize..range.end as usize);
            let outside = || PackedError::malformed(section.name(), "a part out of bounds");
            found.map(Cow::Borrowed).ok_or_else(outside)
        };
        hash_index::candidates(part, widths, hash)
    }

    /// Reads the hash index into memory, unless it is there or there is no space: to read and compare two pages takes half
    /// as long as to unpack a transaction.
    fn add_index(&self, model: &Arc<Model>, sums: &PageSums) -> Result<(), PackedError> {
        if model.index().is_some() {
            return Ok(());
        }
        let length = self.places[Section::Hashes as usize].bytes;
        if length <= WHOLE_INDEX_BYTES_MAX && self.model.fits(model, length as usize) {
            let index = self.part(Section::Hashes, sums, 0..length)?;
            self.model.add_index(model, index.into_owned());
        }
        Ok(())
    }

    /// Returns the heights, ascending, of which a log may have the term (see [`crate::term`]).
    /// All heights with such a log are among them.
    pub fn heights_of_term(&self, term: u64) -> Result<Vec<u64>, PackedError> {
        let sums = self.terms()?;
        let (length, heights) =
            (self.places[Section::Terms as usize].bytes, self.header.heights as usize);
        let part = |range| self.part(Section::Terms, sums, range);
        let found = log_index::heights(part, length, term, heights)?;
        Ok(found.into_iter().map(|height| self.header.first + u64::from(height)).collect())
    }

    /// Returns the heights, ascending, of which a log may have one of the terms. They take space once, however many terms
    /// lead to them.
    pub fn heights_of_terms(&self, terms: &[u64]) -> Result<Vec<u64>, PackedError> {
        let length = self.places[Section::Terms as usize].bytes;
        let mut found = vec![false; self.header.heights as usize];
        if terms.len() <= LOOK_UPS_MAX || length > WHOLE_INDEX_BYTES_MAX {
            for heights in terms.iter().map(|term| self.heights_of_term(*term)) {
                let places = heights?.into_iter().map(|height| height - self.header.first);
                places.for_each(|place| found[place as usize] = true);
            }
        } else {
            let mut wanted: Vec<u64> = terms.iter().map(|term| log_index::low(*term)).collect();
            wanted.sort_unstable();
            let section = self.part(Section::Terms, self.terms()?, 0..length)?;
            log_index::all(&section, found.len(), |term, places| {
                if wanted.binary_search(&term).is_ok() {
                    places.into_iter().for_each(|place| found[place as usize] = true);
                }
            })?;
        }
        let found = (self.header.first..).zip(found).filter(|(_, is_found)| *is_found);
        Ok(found.map(|(height, _)| height).collect())
    }

    /// Returns the low 40 bits of all terms of logs in the file, each once.
    pub fn all_terms(&self) -> Result<Vec<u64>, PackedError> {
        let (sums, length) = (self.terms()?, self.places[Section::Terms as usize].bytes);
        let (section, mut found) = (self.part(Section::Terms, sums, 0..length)?, Vec::new());
        log_index::all(&section, self.header.heights as usize, |term, _| found.push(term))?;
        Ok(found)
    }

    /// Checks that the two indexes are those that a packer makes of these hashes and terms, all of the file.
    pub fn check_indexes(
        &self,
        hashes: impl Iterator<Item = (B256, Position)>,
        terms: impl Iterator<Item = (u64, u64)>,
    ) -> Result<(), PackedError> {
        let index = |height: u64| height.saturating_sub(self.header.first) as u32;
        let entry = |(hash, at): (B256, Position)| {
            let ordinal = at.transaction.map_or(0, |number| number + 1);
            (hash_index::prefix(&hash.0), Locator { height: index(at.height), ordinal })
        };
        let made = hash_index::write(&hashes.map(entry).collect::<Vec<_>>());
        self.check_made(Section::Hashes, &self.hashes()?.0, made)?;
        let terms = terms.map(|(term, height)| (term, index(height))).collect();
        let made = log_index::write(terms, self.header.heights as usize);
        self.check_made(Section::Terms, self.terms()?, made)
    }

    fn check_made(
        &self,
        section: Section,
        sums: &PageSums,
        made: Result<Vec<u8>, PackError>,
    ) -> Result<(), PackedError> {
        let other = || PackedError::malformed(section.name(), "it is not that of the heights");
        let made = made.map_err(|_| other())?;
        let length = self.places[section as usize].bytes;
        let is_same = made.len() as u64 == length && *self.part(section, sums, 0..length)? == made;
        if is_same { Ok(()) } else { Err(other()) }
    }

    /// Checks all checksums. [`Self::height`] and the texts of each height check the rest.
    pub fn check(&self) -> Result<(), PackedError> {
        // The section of frames has no checksum: each frame has its own.
        for section in Section::ALL.into_iter().filter(|section| *section != Section::Frames) {
            if PageSums::read(&self.source, &self.places[section as usize], section)?.is_none() {
                return Err(PackedError::Checksum(section.name()));
            }
        }
        self.heights().try_for_each(|height| self.height(height).map(|_| ()))
    }
}

/// Place of a frame in the section of frames.
pub(super) fn range(before: Option<Entry>, entry: Entry) -> Range<u64> {
    u64::from(before.map_or(0, |before| before.end))..u64::from(entry.end)
}

/// Reads the directory, and checks it.
fn checked_directory<'s, S: Source>(
    source: &'s S,
    header: &FileHeader,
    places: &[Place; 6],
) -> Result<Cow<'s, [u8]>, PackedError> {
    let directory = checked(source, places, Section::Directory)?;
    let frames = places[Section::Frames as usize].bytes;
    directory::check(&directory, header.heights as usize, frames)?;
    Ok(directory)
}

/// Reads a section and compares its checksum.
fn checked<'s, S: Source>(
    source: &'s S,
    places: &[Place; 6],
    section: Section,
) -> Result<Cow<'s, [u8]>, PackedError> {
    let place = &places[section as usize];
    let bytes = usize::try_from(place.bytes);
    let bytes = bytes.map_err(|_| PackedError::malformed("file header", "a huge section"))?;
    let found = read(source, place.offset, bytes)?;
    if crc32fast::hash(&found) == place.crc {
        Ok(found)
    } else {
        Err(PackedError::Checksum(section.name()))
    }
}
