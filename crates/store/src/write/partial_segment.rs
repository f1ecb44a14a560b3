//! A sealed segment's file, or a packed file, as it arrives: in chunks, over restarts, and not yet
//! verified.
//!
//! It is written from its start under a name that no opening takes for a segment. The file survives an
//! opening: bytes from before a restart are kept as far as their records pass their checksums. The
//! receiver verifies all of it ([`PartialSegment::verify`]) before it publishes it like any history.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::built_segments::{BuiltSegments, remove};
use crate::disk::{
    Claim, Latch, Op, list, packed_name, parse_packed_name, parse_segment_name, segment_name,
};
use crate::error::Error;
use crate::format::{PAGE, SLOT_LEN, Seal, SegmentHeader, Slot, aligned, array, slot_offset};
use crate::id::Hash;
use crate::reads;
use crate::segment::{OpenedSegment, Packed, PackedCodec, SealedPage, Segment, inspect};
use crate::verify::{self, Summary, Visitor};

/// Ending of the names of files on their way.
const SUFFIX: &str = ".part";

/// A segment's file on its way, or a packed file.
pub struct PartialSegment {
    latch: Latch,
    base: u64,
    name: String,
    claim: Claim,
    /// Bytes of the longest file that is taken.
    capacity_max: u64,
    /// Codec of the packed file; `None` if it is a segment.
    codec: Option<Arc<dyn PackedCodec>>,
    /// Content of the header page, once it is there.
    page: Option<SealedPage>,
    /// First bytes, while they do not tell what the file is.
    start: Vec<u8>,
    /// Bytes that are written.
    have: u64,
}

/// Base heights of the segments that are on their way to the store in `dir`.
pub fn arriving(dir: &Path) -> Result<Vec<u64>, Error> {
    Ok(list(dir)?.iter().filter_map(|name| parse_arriving(name)).collect())
}

/// The base height in the name of a file on its way; `None` if it is another name.
fn parse_arriving(name: &str) -> Option<u64> {
    let whole = name.strip_suffix(SUFFIX)?;
    parse_segment_name(whole).or_else(|| parse_packed_name(whole))
}

/// Removes files on their way whose base height `keeps` does not take, except those that a thread has open.
pub(super) fn forget_others(latch: &mut Latch, keeps: impl Fn(u64) -> bool) -> Result<(), Error> {
    for name in list(latch.dir())? {
        if parse_arriving(&name).is_some_and(|base| !keeps(base))
            && let Some(_claim) = latch.claim_if_free(&name)
        {
            tracing::info!(file = name, "unfinished download removed");
            remove(latch, &name);
        }
    }
    Ok(())
}

impl PartialSegment {
    /// Opens the file that begins at `base`, of at most `capacity_max` bytes: a packed one if there is a codec. Waits for
    /// the threads that have it open: a transfer that was given up may still write.
    pub(crate) fn open(
        latch: Latch,
        base: u64,
        capacity_max: u64,
        codec: Option<Arc<dyn PackedCodec>>,
    ) -> Result<Self, Error> {
        let name = if codec.is_some() { packed_name(base) } else { segment_name(base) };
        let (name, start) = (format!("{name}{SUFFIX}"), Vec::new());
        let claim = latch.claim(&name)?;
        let (page, have) = (None, 0);
        let mut incoming =
            Self { latch, base, name, claim, capacity_max, codec, page, start, have };
        if incoming.is_there()? {
            incoming.resume()?;
        }
        Ok(incoming)
    }

    /// Keeps the intact beginning of the file, or forgets all of it.
    fn resume(&mut self) -> Result<(), Error> {
        let intact = match self.codec.clone() {
            Some(codec) => self.intact_packed(&*codec),
            None => self.intact(),
        };
        match intact {
            Some((page, have)) => (self.page, self.have) = (Some(page), have),
            None => self.restart()?,
        }
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.latch.dir().join(&self.name)
    }

    fn is_there(&self) -> Result<bool, Error> {
        reads::is_there(&self.path()).map_err(|error| Error::read(self.path(), error))
    }

    /// Fills `bytes` from `offset` on; `None` if the file has not as many, or the disk does not deliver them.
    fn fill(&self, bytes: &mut [u8], offset: u64) -> Option<()> {
        let read = || reads::read_exact(&reads::open_regular(&self.path())?, bytes, offset);
        reads::again(reads::is_disk_failure, read).ok()
    }

    /// Intact beginning of the file: the page, the index, and records up to the
    /// first that is not.
    fn intact(&self) -> Option<(SealedPage, u64)> {
        let mut page = [0; PAGE];
        self.fill(&mut page, 0)?;
        let header = SegmentHeader::parse(&page).ok()?;
        let seal = Seal::parse(&page, &header).ok()??;
        let page = SealedPage::parse(&page).ok()?.filter(|page| self.takes(page))?;
        let mut slots = vec![0; seal.count as usize * SLOT_LEN];
        self.fill(&mut slots, slot_offset(0))?;
        let slot = |(height, slot)| Slot::parse(&array(slot, 0), height, header.capacity).ok();
        // Parsed twice: a list of all could take more than the index itself, whose length the source says.
        let parsed = || (header.base_height..).zip(slots.chunks_exact(SLOT_LEN)).map(slot);
        // The transfer may have ended within the index: then its last slots are not there.
        if parsed().any(|slot| slot.is_none()) {
            return None;
        }
        Some((page, self.intact_end(header.data_offset, parsed().flatten())))
    }

    /// Offset at which the intact records of these slots end. The first begins at `have`.
    fn intact_end(&self, mut have: u64, slots: impl Iterator<Item = Slot>) -> u64 {
        for slot in slots {
            let mut bytes = vec![0; slot.length as usize];
            let read = self.fill(&mut bytes, slot.offset);
            // Records arrive in order, so the first gap or damage ends what the transfer may keep.
            if slot.offset != have || read.is_none() || crc32fast::hash(&bytes) != slot.record_crc {
                break;
            }
            have = aligned(slot.offset + u64::from(slot.length));
        }
        have
    }

    /// Intact beginning of a packed file.
    fn intact_packed(&self, codec: &dyn PackedCodec) -> Option<(SealedPage, u64)> {
        let mut bytes = vec![0; codec.start_bytes()];
        self.fill(&mut bytes, 0)?;
        let page = SealedPage::packed(codec, &bytes).filter(|page| self.takes(page))?;
        // The length in the header is the sender's: it must not decide how much memory is taken.
        if page.bytes > reads::length_of(&self.path()).ok()? {
            return None;
        }
        bytes.resize(page.bytes as usize, 0);
        self.fill(&mut bytes, 0)?;
        let have = codec.intact_bytes(&bytes);
        (have >= codec.start_bytes() as u64).then_some((page, have))
    }

    /// True if a header page may be that of the file. Its sender says the capacity, which is allocated before any of the
    /// other bytes is here.
    fn takes(&self, page: &SealedPage) -> bool {
        page.base == self.base && page.capacity <= self.capacity_max
    }

    /// Content of its first bytes, once they have arrived.
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
        if self.is_there()? {
            self.latch.apply(Op::Remove { name: &self.name })?;
        }
        Ok(())
    }

    /// Takes the next bytes. False if they cannot be those of such a segment, or of one that is taken.
    pub fn write(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        let Some(page) = &self.page else { return self.write_start(bytes) };
        // The source sends more than its header says.
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
        let needed = self.codec.as_ref().map_or(PAGE, |codec| codec.start_bytes());
        if self.start.len() < needed {
            return Ok(true);
        }
        let page = match &self.codec {
            Some(codec) => SealedPage::packed(&**codec, &self.start[..needed]),
            None => SealedPage::parse(&array(&self.start, 0)).ok().flatten(),
        };
        let Some(page) = page.filter(|page| self.takes(page)) else { return Ok(false) };
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
        let read = reads::open_regular(&self.path())
            .and_then(|file| reads::read_some(&file, &mut bytes, offset));
        bytes.truncate(read.unwrap_or(0));
        bytes
    }

    /// Looks at every byte of it, as `neve verify` does.
    pub fn verify(&self, visitor: &mut dyn Visitor) -> Result<Summary, Error> {
        match &self.codec {
            Some(codec) => verify::packed(&self.path(), &**codec, visitor),
            None => verify::segment(&self.path(), visitor),
        }
    }

    /// Makes it safe, and ready to be published. The caller has looked at all of it.
    pub fn finish(mut self) -> Result<BuiltSegments, Error> {
        let (segment, last) = match self.codec.clone() {
            Some(codec) => self.finish_packed(&codec)?,
            None => self.finish_sealed()?,
        };
        let segments = vec![(Arc::new(segment), self.name)];
        Ok(BuiltSegments {
            latch: self.latch,
            segments,
            last: Some(last),
            claims: vec![self.claim],
        })
    }

    fn finish_sealed(&mut self) -> Result<(Segment, (u64, Hash)), Error> {
        let path = self.path();
        let OpenedSegment::Sealed(header, seal) = inspect(&path, self.base)? else {
            return Err(Error::read(path, std::io::Error::other("it is not sealed")));
        };
        self.latch.apply(Op::Sync { name: &self.name })?;
        let offset = seal.end.next_multiple_of(PAGE as u64);
        // The source's segment has space for more records, which a sealed one never gets.
        self.latch.apply(Op::Punch { name: &self.name, offset })?;
        let last = (header.base_height + u64::from(seal.count) - 1, seal.last_hash);
        Ok((Segment::open_sealed(&path, header, &seal)?, last))
    }

    fn finish_packed(
        &mut self,
        codec: &Arc<dyn PackedCodec>,
    ) -> Result<(Segment, (u64, Hash)), Error> {
        let path = self.path();
        // Before it gets its name: a name must not stand for bytes that power loss takes.
        self.latch.apply(Op::Sync { name: &self.name })?;
        let damaged = |what: String| Error::read(&path, std::io::Error::other(what));
        let opened = Packed::open(&path, codec)?.map_err(|damage| damaged(damage.to_string()))?;
        let segment = Segment::packed(opened).map_err(|error| Error::read(&path, error))?;
        let last = segment.tip().ok_or_else(|| damaged("it has no last block".into()))?;
        Ok((segment, last))
    }
}
