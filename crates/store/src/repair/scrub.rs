//! Reading a sealed segment whole, to find damage before a client does.
//!
//! It is `verify` of one file whose findings are remembered in the served segment: damaged records
//! are misses from then on, intact ones need no check at their first read.
//!
//! Pages that were read are not given back (`POSIX_FADV_DONTNEED`): that drops every page of the file that
//! no process has mapped just now, also one that a serving thread has found resident and is about to
//! touch. The kernel lets pages that were read once go first.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use crate::error::Error;
use crate::memory::residency;
use crate::read::Reader;
use crate::reads;
use crate::segment::{PackedCodec, Segment};
use crate::verify::{self, Finding, Stored, Visitor};

impl Reader {
    /// Reads the sealed segment of the store in `dir` that begins at `base`. `pause` hears of each
    /// chunk how many bytes it has, and may wait. Returns false if there is no such segment, or if its file is gone.
    pub fn scrub(&self, dir: &Path, base: u64, pause: &mut dyn FnMut(u64)) -> Result<bool, Error> {
        let sealed = |segment: &&Arc<Segment>| segment.base() == base && !segment.is_active();
        // This segment alone is held, while `pause` waits: others may be evicted, and their bytes come back.
        let segment = self.view().segments.iter().find(sealed).map(Arc::clone);
        let Some(segment) = segment else { return Ok(false) };
        let segment = &segment;
        let path = dir.join(segment.name());
        let mut scrub = Scrub { segment, pause, misplaced: None };
        match verify::segment(&path, &mut scrub) {
            Ok(_) => scrub.settle(None),
            // Evicted, or removed by another program: the writer writes it anew from memory, and nothing is damaged.
            Err(Error::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(false);
            }
            // Another error says nothing of the file's bytes: that of too many open files, say.
            Err(Error::Read { source, .. }) if reads::is_of_the_file(&source) => {
                note_unreadable(segment, &source);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Compares the merged hash tables of the store in `dir` with their checksums. The writer removes a damaged one, and
    /// a later merge makes it again. `pause` hears of each chunk how many bytes it has, and may wait.
    pub fn scrub_tables(&self, dir: &Path, pause: &mut dyn FnMut(u64)) -> Result<(), Error> {
        // Each is held while it is read, and no segment is: eviction goes on.
        let tables = self.view().tables.clone();
        tables.iter().try_for_each(|table| table.check(dir, pause))
    }
}

/// Notes that the file of a segment cannot be read from end to end.
fn note_unreadable(segment: &Segment, error: &io::Error) {
    segment.checked.note_sections(segment.base(), &error.to_string());
    // Which records cannot be read, record by record.
    (segment.base()..segment.end_height()).for_each(|height| {
        let _ = residency::with_blocking_reads(|| segment.record(height));
    });
}

struct Scrub<'a> {
    segment: &'a Segment,
    pause: &'a mut dyn FnMut(u64),
    /// A height whose record is not where the one before ends, which is no damage of its own
    /// if that one is damaged.
    misplaced: Option<u64>,
}

impl Scrub<'_> {
    fn slot(&self, height: u64) -> Option<u32> {
        let at = height.checked_sub(self.segment.base())?;
        (at < u64::from(self.segment.count())).then_some(at as u32)
    }

    /// Notes the misplaced height as damaged, unless its record is `intact`.
    fn settle(&mut self, intact: Option<u64>) {
        // A record may be intact where another slot has it: then only the place is wrong.
        let misplaced = self.misplaced.take().filter(|height| intact != Some(*height));
        if let Some(at) = misplaced.and_then(|height| self.slot(height)) {
            self.segment.checked.note_damaged(
                self.segment.base(),
                at,
                "record is not in its place",
            );
        }
    }
}

impl Visitor for Scrub<'_> {
    fn finding(&mut self, finding: Finding) {
        self.settle(finding.height);
        let (base, checked) = (self.segment.base(), &self.segment.checked);
        match finding.height.and_then(|height| self.slot(height)) {
            Some(_) if finding.kind == "index" && finding.is_misplaced() => {
                self.misplaced = finding.height;
            }
            // Padding belongs to no record, so the record may be intact.
            Some(at) if finding.kind != "padding" => checked.note_damaged(base, at, finding.kind),
            _ => checked.note_sections(base, &finding.detail),
        }
    }

    fn record(&mut self, record: &Stored<'_>) {
        self.settle(Some(record.height));
        if let Some(at) = self.slot(record.height) {
            self.segment.checked.note_intact(at);
        }
    }

    fn codec(&self) -> Option<Arc<dyn PackedCodec>> {
        Some(Arc::clone(&self.segment.as_packed()?.codec))
    }

    fn progress(&mut self, bytes: u64) {
        (self.pause)(bytes);
    }
}
