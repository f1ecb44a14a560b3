//! A sealed segment's file as it arrives: in pieces, over restarts, and believed by nobody.
//!
//! It is written from its start under a name that no opening takes for a segment, and that survives
//! one: what came before a restart is kept as far as its records pass their checksums. Whoever gets
//! it looks at all of it ([`PartialSegment::verify`]) before it is published like any history.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::built_segments::BuiltSegments;
use crate::disk::{Latch, Op, list, open_regular, parse_segment_name, segment_name};
use crate::error::Error;
use crate::format::{PAGE, SLOT_LEN, Seal, SegmentHeader, Slot, aligned, array, slot_offset};
use crate::segment::{OpenedSegment, SealedPage, Segment, inspect};
use crate::verify::{self, Summary, Visitor};

const SUFFIX: &str = ".part";

/// A segment's file on its way.
pub struct PartialSegment {
    latch: Latch,
    base: u64,
    name: String,
    /// Content of the header page, once it is there.
    page: Option<SealedPage>,
    /// Bytes of the header page, while it is not whole.
    start: Vec<u8>,
    /// Bytes that are written.
    have: u64,
}

/// Base heights of the segments that are on their way to the store in `dir`.
pub fn arriving(dir: &Path) -> Result<Vec<u64>, Error> {
    let names = list(dir)?;
    Ok(names.iter().filter_map(|name| parse_segment_name(name.strip_suffix(SUFFIX)?)).collect())
}

impl PartialSegment {
    pub(crate) fn open(latch: Latch, base: u64) -> Result<Self, Error> {
        let name = format!("{}{SUFFIX}", segment_name(base));
        let mut incoming = Self { latch, base, name, page: None, start: Vec::new(), have: 0 };
        if incoming.path().exists() {
            match incoming.intact() {
                Some((page, have)) => (incoming.page, incoming.have) = (Some(page), have),
                None => incoming.restart()?,
            }
        }
        Ok(incoming)
    }

    fn path(&self) -> PathBuf {
        self.latch.dir().join(&self.name)
    }

    /// Intact beginning of the file: the page, the index, and records up to the
    /// first that is not.
    fn intact(&self) -> Option<(SealedPage, u64)> {
        let file = open_regular(&self.path()).ok()?;
        let mut page = [0; PAGE];
        file.read_exact_at(&mut page, 0).ok()?;
        let header = SegmentHeader::parse(&page).ok()?;
        let seal = Seal::parse(&page, &header).ok()??;
        let page = SealedPage::parse(&page).ok()??;
        let mut slots = vec![0; seal.count as usize * SLOT_LEN];
        file.read_exact_at(&mut slots, slot_offset(0)).ok()?;
        let mut have = header.data_offset;
        for (at, slot) in slots.chunks_exact(SLOT_LEN).enumerate() {
            let height = header.base_height + at as u64;
            let slot = Slot::parse(&array(slot, 0), height, header.capacity).ok()?;
            let mut bytes = vec![0; slot.length as usize];
            let read = file.read_exact_at(&mut bytes, slot.offset);
            if slot.offset != have || read.is_err() || crc32fast::hash(&bytes) != slot.record_crc {
                break;
            }
            have = aligned(slot.offset + u64::from(slot.length));
        }
        Some((page, have)).filter(|(page, _)| page.base == self.base)
    }

    /// Content of its header page, once it has arrived.
    pub fn page(&self) -> Option<&SealedPage> {
        self.page.as_ref()
    }

    /// Bytes that are here, from the start.
    pub fn have(&self) -> u64 {
        self.have + self.start.len() as u64
    }

    /// Forgets all that is here.
    pub fn restart(&mut self) -> Result<(), Error> {
        (self.page, self.have) = (None, 0);
        self.start.clear();
        if self.path().exists() {
            self.latch.apply(Op::Remove { name: &self.name })?;
        }
        Ok(())
    }

    /// Takes the next bytes. False if they cannot be those of such a segment.
    pub fn write(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        let Some(page) = &self.page else { return self.write_start(bytes) };
        if self.have + bytes.len() as u64 > page.bytes {
            return Ok(false);
        }
        self.latch.apply(Op::Write { name: &self.name, offset: self.have, bytes })?;
        self.have += bytes.len() as u64;
        Ok(true)
    }

    /// The file is made when it is known how large it becomes.
    fn write_start(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        self.start.extend_from_slice(bytes);
        if self.start.len() < PAGE {
            return Ok(true);
        }
        let Ok(Some(page)) = SealedPage::parse(&array(&self.start, 0)) else { return Ok(false) };
        if page.base != self.base {
            return Ok(false);
        }
        self.latch.allocate(&self.name, page.capacity)?;
        self.page = Some(page);
        let start = std::mem::take(&mut self.start);
        self.write(&start)
    }

    /// True if all of it is here.
    pub fn is_whole(&self) -> bool {
        self.page.as_ref().is_some_and(|page| self.have == page.bytes)
    }

    /// At most `len` bytes from `offset` on, as far as they can be read.
    pub fn piece(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let read = open_regular(&self.path()).and_then(|file| file.read_at(&mut bytes, offset));
        bytes.truncate(read.unwrap_or(0));
        bytes
    }

    /// Looks at every byte of it, as `neve verify` does.
    pub fn verify(&self, visitor: &mut dyn Visitor) -> Result<Summary, Error> {
        verify::segment(&self.path(), visitor)
    }

    /// Makes it safe, and ready to be published. The caller has looked at all of it.
    pub fn finish(mut self) -> Result<BuiltSegments, Error> {
        let path = self.path();
        let opened = match inspect(&path, self.base)? {
            OpenedSegment::Sealed(header, seal) => {
                self.latch.apply(Op::Sync { name: &self.name })?;
                let offset = seal.end.next_multiple_of(PAGE as u64);
                self.latch.apply(Op::Punch { name: &self.name, offset })?;
                let last = (header.base_height + u64::from(seal.count) - 1, seal.last_hash);
                (Segment::open_sealed(&path, header, &seal)?, last)
            }
            _ => return Err(Error::read(path, std::io::Error::other("it is not sealed"))),
        };
        let (segment, last) = opened;
        let segments = vec![(Arc::new(segment), self.name)];
        Ok(BuiltSegments { latch: self.latch, segments, last: Some(last) })
    }
}
