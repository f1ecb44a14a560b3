//! Opening a directory: whole segments are served, doubtful ones are set aside.
//!
//! The upstream is the truth, so nothing is repaired here. The segment that was being written is walked record by
//! record up to the first doubt. Sealed segments are believed by their header; each record is checked when it is
//! first read. If segments do not join up, the run that ends at the newest head is served. The others keep their
//! bytes under another name (`quarantine.rs`).

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::candidate::{SegmentCandidate, open_table, remove_table, take_run};
use super::options::Options;
use super::quarantine::{Quarantine, is_any_above, set_aside};
use super::writer::{Writer, newest};
use crate::disk::{
    COPY, Disk, Latch, Locks, Op, RealDisk, Stamp, list, packed_name, parse_copy_name,
    parse_packed_name, parse_segment_name, parse_table_name, parse_unfinished_name, segment_name,
    table_name,
};
use crate::error::Error;
use crate::format::{OTHER_VERSION, SegmentHeader};
use crate::id::{Hash, Identity};
use crate::index::merged_table::Merged;
use crate::read::{Reader, View};
use crate::reads;
use crate::segment::{
    Active, OpenedSegment, Packed, PackedCodec, PackedDamage, Recovered, SealedCopy, Segment,
    copy_aside, inspect, recover,
};
use crate::sync::ArcSwap;

/// An open store.
pub struct Opened {
    /// Handle of the one thread that appends.
    pub writer: Writer,
    /// Handle of everyone else; clone it freely.
    pub reader: Reader,
    /// Notes of recovery: records dropped, files set aside or served again. Empty after a clean stop.
    pub notes: Vec<String>,
    /// True if recovery dropped or set aside heights above the served range, which must be fetched again.
    pub has_dropped: bool,
}

/// Opens the store in `dir`, creating the directory if there is none.
pub fn open(dir: &Path, options: Options) -> Result<Opened, Error> {
    fs::create_dir_all(dir).map_err(|error| Error::read(dir, error))?;
    open_on(Arc::new(RealDisk::new(dir)), options)
}

/// Opens the store in the directory of `disk`, which exists. For tests that watch or fail writes.
pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Opened, Error> {
    options.check()?;
    open_directory(disk, options, None)
}

/// Opens the store in `dir`, whose packed files `codec` reads and writes. With a codec, each segment
/// ends before the next range of heights that a packed file holds.
pub fn open_with(
    dir: &Path,
    options: Options,
    codec: Arc<dyn PackedCodec>,
) -> Result<Opened, Error> {
    fs::create_dir_all(dir).map_err(|error| Error::read(dir, error))?;
    open_on_with(Arc::new(RealDisk::new(dir)), options, codec)
}

/// Opens a store with a codec in the directory of `disk`, which exists.
pub fn open_on_with(
    disk: Arc<dyn Disk>,
    options: Options,
    codec: Arc<dyn PackedCodec>,
) -> Result<Opened, Error> {
    options.check()?;
    open_directory(disk, options, Some(codec))
}

fn open_directory(
    disk: Arc<dyn Disk>,
    options: Options,
    codec: Option<Arc<dyn PackedCodec>>,
) -> Result<Opened, Error> {
    let mut opening = Opening::begin(disk, options, codec)?;
    let names = list(opening.latch.dir())?;
    // Half-written files of a crash go first, so that the list below has whole ones only.
    let names = opening.finish_names(names)?;
    let (segments, active) = opening.open_segments(&names)?;
    let tables = opening.open_tables(&names, &segments)?;
    let names = [&names[..], &opening.aside].concat();
    let quarantine = Quarantine::load(opening.latch.dir(), &names, opening.codec.as_ref());
    opening.finish(View::new(segments, tables), active, quarantine)
}

/// Reason to set a file aside that may be whole.
const NOT_DELIVERED: &str = "the disk does not deliver it";

struct Opening {
    latch: Latch,
    notes: Vec<String>,
    /// Records of the active segment were dropped.
    has_dropped: bool,
    /// Names of the files that this opening has set aside.
    aside: Vec<String>,
    options: Options,
    /// The chain that the segments are of.
    found: Option<Identity>,
    stamp: Option<Stamp>,
    codec: Option<Arc<dyn PackedCodec>>,
    /// Held until all else is dropped.
    locks: Locks,
}

impl Opening {
    /// Takes the locks of the directory, and compares its chain with the one that the caller wants.
    fn begin(
        disk: Arc<dyn Disk>,
        options: Options,
        codec: Option<Arc<dyn PackedCodec>>,
    ) -> Result<Self, Error> {
        let locks = Locks::take(disk.dir())?;
        let stamp = Stamp::load(disk.dir())?;
        let latch = Latch::new(disk, options.disk_reserve_bytes);
        let (notes, has_dropped, aside, found) = (Vec::new(), false, Vec::new(), None);
        let opening =
            Self { latch, notes, has_dropped, aside, options, found, stamp, codec, locks };
        opening.check_identity(opening.latch.dir(), stamp.map(|stamp| stamp.identity))?;
        Ok(opening)
    }

    /// Compares the chain that the directory or the file at `path` is of.
    fn check_identity(&self, path: &Path, found: Option<Identity>) -> Result<(), Error> {
        let known = self.stamp.map(|stamp| stamp.identity).or(self.found);
        match (found, self.options.expected.or(known)) {
            (Some(found), Some(expected)) if found != expected => {
                Err(Error::WrongChain { path: path.to_owned(), found, expected })
            }
            _ => Ok(()),
        }
    }

    /// Removes leftovers of ours, but for a copy whose segment was set aside: that one gets its name. Files of others that
    /// end alike are left alone. Returns the other names.
    fn finish_names(&mut self, names: Vec<String>) -> Result<Vec<String>, Error> {
        let is_unfinished = |name: &String| parse_unfinished_name(name).is_some();
        let (unfinished, mut names): (Vec<_>, Vec<_>) = names.into_iter().partition(is_unfinished);
        for name in unfinished {
            let segment =
                parse_copy_name(&name).filter(|segment| !names.iter().any(|name| name == segment));
            let Some(segment) = segment else {
                self.latch.remove(&name)?;
                continue;
            };
            // It was whole before the segment was set aside.
            match self.latch.apply(Op::Rename { from: &name, to: segment }) {
                Err(error) if error.is_disk_full() => self.give_up_copy(segment, &error)?,
                renamed => {
                    renamed?;
                    self.latch.apply(Op::SyncDir)?;
                    names.push(segment.to_owned());
                }
            }
        }
        names.sort_unstable(); // so that segments come in height order
        Ok(names)
    }

    /// Removes the copy of a segment that gets no name: the heights below are served, and its own come again. No segment
    /// is begun before the copy is gone, as a later start would serve it.
    fn give_up_copy(&mut self, segment: &str, error: &Error) -> Result<(), Error> {
        self.notes.push(format!("{segment}: the copy of its readable records is removed; {error}"));
        self.latch.remove(&format!("{segment}{COPY}"))
    }

    /// Opens the longest run of segments that ends at the newest head; sets others aside.
    fn open_segments(
        &mut self,
        names: &[String],
    ) -> Result<(Vec<Arc<Segment>>, Option<Active>), Error> {
        let mut found = self.candidates(names)?;
        let mut opened = (Vec::new(), None);
        // A run of one unsealed segment may turn out empty; then the run below it has the newest head.
        while opened.0.is_empty() && !found.is_empty() {
            opened = self.open_run(take_run(&mut found))?; // empty if nothing in it is whole
        }
        for other in found {
            let (name, why) = (other.name(), other.why_kept(&opened.0));
            drop(other); // a file that is open keeps its bytes
            match why {
                Some(why) => self.set_aside(&name, why)?,
                None => self.latch.remove(&name)?,
            }
        }
        Ok(opened)
    }

    /// All files with a good header, ascending.
    fn candidates(&mut self, names: &[String]) -> Result<Vec<SegmentCandidate>, Error> {
        let mut found = Vec::new();
        for base in names.iter().filter_map(|name| parse_packed_name(name)) {
            found.extend(self.inspect_packed(base)?);
        }
        let bases: Vec<u64> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
        for base in &bases {
            found.extend(self.inspect(*base, bases.last() == Some(base))?);
        }
        found.sort_by_key(SegmentCandidate::base);
        Ok(found)
    }

    /// Opens a packed file; sets it aside if it is damaged.
    fn inspect_packed(&mut self, base: u64) -> Result<Option<SegmentCandidate>, Error> {
        let name = packed_name(base);
        let path = self.latch.dir().join(&name);
        // Without a codec it cannot be told from damage, and must not be set aside.
        let Some(codec) = &self.codec else { return Err(Error::OtherVersion { path }) };
        let damage = match Packed::open(&path, codec) {
            Ok(Ok(opened)) if opened.packed.header().first == base => {
                let segment = Segment::packed(opened).map_err(|error| Error::read(&path, error))?;
                self.note_identity(&path, segment.header.identity)?;
                return Ok(Some(SegmentCandidate::Packed(Box::new(segment))));
            }
            Ok(Ok(_)) => "its header has another first height".to_owned(),
            Ok(Err(PackedDamage::OtherVersion(_))) => return Err(Error::OtherVersion { path }),
            Ok(Err(damage)) => damage.to_string(),
            Err(error) if error.is_disk_failure() => NOT_DELIVERED.to_owned(),
            // The file is at fault, and not the disk: others can still be served.
            Err(Error::Read { source, .. }) if reads::is_of_the_file(&source) => source.to_string(),
            Err(error) => return Err(error),
        };
        self.set_aside(&name, &damage).map(|()| None)
    }

    fn note_identity(&mut self, path: &Path, identity: Identity) -> Result<(), Error> {
        self.check_identity(path, Some(identity))?;
        // From here on other segments must be of this chain, also without a stamp.
        self.found = Some(identity);
        Ok(())
    }

    /// Looks at a segment's header; sets the file aside if it is damaged.
    fn inspect(&mut self, base: u64, is_newest: bool) -> Result<Option<SegmentCandidate>, Error> {
        let name = segment_name(base);
        let path = self.latch.dir().join(&name);
        let candidate = match inspect(&path, base) {
            Ok(OpenedSegment::Sealed(header, seal)) => SegmentCandidate::Sealed(header, seal),
            Ok(OpenedSegment::Active(header)) => SegmentCandidate::Active(header),
            // A later release may have written it: renaming it would hide its heights from that release.
            Ok(OpenedSegment::Damaged(OTHER_VERSION)) => return Err(Error::OtherVersion { path }),
            // Power went before the first sync of it: nothing in it was ever safe.
            Ok(OpenedSegment::Blank) if is_newest => {
                return self.remove_blank(&name).map(|()| None);
            }
            Ok(OpenedSegment::Blank) => return self.set_aside(&name, "it is blank").map(|()| None),
            Ok(OpenedSegment::Damaged(damage)) => {
                return self.set_aside(&name, damage).map(|()| None);
            }
            Err(error) if error.is_disk_failure() => {
                return self.set_aside(&name, NOT_DELIVERED).map(|()| None);
            }
            Err(error) => return Err(error),
        };
        self.note_identity(&path, candidate.header().identity).map(|()| Some(candidate))
    }

    /// Removes a segment to which nothing was written.
    fn remove_blank(&mut self, name: &str) -> Result<(), Error> {
        self.notes.push(format!("{name}: removed, nothing was written to it"));
        self.latch.remove(name)
    }

    /// Sets a file aside. On a full disk it keeps its name and its bytes, and is set aside when there is space.
    fn set_aside(&mut self, name: &str, why: &str) -> Result<(), Error> {
        match self.set_aside_now(name, why) {
            Err(error) if error.is_disk_full() => {
                self.notes.push(format!("{name}: not set aside yet, {why}; {error}"));
                self.latch.keep(name);
                Ok(())
            }
            done => done,
        }
    }

    fn set_aside_now(&mut self, name: &str, why: &str) -> Result<(), Error> {
        let to = set_aside(&mut self.latch, name)?;
        self.notes.push(format!("{name}: set aside as {to}, {why}"));
        self.aside.push(to);
        Ok(())
    }

    fn open_run(
        &mut self,
        run: Vec<SegmentCandidate>,
    ) -> Result<(Vec<Arc<Segment>>, Option<Active>), Error> {
        let mut segments: Vec<Arc<Segment>> = Vec::with_capacity(run.len());
        let mut active = None;
        for candidate in run {
            match candidate {
                SegmentCandidate::Sealed(header, seal) => {
                    let path = self.latch.dir().join(segment_name(header.base_height));
                    segments.push(Arc::new(Segment::open_sealed(&path, header, &seal)?));
                }
                SegmentCandidate::Packed(segment) => segments.push(Arc::new(*segment)),
                SegmentCandidate::Active(header) => {
                    // Its first record must follow the last sealed block, else the range would have a break.
                    let newest;
                    (newest, active) = self.open_active(header, last_hash(&segments))?;
                    segments.extend(newest);
                }
            }
        }
        Ok((segments, active))
    }

    fn open_active(
        &mut self,
        header: SegmentHeader,
        parent: Option<Hash>,
    ) -> Result<(Option<Arc<Segment>>, Option<Active>), Error> {
        let (name, before) = (segment_name(header.base_height), self.notes.len());
        let recovered = recover(&mut self.latch, header, parent, &mut self.notes)?;
        // It notes nothing else; what the disk does not deliver is served as far as there is a copy.
        self.has_dropped |=
            self.notes.len() > before || matches!(recovered, Recovered::NotDelivered(_));
        match recovered {
            Recovered::Some(active) => {
                return Ok((Some(Arc::clone(&active.segment)), Some(active)));
            }
            Recovered::Nothing => self.latch.remove(&name)?, // the next may differ
            Recovered::Doubtful => self.set_aside(&name, "its first record is damaged")?,
            Recovered::NotDelivered(active) => return Ok((self.serve_copy(&active, &name)?, None)),
        }
        Ok((None, None))
    }

    /// Sets the active segment aside. Returns a copy of the records that were read, if there are any.
    fn serve_copy(&mut self, active: &Active, name: &str) -> Result<Option<Arc<Segment>>, Error> {
        // The copy first: an opening that ends half-way leaves the file in its place, or the copy for the next one.
        let copy = |_| copy_aside(&mut self.latch, &active.segment, COPY);
        let Some(copy) = active.tip.map(copy).transpose()? else {
            return self.set_aside(name, NOT_DELIVERED).map(|()| None);
        };
        self.put_copy(copy, name)
    }

    /// Serves a copy in place of the segment `name`, which is set aside. `None` on a full disk.
    fn put_copy(&mut self, copy: SealedCopy, name: &str) -> Result<Option<Arc<Segment>>, Error> {
        // Not later: the copy needs the name.
        self.set_aside(name, NOT_DELIVERED)?;
        match copy.take_name(&mut self.latch) {
            Err(error) if error.is_disk_full() => self.give_up_copy(name, &error).map(|()| None),
            below => Ok(Some(Arc::new(below?))),
        }
    }

    /// Opens the merged tables that speak of the blocks that are here; removes the others.
    fn open_tables(
        &mut self,
        names: &[String],
        segments: &[Arc<Segment>],
    ) -> Result<Vec<Arc<Merged>>, Error> {
        let mut tables: Vec<Arc<Merged>> = Vec::new();
        // By first height, the longer one first, so that a finished merge hides its sources.
        let mut found: Vec<_> = names.iter().filter_map(|name| parse_table_name(name)).collect();
        found.sort_unstable_by_key(|(first, last)| (*first, std::cmp::Reverse(*last)));
        for (first, last) in found {
            let name = table_name(first, last);
            let after = tables.last().is_none_or(|table| table.header.last < first);
            match open_table(&self.latch.dir().join(&name), segments) {
                Ok(Some(table)) if after => tables.push(Arc::new(table)),
                Ok(_) => remove_table(&mut self.latch, &name)?,
                Err(error) if error.is_disk_failure() => {
                    tracing::warn!(file = name, %error, "hash table not used");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(tables)
    }

    fn finish(
        self,
        view: View,
        active: Option<Active>,
        quarantine: Quarantine,
    ) -> Result<Opened, Error> {
        let head = newest(self.latch.dir(), &view)?;
        let has_dropped = self.has_dropped || is_any_above(&self.aside, head);
        let view = Arc::new(ArcSwap::from_pointee(view));
        let mut writer = Writer {
            stamp: self.stamp,
            active,
            quarantine,
            codec: self.codec,
            head,
            ..Writer::new(self.latch, self.options, Arc::clone(&view), self.locks)
        };
        if let (None, Some(identity)) = (self.stamp, self.found) {
            writer.bind(identity, 0)?; // it was lost, and the segments know
        }
        let reader = Reader::new(view, Arc::clone(&writer.quarantine.shown));
        Opened { writer, reader, notes: self.notes, has_dropped }.rejoined()
    }
}

impl Opened {
    /// Serves segments again that were set aside, as far as they join.
    fn rejoined(mut self) -> Result<Self, Error> {
        // What was set aside may join now, because a gap was filled before the last end.
        let rejoined = self.writer.rejoin()?;
        if rejoined > 0 {
            let note = format!("{rejoined} heights that were set aside are served again");
            self.notes.push(note);
        }
        Ok(self)
    }
}

fn last_hash(segments: &[Arc<Segment>]) -> Option<Hash> {
    Some(segments.last()?.tip()?.1)
}
