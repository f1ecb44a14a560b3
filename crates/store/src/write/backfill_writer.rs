//! Heights below the served range: built aside, published whole.
//!
//! A [`BackfillWriter`] takes the records of an interval in ascending order, on any thread, and writes
//! them into segments under unfinished names, which the next opening removes. Readers see nothing
//! of it until [`crate::Writer::prepend`] finds that its last block is the parent of the first
//! served one: so the served range stays one unbroken interval of linked blocks.

use std::sync::Arc;

use super::built_segments::{BuiltSegments, remove};
use super::options::{Options, range_blocks};
use super::partial_segment::{PartialSegment, forget_others};
use crate::disk::{Claim, Latch, UNFINISHED, segment_name};
use crate::error::Error;
use crate::format::{Record, RecordHeader, SegmentHeader, Slot};
use crate::id::{Hash, Identity};
use crate::memory::residency;
use crate::segment::{Active, PACKED_SENT_BYTES_MAX, PackedCodec, Segment};

/// Builds segments of an interval of heights.
pub struct BackfillWriter {
    latch: Latch,
    options: Options,
    identity: Identity,
    built: BuiltSegments,
    active: Option<Unfinished>,
    /// Codec of packed files. With one, a segment ends before each range that they hold.
    codec: Option<Arc<dyn PackedCodec>>,
    /// Height and hash of the newest record.
    head: Option<(u64, Hash)>,
    /// Ending of the names of unfinished files.
    unfinished: &'static str,
}

/// A segment that is being written. Its file goes with it, unless it is whole.
struct Unfinished {
    latch: Latch,
    active: Active,
    claim: Option<Claim>,
    kept: bool,
}

impl BackfillWriter {
    pub(crate) fn new(
        latch: &Latch,
        options: Options,
        identity: Identity,
        codec: Option<Arc<dyn PackedCodec>>,
    ) -> Self {
        let (segments, claims) = (Vec::new(), Vec::new());
        let built = BuiltSegments { latch: latch.beside(), segments, last: None, claims };
        let latch = latch.beside();
        let (active, head, unfinished) = (None, None, UNFINISHED);
        Self { latch, options, identity, built, active, codec, head, unfinished }
    }

    /// Gives the names of unfinished files another ending, which opening knows too.
    pub(crate) fn with_unfinished(self, unfinished: &'static str) -> Self {
        Self { unfinished, ..self }
    }

    /// Lets it use half of the reserve, as what it writes is packed next.
    pub(crate) fn in_reserve(self) -> Self {
        Self { latch: self.latch.beside_in_reserve(), ..self }
    }

    /// Fails if the disk has no space for `bytes` beside a segment that is being written.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<(), Error> {
        self.latch.check_room(bytes + self.options.segment_bytes)
    }

    /// Height and hash of the newest record.
    pub fn head(&self) -> Option<(u64, Hash)> {
        self.head
    }

    /// Adds the next height. The first may have any.
    pub fn append(&mut self, record: &Record) -> Result<(), Error> {
        record.check_limits()?;
        if let Some((height, head)) = self.head {
            record.check_follows(height, head)?;
        }
        let begins_range = self.begins_range(record.height);
        let mut unfinished = match self.active.take() {
            Some(unfinished) if unfinished.active.fits(record) && !begins_range => unfinished,
            full => self.roll(full, record)?,
        };
        let appended = unfinished.active.append(&mut self.latch, record);
        // Put back after an error, too: it has the heights before this one.
        self.active = Some(unfinished);
        appended?;
        self.head = Some((record.height, record.hash));
        Ok(())
    }

    /// Adds the next height as `from` has it. False if it is damaged there: nothing is added.
    pub(crate) fn append_stored(&mut self, from: &Segment, height: u64) -> Result<bool, Error> {
        let Some((head, stored)) = self.next_stored(from, height) else { return Ok(false) };
        let (hash, len) = (head.hash, stored.1.len() as u64);
        let begins_range = self.begins_range(height);
        let mut unfinished = match self.active.take() {
            Some(unfinished) if unfinished.active.has_room(len, &head) && !begins_range => {
                unfinished
            }
            full => {
                self.active = full;
                self.seal()?;
                self.create(height, Active::bytes_for(len, &head))?
            }
        };
        let appended = unfinished.active.append_stored(&mut self.latch, height, Some(stored));
        self.active = Some(unfinished);
        appended?;
        self.head = Some((height, hash));
        Ok(true)
    }

    /// Header and bytes of the next height as `from` has it; `None` if it is damaged there.
    fn next_stored(&self, from: &Segment, height: u64) -> Option<(RecordHeader, (Slot, Vec<u8>))> {
        residency::loaded(|| from.proven(height).ok()?)?;
        // The disk may fail now, or give other bytes.
        let (head, stored) = from.stored_intact(height)?;
        // A damaged header could name any parent, so a break of the chain counts as damage.
        let next = (height, head.parent);
        let follows = self.head.is_none_or(|(last, hash)| (last + 1, hash) == next);
        follows.then_some((head, stored))
    }

    /// Begins, or goes on, to take the sealed segment that begins at `base` as a file. It may have twice the bytes of an own
    /// segment, or of one of the default size.
    pub fn receive(&self, base: u64) -> Result<PartialSegment, Error> {
        PartialSegment::open(self.latch.beside(), base, self.options.received_bytes_max(), None)
    }

    /// Begins, or goes on, to take the packed file that begins at `base`. `None` without a codec.
    pub fn receive_packed(&self, base: u64) -> Result<Option<PartialSegment>, Error> {
        let Some(codec) = self.codec.clone() else { return Ok(None) };
        let capacity_max = PACKED_SENT_BYTES_MAX;
        PartialSegment::open(self.latch.beside(), base, capacity_max, Some(codec)).map(Some)
    }

    /// Removes what has arrived of files whose base height `keeps` does not take: no transfer goes on with it. A file that
    /// another thread has open stays, and so does one that the disk has no space to remove.
    pub fn forget_arriving(&self, keeps: impl Fn(u64) -> bool) -> Result<(), Error> {
        forget_others(&mut self.latch.beside(), keeps)
    }

    fn begins_range(&self, height: u64) -> bool {
        // Whole ranges are packed: a segment over the end of one could not be.
        self.codec.is_some()
            && height.is_multiple_of(range_blocks(self.options.segment_blocks).into())
    }

    fn roll(&mut self, full: Option<Unfinished>, record: &Record) -> Result<Unfinished, Error> {
        self.active = full;
        self.seal()?;
        let alone = Active::bytes_for(record.encoded_len(), &RecordHeader::of(record));
        self.create(record.height, alone)
    }

    fn create(&mut self, base: u64, bytes_min: u64) -> Result<Unfinished, Error> {
        let bytes = self.options.segment_bytes.max(bytes_min);
        let header = SegmentHeader::new(self.identity, base, self.options.segment_blocks, bytes);
        // An interval that was given up may still remove its own.
        let claim = self.latch.claim(&format!("{}{}", segment_name(base), self.unfinished))?;
        let active = Active::create_aside(&mut self.latch, header, self.unfinished)?;
        Ok(Unfinished { latch: self.latch.beside(), active, claim: Some(claim), kept: false })
    }

    fn seal(&mut self) -> Result<(), Error> {
        let Some(mut unfinished) = self.active.take() else { return Ok(()) };
        // Its first record may not have got there.
        let Some(tip) = unfinished.active.tip else { return Ok(()) };
        let segment = unfinished.active.seal(&mut self.latch)?;
        // From here on `built` removes the file, unless it is published.
        unfinished.kept = true;
        let name = unfinished.active.name().to_owned();
        self.built.segments.push((Arc::new(segment), name));
        self.built.claims.extend(unfinished.claim.take());
        self.built.last = Some((tip.height, tip.hash));
        Ok(())
    }

    /// Seals what was appended and makes it safe.
    pub fn finish(mut self) -> Result<BuiltSegments, Error> {
        self.seal()?;
        Ok(self.built)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.kept {
            remove(&mut self.latch, self.active.name());
        }
    }
}
