//! Codec of packed files, which the caller gives at opening: the store knows no JSON.
//!
//! The store decides which heights are packed and when, writes the files, and maps them. A codec
//! makes their bytes from records, and records from their bytes. docs/PACKED.md has the format.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record_ref::RecordRef;
use crate::format::{Record, Terms};
use crate::id::{Hash, Identity};
use crate::memory::Map;
use crate::memory::residency;
use crate::memory::residency::Cold;
use crate::reads;

/// Highest length of a range that one packed file holds.
pub const RANGE_BLOCKS_MAX: u32 = 1024;

/// Bytes that reads have unpacked, over all stores of the process.
static UNPACKED: AtomicU64 = AtomicU64::new(0);

/// Bytes that reads of packed heights have unpacked since the process started.
pub fn unpacked_bytes() -> u64 {
    UNPACKED.load(Ordering::Relaxed)
}

/// Counts bytes that a codec has unpacked for a read.
pub fn count_unpacked(bytes: u64) {
    UNPACKED.fetch_add(bytes, Ordering::Relaxed);
}

/// Makes packed files, and opens them.
pub trait PackedCodec: Send + Sync {
    /// Packs neighboring heights. Each answer about them is made from the packed bytes and compared
    /// with the record. `proceed` is called before each height; packing ends when it returns false.
    fn pack(
        &self,
        identity: Identity,
        range_blocks: u32,
        records: &[RecordRef],
        proceed: &mut dyn FnMut() -> bool,
    ) -> Result<PackedFile, PackFailed>;

    /// Length of the start of a file that [`PackedCodec::start`] reads.
    fn start_bytes(&self) -> usize;

    /// Reads the start of a packed file. Refuses one that holds no whole range.
    fn start(&self, start: &[u8]) -> Result<PackedStart, PackedDamage>;

    /// Returns how many bytes at the start of a file pass their checksums. The others did not arrive.
    fn intact_bytes(&self, file: &[u8]) -> u64;

    /// Opens a packed file.
    fn open(&self, bytes: PackedBytes) -> Result<Box<dyn PackedRange>, PackedDamage>;
}

/// Bytes of a new packed file.
#[derive(Debug)]
pub struct PackedFile {
    /// Bytes of the file.
    pub bytes: Vec<u8>,
    /// Heights of which a part is stored as it came, by reason.
    pub as_it_came: Vec<(&'static str, u64)>,
}

/// Reason why heights were not packed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackFailed {
    /// `proceed` returned false.
    #[error("stopped")]
    Stopped,
    /// The heights cannot be packed by this release. The same heights fail again.
    #[error("{error}")]
    Unpackable {
        /// Kind of the error in lower case, for metrics.
        reason: &'static str,
        /// The codec's error.
        error: String,
    },
}

/// Reason why a packed file, or a height of it, cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackedDamage {
    /// Another release wrote the file.
    #[error("{0}")]
    OtherVersion(String),
    /// Bytes that no packer writes, or that cannot be read.
    #[error("{0}")]
    Damaged(String),
    /// A thread that must not wait ended its work: the bytes may be right.
    #[error(transparent)]
    Cold(#[from] Cold),
    /// The kernel gives no memory: the bytes may be right.
    #[error("no memory to unpack: {0}")]
    NoMemory(String),
}

impl PackedDamage {
    /// Fails if it says nothing about the bytes, because this thread did not get to read them. The codec
    /// may have any other error for that.
    pub(crate) fn unless_cold(&self) -> Result<(), Cold> {
        if matches!(self, Self::Cold(_)) || residency::has_failed_probe() {
            Err(Cold)
        } else {
            Ok(())
        }
    }
}

/// Range and identity of a packed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedHeader {
    /// Chain of the heights.
    pub identity: Identity,
    /// First height of the file.
    pub first: u64,
    /// Number of heights.
    pub heights: u32,
    /// Parent hash of the first block.
    pub parent: Hash,
}

impl PackedHeader {
    /// Height after the last one.
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.heights)
    }
}

/// Content of the start of a packed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedStart {
    /// Range and identity.
    pub header: PackedHeader,
    /// Length of the file.
    pub bytes: u64,
    /// Bytes at the start of the file that opening reads.
    pub opening: u64,
}

/// Part of a height that a reader wants. A packed height is unpacked no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'h> {
    /// The number of transactions, and no bytes.
    Count,
    /// A part, as a record with these flags has it.
    Part {
        /// Number of the part.
        part: usize,
        /// Flags of the record.
        flags: u32,
    },
    /// The stretch of a part that is of one transaction.
    Transaction {
        /// Number of the part.
        part: usize,
        /// Position of the transaction.
        at: usize,
        /// Hash that the transaction must have.
        hash: Option<&'h Hash>,
    },
}

/// Logs of a packed height.
#[derive(Debug, Default)]
pub struct PackedLogs {
    /// A text to which those of the logs are appended, with commas between them.
    pub text: Vec<u8>,
    /// Place of each log in `text`, in the order of the block.
    pub found: Vec<Range<usize>>,
}

/// Test of a log by its address and topics.
pub type LogTest<'t> = dyn FnMut(&[u8; 20], &[[u8; 32]]) -> bool + 't;

/// Hashes and terms of the heights of a packed file, as its records have them.
#[derive(Debug, Default)]
pub struct PackedKeys {
    /// Each hash with its height and, if it is not the block's, the position of the transaction.
    pub hashes: Vec<(Hash, (u64, Option<usize>))>,
    /// Each term of a height with the height.
    pub terms: Vec<(u64, u64)>,
}

impl PackedKeys {
    /// Adds those of a record.
    pub fn add(&mut self, record: &Record) {
        let height = record.height;
        self.hashes.push((record.hash, (height, None)));
        let transactions = record.transactions.iter().enumerate();
        self.hashes.extend(transactions.map(|(at, hash)| (*hash, (height, Some(at)))));
        self.add_terms(height, record.logs.iter().copied());
    }

    /// Adds those of a stored record.
    pub(crate) fn add_stored(&mut self, record: &RecordRef) -> Result<(), Cold> {
        let height = record.height();
        self.hashes.push((record.hash(), (height, None)));
        for at in 0..record.transaction_count() as usize {
            let hash = record.transaction(at)?;
            self.hashes.extend(hash.map(|hash| (hash, (height, Some(at)))));
        }
        self.add_terms(height, record.terms()?);
        Ok(())
    }

    fn add_terms(&mut self, height: u64, logs: impl Iterator<Item = Terms>) {
        let start = self.terms.len();
        let terms = logs.flatten().filter(|term| *term != 0); // 0 is none
        self.terms.extend(terms.map(|term| (term, height)));
        // Height by height: with the doubles of a whole range the list would be far longer.
        self.terms[start..].sort_unstable();
        let mut of_height = self.terms.split_off(start);
        of_height.dedup();
        self.terms.append(&mut of_height);
    }
}

/// Hashes of a packed file, as far as its index has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedHashes {
    /// Bits of each hash.
    pub bits: u32,
    /// All hashes of blocks and transactions. A packer writes them ascending.
    pub hashes: Vec<IndexedHash>,
}

/// A hash of a packed file, as far as the index has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedHash {
    /// First bits of the hash, as the highest ones of a number, and zeros below.
    pub prefix: u64,
    /// Height of the block.
    pub height: u64,
    /// Position of the transaction; `None` for the block itself.
    pub transaction: Option<u32>,
}

/// An open packed file.
///
/// A thread that must not wait may read of it too: what would take long gives its work up
/// ([`crate::residency::not_here`]) and is an error.
pub trait PackedRange: Send + Sync {
    /// Returns range and identity.
    fn header(&self) -> PackedHeader;

    /// Returns the hash of the block at a height, without reading the height.
    fn hash(&self, height: u64) -> Option<Hash>;

    /// Returns offset and length of the bytes that a read of a height needs, besides those of opening.
    fn extent(&self, height: u64) -> Result<(u64, usize), PackedDamage>;

    /// Returns offset and length of the bytes that a look-up of a term needs, besides those of opening.
    fn terms_extent(&self) -> (u64, usize);

    /// Unpacks a height whole.
    fn record(&self, height: u64) -> Result<Record, PackedDamage>;

    /// Returns the hashes of a height's transactions, in order.
    fn transaction_hashes(&self, height: u64) -> Result<Vec<Hash>, PackedDamage> {
        Ok(self.record(height)?.transactions)
    }

    /// Returns all hashes as the index has them; `None` if it has not `count`, or no bits of them.
    fn indexed_hashes(&self, _count: usize) -> Result<Option<IndexedHashes>, PackedDamage> {
        Ok(None)
    }

    /// Returns all terms of logs, each once: their low 40 bits at least.
    fn all_terms(&self) -> Result<Vec<u64>, PackedDamage> {
        let (header, mut found) = (self.header(), BTreeSet::new());
        for height in header.first..header.end() {
            let logs = self.record(height)?.logs;
            found.extend(logs.iter().flatten().filter(|term| **term != 0)); // 0 is none
        }
        Ok(found.into_iter().collect())
    }

    /// Unpacks a height whole, and makes the block's hash again from its header: no checksum of a height covers
    /// the hash. What is copied elsewhere is read so.
    fn proven(&self, height: u64) -> Result<Record, PackedDamage>;

    /// Appends what is wanted of a height. Returns the number of transactions if that is wanted, else
    /// any number; `None`, with nothing appended, if there is no transaction with the wanted hash. Nothing is appended
    /// either for a position without a wanted hash that the height lacks.
    fn read(
        &self,
        height: u64,
        wanted: Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, PackedDamage>;

    /// Finds the logs of a height that `matches` accepts, and sets their places. Returns the bytes that were
    /// unpacked. After an error `out` may have some of them.
    fn logs(
        &self,
        height: u64,
        matches: &mut LogTest<'_>,
        out: &mut PackedLogs,
    ) -> Result<usize, PackedDamage>;

    /// Returns the places at which a hash may be: a height and, if it is not the block's, the position
    /// of a transaction. The caller compares the whole hash.
    fn candidates(&self, hash: &Hash) -> Result<Vec<(u64, Option<usize>)>, PackedDamage>;

    /// Checks that both indexes lead to each of these, which are all of the file.
    fn check_indexes(&self, keys: &PackedKeys) -> Result<(), PackedDamage>;

    /// Returns the heights that may have a log with one of the terms, ascending, each once. No such height is missing.
    fn heights_of_terms(&self, terms: &[u64]) -> Result<Vec<u64>, PackedDamage>;

    /// Checks all checksums.
    fn check(&self) -> Result<(), PackedDamage>;
}

/// Pages of a packed file that is elsewhere, as far as they are here.
pub trait PackedPages: Send + Sync {
    /// Returns the length of the file.
    fn bytes(&self) -> u64;

    /// Reads `len` bytes at `offset`; `None` if some of them are not here.
    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>>;
}

/// Bytes of a packed file: mapped, in memory, on the disk, or in pages.
///
/// Those of a mapped file are copied out of the file. The map says only which of them are in memory.
#[derive(Clone)]
pub struct PackedBytes(Inner);

#[derive(Clone)]
enum Inner {
    Mapped(Arc<Map>),
    InMemory(Arc<Vec<u8>>),
    OnDisk(Arc<File>, u64),
    Paged(Arc<dyn PackedPages>),
}

impl PackedBytes {
    pub(crate) fn mapped(map: Arc<Map>) -> Self {
        Self(Inner::Mapped(map))
    }

    /// Bytes in memory, which others may share.
    pub fn in_memory(bytes: impl Into<Arc<Vec<u8>>>) -> Self {
        Self(Inner::InMemory(bytes.into()))
    }

    /// A file of `bytes` bytes, for a thread that may wait.
    pub(crate) fn on_disk(file: File, bytes: u64) -> Self {
        Self(Inner::OnDisk(Arc::new(file), bytes))
    }

    /// Pages of a file. A read of one that is not here ends the work of its thread.
    pub fn paged(pages: Arc<dyn PackedPages>) -> Self {
        Self(Inner::Paged(pages))
    }

    /// Length of the file.
    #[allow(clippy::len_without_is_empty, reason = "a file of no bytes is no packed file")]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Inner::Mapped(map) => map.len(),
            Inner::InMemory(bytes) => bytes.len() as u64,
            Inner::OnDisk(_, bytes) => *bytes,
            Inner::Paged(pages) => pages.bytes(),
        }
    }

    /// Ends the work of a thread that must not wait if some of these bytes of a mapped file are not in memory.
    pub fn probe(&self, offset: u64, len: usize) -> Result<(), Cold> {
        let Inner::Mapped(map) = &self.0 else { return Ok(()) };
        // Bytes beyond the end are found missing when they are read.
        let end = offset.saturating_add(len as u64);
        map.bytes(offset..end).map_or(Ok(()), |bytes| residency::probe_file(map, bytes))
    }

    /// Reads `len` bytes at `offset`. Fails beyond the end, and if the disk does not deliver.
    pub fn read(&self, offset: u64, len: usize) -> Option<Cow<'_, [u8]>> {
        let end = offset.checked_add(len as u64)?;
        match &self.0 {
            Inner::Mapped(map) => residency::read_file(map, map.bytes(offset..end)?),
            Inner::OnDisk(_, bytes) if end > *bytes => None,
            Inner::OnDisk(file, _) => {
                let mut found = vec![0; len];
                reads::read_exact(file, &mut found, offset).ok()?;
                Some(Cow::Owned(found))
            }
            Inner::InMemory(bytes) => {
                let range = usize::try_from(offset).ok()?..usize::try_from(end).ok()?;
                bytes.get(range).map(Cow::Borrowed)
            }
            Inner::Paged(pages) => {
                let found = pages.read(offset, len);
                if found.is_none() {
                    residency::end_as_cold(); // the height is not damaged
                }
                found.map(Cow::Owned)
            }
        }
    }
}
