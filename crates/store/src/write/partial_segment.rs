//! A sealed segment's file, or a packed file, as it arrives: in pieces, over restarts, and not yet
//! verified.
//!
//! It is written from its start under a name that no opening takes for a segment. The file survives an
//! opening: bytes from before a restart are kept as far as their records pass their checksums. The
//! receiver verifies all of it ([`PartialSegment::verify`]) before it publishes it like any history.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::built_segments::BuiltSegments;
use crate::disk::{
    Claim, Latch, Op, list, packed_name, parse_packed_name, parse_segment_name, segment_name,
};
use crate::error::Error;
use crate::format::{PAGE, SLOT_LEN, Seal, SegmentHeader, Slot, aligned, array, slot_offset};
use crate::id::Hash;
use crate::reads;
use crate::segment::{OpenedSegment, Packed, PackedCodec, SealedPage, Segment, inspect};
use crate::verify::{self, Summary, Visitor};

const SUFFIX: &str = ".part";

/// A segment's file on its way, or a packed file.
pub struct PartialSegment {
    latch: Latch,
    base: u64,
    name: String,
    claim: Claim,
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
    let base_of = |name: &str| parse_segment_name(name).or_else(|| parse_packed_name(name));
    let names = list(dir)?;
    Ok(names.iter().filter_map(|name| base_of(name.strip_suffix(SUFFIX)?)).collect())
}

impl PartialSegment {
    /// Opens the file that begins at `base`: a packed one if there is a codec. Waits for whoever has it open: a transfer that
    /// was given up may still write.
    pub(crate) fn open(
        latch: Latch,
        base: u64,
        codec: Option<Arc<dyn PackedCodec>>,
    ) -> Result<Self, Error> {
        let name = if codec.is_some() { packed_name(base) } else { segment_name(base) };
        let (name, start) = (format!("{name}{SUFFIX}"), Vec::new());
        let claim = latch.claim(&name)?;
        let mut incoming = Self { latch, base, name, claim, codec, page: None, start, have: 0 };
        if incoming.is_there()? {
            let intact = match incoming.codec.clone() {
                Some(codec) => incoming.intact_packed(&*codec),
                None => incoming.intact(),
            };
            match intact {
                Some((page, have)) => (incoming.page, incoming.have) = (Some(page), have),
                None => incoming.restart()?,
            }
        }
        Ok(incoming)
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
        let page = SealedPage::parse(&page).ok()??;
        let mut slots = vec![0; seal.count as usize * SLOT_LEN];
        self.fill(&mut slots, slot_offset(0))?;
        let mut have = header.data_offset;
        let slot = |(height, slot)| Slot::parse(&array(slot, 0), height, header.capacity).ok();
        let slots = (header.base_height..).zip(slots.chunks_exact(SLOT_LEN)).map(slot);
        // The transfer may have ended within the index: then its last slots are not there.
        let slots: Vec<_> = slots.collect::<Option<_>>()?;
        for slot in slots {
            let mut bytes = vec![0; slot.length as usize];
            let read = self.fill(&mut bytes, slot.offset);
            // Records arrive in order, so the first gap or damage ends what the transfer may keep.
            if slot.offset != have || read.is_none() || crc32fast::hash(&bytes) != slot.record_crc {
                break;
            }
            have = aligned(slot.offset + u64::from(slot.length));
        }
        Some((page, have)).filter(|(page, _)| page.base == self.base)
    }

    /// Intact beginning of a packed file.
    fn intact_packed(&self, codec: &dyn PackedCodec) -> Option<(SealedPage, u64)> {
        let mut bytes = vec![0; codec.start_bytes()];
        self.fill(&mut bytes, 0)?;
        let page = SealedPage::packed(codec, &bytes).filter(|page| page.base == self.base)?;
        // The length in the header is the sender's: it must not decide how much memory is taken.
        if page.bytes > reads::length_of(&self.path()).ok()? {
            return None;
        }
        bytes.resize(page.bytes as usize, 0);
        self.fill(&mut bytes, 0)?;
        let have = codec.intact_bytes(&bytes);
        (have >= codec.start_bytes() as u64).then_some((page, have))
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

    /// Takes the next bytes. False if they cannot be those of such a segment.
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
        let Some(page) = page.filter(|page| page.base == self.base) else { return Ok(false) };
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
        // The source's segment has room for more records, which a sealed one never gets.
        self.latch.apply(Op::Punch { name: &self.name, offset })?;
        let last = (header.base_height + u64::from(seal.count) - 1, seal.last_hash);
        Ok((Segment::open_sealed(&path, header, &seal)?, last))
    }

    fn finish_packed(
        &mut self,
        codec: &Arc<dyn PackedCodec>,
    ) -> Result<(Segment, (u64, Hash)), Error> {
        let path = self.path();
        self.latch.apply(Op::Sync { name: &self.name })?;
        let damaged = |what: String| Error::read(&path, std::io::Error::other(what));
        let opened = Packed::open(&path, codec)?.map_err(|damage| damaged(damage.to_string()))?;
        let segment = Segment::packed(opened).map_err(|error| Error::read(&path, error))?;
        let last = segment.tip().ok_or_else(|| damaged("it has no last block".into()))?;
        Ok((segment, last))
    }
}
