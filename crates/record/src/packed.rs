//! Records from packed files, and packed files from records: the codec that the store is given.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;

use neve_chain::{Block, Receipts};
use neve_packed::{
    B256, FileHeader, FileStart, HEADER_BYTES, HeightTexts, Identity as PackedIdentity, LogOut,
    ModelCache, PackError, PackedError, PackedFile as File, PackedHeight, Position, Source,
    TotalDifficulty, intact_bytes, pack,
};
use neve_store::{
    Encoding, Hash, Identity, IndexedHash, IndexedHashes, LogTest, PackFailed, PackedBytes,
    PackedCodec, PackedDamage, PackedFile, PackedHeader, PackedKeys, PackedLogs, PackedRange,
    PackedStart, Record, RecordRef, Wanted, count_unpacked, residency,
};

use crate::assemble::derived;
use crate::parts::{FLAG_ZERO_DIFFICULTY, FULL, HASHES, HEADER, RECEIPTS, SPANS};

pub use neve_packed::PACKING_BYTES_MAX;

/// Bytes that the tables of open packed files take together.
pub const TABLES_BYTES_MAX: usize = 64 << 20;

/// Reason of a range whose file does not give its records back.
const READ_BACK: &str = "read_back";

/// Weight that a thread which must not wait unpacks for one answer: bytes before texts are made of them.
/// Threads that may wait unpack more: texts of so many bytes take half a millisecond.
const INLINE_MAX: usize = 32 << 10;

/// Times that the bytes of a height weigh if texts are made of all of them while others wait: more than
/// 2 KiB, which take some 30 µs, are for threads that may wait.
const WHOLE_WEIGHT: usize = 16;

/// Does `work`, and counts the bytes that this thread unpacks for it.
fn counted<T>(work: impl FnOnce() -> T) -> T {
    let before = neve_packed::unpacked_bytes();
    let done = work();
    count_unpacked(neve_packed::unpacked_bytes() - before);
    done
}

/// The codec of docs/PACKED.md. Files that one codec opened share the bound of their tables.
#[derive(Debug, Clone)]
pub struct Codec {
    tables: Arc<ModelCache>,
}

impl Default for Codec {
    fn default() -> Self {
        Self::new(TABLES_BYTES_MAX)
    }
}

impl Codec {
    /// Makes a codec whose files keep at most so many bytes of tables in memory.
    pub fn new(tables_bytes_max: usize) -> Self {
        Self { tables: ModelCache::new(tables_bytes_max) }
    }
}

impl PackedCodec for Codec {
    fn pack(
        &self,
        identity: Identity,
        range_blocks: u32,
        records: &[RecordRef],
        proceed: &mut dyn FnMut() -> bool,
    ) -> Result<PackedFile, PackFailed> {
        let texts: Option<Vec<_>> = records.iter().map(texts_of).collect();
        let texts = texts.ok_or_else(|| unpackable("input", &"a part in an unknown encoding"))?;
        let heights: Vec<_> =
            texts.iter().map(|[block, receipts]| HeightTexts { block, receipts }).collect();
        let mut go_on =
            || if proceed() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        let packing = pack(identity_of(identity), range_blocks, &heights, &mut go_on);
        let packing = packing.map_err(|error| pack_failed(&error))?;
        read_back(&packing.bytes, records, proceed)?;
        let as_it_came = packing.stored_as_came;
        let as_it_came = as_it_came.into_iter().map(|(reason, heights)| (reason.name(), heights));
        Ok(PackedFile { bytes: packing.bytes, as_it_came: as_it_came.collect() })
    }

    fn start_bytes(&self) -> usize {
        HEADER_BYTES
    }

    fn start(&self, start: &[u8]) -> Result<PackedStart, PackedDamage> {
        let start = FileHeader::of_start(start).map_err(|error| damage(&error))?;
        let FileStart { header, length, opening } = start;
        // Segments are replaced by whole ranges only: a part of one would leave a gap.
        if !header.is_whole_range() {
            return Err(PackedDamage::Damaged("packed file holds no whole range".into()));
        }
        Ok(PackedStart { header: header_of(&header), bytes: length, opening })
    }

    fn intact_bytes(&self, file: &[u8]) -> u64 {
        intact_bytes(file)
    }

    fn open(&self, bytes: PackedBytes) -> Result<Box<dyn PackedRange>, PackedDamage> {
        let pages = Pages(bytes.clone());
        let file = File::open_in(pages, &self.tables).map_err(|error| damage(&error))?;
        Ok(Box::new(Range { file, bytes }))
    }
}

fn unpackable(reason: &'static str, why: &dyn fmt::Display) -> PackFailed {
    PackFailed::Unpackable { reason, error: why.to_string() }
}

fn pack_failed(error: &PackError) -> PackFailed {
    match error {
        PackError::Stopped => PackFailed::Stopped,
        error => unpackable(error.reason(), error),
    }
}

/// Compares all heights of a packed file with the records. `proceed` is called before each.
fn read_back(
    bytes: &[u8],
    records: &[RecordRef],
    proceed: &mut dyn FnMut() -> bool,
) -> Result<(), PackFailed> {
    // What cannot be read back must not replace the segments: they are deleted afterwards.
    let file = File::open(bytes).map_err(|error| unpackable(READ_BACK, &error))?;
    for record in records {
        if !proceed() {
            return Err(PackFailed::Stopped);
        }
        comes_back(&file, record).map_err(|why| unpackable(READ_BACK, &why))?;
    }
    Ok(())
}

/// The node's texts of a record.
fn texts_of(record: &RecordRef) -> Option<[Cow<'_, [u8]>; 2]> {
    let text = |part| {
        let (text, encoding) = record.read_part(part).ok()??;
        (encoding == Encoding::Uncompressed).then_some(text)
    };
    Some([text(FULL)?, text(RECEIPTS)?])
}

/// Compares what the file and the texts of a height give with the record. Packing has compared every answer with these
/// texts, by the tables and the dictionary that it had read back from the sections of the file. The checksum of a frame
/// says that it is the one which was compared.
fn comes_back<S: Source>(file: &File<S>, stored: &RecordRef) -> Result<(), String> {
    let height = stored.height();
    let total = total_of(stored.flags());
    let packed = file.height(height).map_err(|error| error.to_string())?;
    let mut header = Vec::new();
    packed.header(total, &mut header).map_err(|error| error.to_string())?;
    let different = || format!("height {height} does not come back as it was");
    let [block, receipts] = texts_of(stored).ok_or_else(different)?;
    let record = derived_of(&block, &receipts, total).map_err(|error| error.to_string())?;
    let same_part = |part: usize, bytes: &[u8]| {
        let found = stored.read_part(part);
        matches!(found, Ok(Some((found, _))) if *found == *bytes)
    };
    let is_same = same_part(HEADER, &header)
        && [HASHES, HEADER, SPANS]
            .into_iter()
            .all(|part| same_part(part, &record.parts[part].bytes))
        && is_same_header(stored, &record);
    if is_same { Ok(()) } else { Err(different()) }
}

/// Compares a stored record with another, without their parts.
fn is_same_header(stored: &RecordRef, record: &Record) -> bool {
    (stored.hash(), stored.parent()) == (record.hash, record.parent)
        && (stored.timestamp(), stored.flags()) == (record.timestamp, record.flags)
        && stored.transaction_count() as usize == record.transactions.len()
        && stored.terms().is_ok_and(|terms| terms.eq(record.logs.iter().copied()))
}

/// Form of the total difficulty in the texts of a record with these flags.
fn total_of(flags: u32) -> TotalDifficulty {
    let zero = flags & FLAG_ZERO_DIFFICULTY != 0;
    if zero { TotalDifficulty::Zero } else { TotalDifficulty::Number }
}

/// Makes the record of a packed height.
fn record_of(packed: &PackedHeight<'_>, total: TotalDifficulty) -> Result<Record, PackedDamage> {
    let (mut block, mut receipts) = (Vec::new(), Vec::new());
    packed.block(total, &mut block).map_err(|error| damage(&error))?;
    packed.receipts(&mut receipts).map_err(|error| damage(&error))?;
    let mut record = derived_of(&block, &receipts, total)?;
    record.parts[FULL].bytes = block.into();
    record.parts[RECEIPTS].bytes = receipts.into();
    Ok(record)
}

/// Makes a record without the node's texts, which may be long.
fn derived_of(
    block: &[u8],
    receipts: &[u8],
    total: TotalDifficulty,
) -> Result<Record, PackedDamage> {
    let refused = |what: &str| PackedDamage::Damaged(format!("packed height: {what}"));
    let parsed = Block::parse(block).map_err(|_| refused("its block does not parse"))?;
    let proven = Receipts::parse(receipts).map_err(|_| refused("its receipts do not parse"))?;
    let zero = total == TotalDifficulty::Zero && parsed.header.number > 0;
    let record = derived(block, &parsed, &proven);
    Ok(Record { flags: if zero { FLAG_ZERO_DIFFICULTY } else { 0 }, ..record })
}

/// Appends what is wanted of a packed height.
fn read(
    packed: &PackedHeight<'_>,
    wanted: Wanted<'_>,
    out: &mut Vec<u8>,
) -> Result<Option<usize>, PackedError> {
    match wanted {
        Wanted::Count => Ok(Some(packed.counts()?.0)),
        Wanted::Part { part, flags } => read_part(packed, part, total_of(flags), out),
        Wanted::Transaction { part, at, hash } => {
            let hash = hash.map(|hash| B256::new(hash.0));
            let found = match part {
                FULL => packed.transaction_of(at, hash.as_ref(), out)?,
                RECEIPTS => packed.receipt_of(at, hash.as_ref(), out)?,
                _ => false,
            };
            // Without a hash a position of the block is wanted, and the block is here.
            Ok((found || hash.is_none()).then_some(0))
        }
    }
}

/// Appends a part; `None` if packed heights have no such part.
fn read_part(
    packed: &PackedHeight<'_>,
    part: usize,
    total: TotalDifficulty,
    out: &mut Vec<u8>,
) -> Result<Option<usize>, PackedError> {
    match part {
        HASHES => packed.block_with_hashes(total, out)?,
        HEADER => packed.header(total, out)?,
        FULL => packed.block(total, out)?,
        RECEIPTS => packed.receipts(out)?,
        _ => return Ok(None),
    }
    Ok(Some(0))
}

fn identity_of(identity: Identity) -> PackedIdentity {
    PackedIdentity { chain_id: identity.chain_id, genesis: B256::new(identity.genesis.0) }
}

fn header_of(header: &FileHeader) -> PackedHeader {
    let FileHeader { identity, first, heights, parent, .. } = *header;
    let identity = Identity { chain_id: identity.chain_id, genesis: Hash(identity.genesis.0) };
    PackedHeader { identity, first, heights, parent: Hash(parent.0) }
}

fn damage(error: &PackedError) -> PackedDamage {
    match error {
        PackedError::Version(_) => PackedDamage::OtherVersion(error.to_string()),
        error => PackedDamage::Damaged(error.to_string()),
    }
}

/// Bytes of the store as the codec reads them.
struct Pages(PackedBytes);

impl Source for Pages {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Cow<'_, [u8]>> {
        let found = self.0.read(offset, bytes);
        found.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

struct Range {
    file: File<Pages>,
    bytes: PackedBytes,
}

impl Range {
    /// A height, unless unpacking it takes too long for this thread.
    fn height(&self, height: u64, weight: usize) -> Result<PackedHeight<'_>, PackedDamage> {
        if !residency::must_not_wait() {
            return self.file.height(height).map_err(|error| damage(&error));
        }
        let Some(located) = self.file.locate(height).map_err(|error| damage(&error))? else {
            residency::not_here()?;
            return self.file.height(height).map_err(|error| damage(&error));
        };
        // Alone on its thread, the request delays only itself.
        let weight = if residency::is_alone() { 1 } else { weight };
        let weigh = |bytes: usize| residency::weigh(bytes.saturating_mul(weight), INLINE_MAX);
        // Half of what is stored says of most heavy heights that they are heavy, before they are read in vain. All
        // of it would say so of light ones too: signatures are not packed. A height that is not in memory is no
        // work for threads that only unpack.
        let (offset, stored) = self.file.extent_of(&located).map_err(|error| damage(&error))?;
        self.bytes.probe(offset, stored)?;
        weigh(stored / 2)?;
        let packed = self.file.read(located).map_err(|error| damage(&error))?;
        let unpacked = packed.unpacked_len().map_err(|error| damage(&error))?;
        weigh(unpacked.saturating_sub(stored / 2))?;
        Ok(packed)
    }
}

impl PackedRange for Range {
    fn header(&self) -> PackedHeader {
        header_of(self.file.header())
    }

    fn hash(&self, height: u64) -> Option<Hash> {
        Some(Hash(self.file.hash(height)?.0))
    }

    fn extent(&self, height: u64) -> Result<(u64, usize), PackedDamage> {
        self.file.extent(height).map_err(|error| damage(&error))
    }

    fn terms_extent(&self) -> (u64, usize) {
        self.file.terms_extent()
    }

    fn record(&self, height: u64) -> Result<Record, PackedDamage> {
        let packed = self.file.height(height).map_err(|error| damage(&error))?;
        counted(|| record_of(&packed, TotalDifficulty::Number))
    }

    fn transaction_hashes(&self, height: u64) -> Result<Vec<Hash>, PackedDamage> {
        let packed = self.file.height(height).map_err(|error| damage(&error))?;
        let hashes = counted(|| packed.transaction_hashes()).map_err(|error| damage(&error))?;
        Ok(hashes.into_iter().map(|hash| Hash(hash.0)).collect())
    }

    fn indexed_hashes(&self, count: usize) -> Result<Option<IndexedHashes>, PackedDamage> {
        let found = self.file.indexed_hashes(count).map_err(|error| damage(&error))?;
        let Some((bits, hashes)) = found else { return Ok(None) };
        let hash = |(prefix, at): (u64, Position)| {
            let Position { height, transaction } = at;
            IndexedHash { prefix, height, transaction }
        };
        Ok(Some(IndexedHashes { bits, hashes: hashes.into_iter().map(hash).collect() }))
    }

    fn all_terms(&self) -> Result<Vec<u64>, PackedDamage> {
        self.file.all_terms().map_err(|error| damage(&error))
    }

    fn proven(&self, height: u64) -> Result<Record, PackedDamage> {
        let record = self.record(height)?;
        let refused = |what: &str| PackedDamage::Damaged(format!("packed height {height}: {what}"));
        let block = Block::parse(&record.parts[FULL].bytes);
        let hash = block.map_err(|_| refused("its block does not parse"))?.header.hash();
        // Both: the record has what the directory says, which may be damaged alone.
        if hash.0 == record.hash.0 && self.file.hash(height) == Some(hash) {
            Ok(record)
        } else {
            Err(refused("its header has another hash than the directory says"))
        }
    }

    fn read(
        &self,
        height: u64,
        wanted: Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, PackedDamage> {
        let weight = if matches!(wanted, Wanted::Part { .. }) { WHOLE_WEIGHT } else { 1 };
        let packed = self.height(height, weight)?;
        counted(|| read(&packed, wanted, out)).map_err(|error| damage(&error))
    }

    fn logs(
        &self,
        height: u64,
        matches: &mut LogTest<'_>,
        out: &mut PackedLogs,
    ) -> Result<usize, PackedDamage> {
        let packed = self.height(height, WHOLE_WEIGHT)?;
        let mut logs = LogOut::after(mem::take(&mut out.text));
        let found = counted(|| packed.logs(matches, &mut logs));
        out.text = logs.text;
        out.found.clear();
        out.found.extend(logs.found.into_iter().map(|(place, _)| place));
        found.map_err(|error| damage(&error))?;
        packed.unpacked_len().map_err(|error| damage(&error))
    }

    fn candidates(&self, hash: &Hash) -> Result<Vec<(u64, Option<usize>)>, PackedDamage> {
        let mut found = Vec::new();
        let take = |at: Position| {
            found.push((at.height, at.transaction.map(|at| at as usize)));
            Ok(None::<()>)
        };
        self.file.find_with(&B256::new(hash.0), take).map_err(|error| damage(&error))?;
        Ok(found)
    }

    fn check_indexes(&self, keys: &PackedKeys) -> Result<(), PackedDamage> {
        let hashes = keys.hashes.iter().map(|(hash, (height, at))| {
            let transaction = at.and_then(|at| u32::try_from(at).ok());
            (B256::new(hash.0), Position { height: *height, transaction })
        });
        let checked = self.file.check_indexes(hashes, keys.terms.iter().copied());
        checked.map_err(|error| damage(&error))
    }

    fn heights_of_terms(&self, terms: &[u64]) -> Result<Vec<u64>, PackedDamage> {
        self.file.heights_of_terms(terms).map_err(|error| damage(&error))
    }

    fn check(&self) -> Result<(), PackedDamage> {
        self.file.check().map_err(|error| damage(&error))
    }
}
