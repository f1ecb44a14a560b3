//! Heights below the served range: built aside, published whole.
//!
//! A [`History`] takes the records of an interval in ascending order, on any thread, and writes
//! them into segments under unfinished names, which the next opening removes. Nobody sees anything
//! of it until [`crate::Writer::prepend`] finds that its last block is the parent of the first
//! served one: so the served range stays one unbroken interval of linked blocks.

use std::sync::Arc;

use crate::active::Active;
use crate::disk::{Latch, Op};
use crate::error::Error;
use crate::format::{RecordHead, SegmentHeader};
use crate::incoming::Incoming;
use crate::options::Options;
use crate::record::{Hash, Record};
use crate::segment::Segment;
use crate::stamp::Identity;

/// Builds segments of an interval of heights.
pub struct History {
    latch: Latch,
    options: Options,
    identity: Identity,
    built: Built,
    active: Option<Unfinished>,
    /// Height and hash of the newest record.
    head: Option<(u64, Hash)>,
}

/// Segments that are whole and safe on the disk, and not published yet. What is dropped before it
/// is published is removed.
pub struct Built {
    pub(crate) latch: Latch,
    /// Ascending, each beginning where the one before ends.
    pub(crate) segments: Vec<(Arc<Segment>, String)>,
    /// Height and hash of the newest record.
    pub(crate) last: Option<(u64, Hash)>,
}

/// A segment that is being written. Its file goes with it, unless it is whole.
struct Unfinished {
    latch: Latch,
    active: Active,
    kept: bool,
}

impl History {
    pub(crate) fn new(latch: &Latch, options: Options, identity: Identity) -> Self {
        let built = Built { latch: latch.beside(), segments: Vec::new(), last: None };
        Self { latch: latch.beside(), options, identity, built, active: None, head: None }
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
        let mut unfinished = match self.active.take() {
            Some(unfinished) if unfinished.active.fits(record) => unfinished,
            full => self.roll(full, record)?,
        };
        let appended = unfinished.active.append(&mut self.latch, record);
        self.active = Some(unfinished);
        appended?;
        self.head = Some((record.height, record.hash));
        Ok(())
    }

    /// Begins, or goes on, to take the sealed segment that begins at `base` as a file.
    pub fn receive(&self, base: u64) -> Result<Incoming, Error> {
        Incoming::open(self.latch.beside(), base)
    }

    fn roll(&mut self, full: Option<Unfinished>, record: &Record) -> Result<Unfinished, Error> {
        self.active = full;
        self.seal()?;
        let alone = Active::bytes_for(record.encoded_len(), &RecordHead::of(record));
        let bytes = self.options.segment_bytes.max(alone);
        let header = SegmentHeader::new(self.identity, record.height, self.options.span, bytes);
        let active = Active::create_aside(&mut self.latch, header)?;
        Ok(Unfinished { latch: self.latch.beside(), active, kept: false })
    }

    fn seal(&mut self) -> Result<(), Error> {
        let Some(mut unfinished) = self.active.take() else { return Ok(()) };
        // Its first record may not have got there.
        let Some(tip) = unfinished.active.tip else { return Ok(()) };
        let segment = unfinished.active.seal(&mut self.latch)?;
        unfinished.kept = true;
        let name = unfinished.active.name().to_owned();
        self.built.segments.push((Arc::new(segment), name));
        self.built.last = Some((tip.height, tip.hash));
        Ok(())
    }

    /// Seals what was appended and makes it safe.
    pub fn finish(mut self) -> Result<Built, Error> {
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

impl Built {
    /// The lowest height.
    pub fn first(&self) -> Option<u64> {
        Some(self.segments.first()?.0.base())
    }

    /// Height and hash of the newest record.
    pub fn last(&self) -> Option<(u64, Hash)> {
        self.last
    }

    /// Bytes that they take on disk.
    pub fn disk_bytes(&self) -> u64 {
        self.segments.iter().map(|(segment, _)| segment.disk_bytes).sum()
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        for (_, name) in std::mem::take(&mut self.segments) {
            remove(&mut self.latch, &name);
        }
    }
}

/// What cannot be removed now is removed at the next opening.
fn remove(latch: &mut Latch, name: &str) {
    if let Err(error) = latch.apply(Op::Remove { name }) {
        tracing::warn!(name, %error, "an unfinished segment stays until the next start");
    }
}
