//! A codec of packed files that is made up: a header, then records with a checksum each.

use std::cell::Cell;

use neve_store::{
    Hash, Identity, LogTest, PackFailed, PackedBytes, PackedCodec, PackedDamage, PackedFile,
    PackedHeader, PackedKeys, PackedLogs, PackedRange, PackedStart, Part, Record, RecordRef,
    Wanted,
};

thread_local! {
    /// True if files that this thread reads hide their transactions from look-ups by hash.
    pub static HIDES_TRANSACTIONS: Cell<bool> = const { Cell::new(false) };
    /// True if this thread reads a file again for each height of it.
    pub static READS_AGAIN: Cell<bool> = const { Cell::new(false) };
}

/// A packed file of the test: a header, then records with a checksum each.
pub struct Toy;

/// Bytes of the toy's header: identity, first height, heights, parent, length of the file, checksum.
const HEADER: usize = 8 + 32 + 8 + 4 + 32 + 8 + 4;

fn crc(bytes: &[u8]) -> [u8; 4] {
    crc32fast::hash(bytes).to_le_bytes()
}

/// Timestamp of a height that no range is packed with.
pub const UNPACKABLE: u64 = u64::MAX;

impl PackedCodec for Toy {
    fn pack(
        &self,
        identity: Identity,
        _: u32,
        records: &[RecordRef],
        proceed: &mut dyn FnMut() -> bool,
    ) -> Result<PackedFile, PackFailed> {
        let mut bodies = Vec::new();
        if records.iter().any(|record| record.timestamp() == UNPACKABLE) {
            return Err(PackFailed::Unpackable { reason: "test", error: "a test".into() });
        }
        for record in records {
            if !proceed() {
                return Err(PackFailed::Stopped);
            }
            let body = encode(record);
            bodies.extend((body.len() as u32).to_le_bytes());
            bodies.extend(crc(&[&(body.len() as u32).to_le_bytes()[..], &body].concat()));
            bodies.extend(body);
        }
        let mut bytes = identity.chain_id.to_le_bytes().to_vec();
        bytes.extend(identity.genesis.0);
        bytes.extend(records[0].height().to_le_bytes());
        bytes.extend((records.len() as u32).to_le_bytes());
        bytes.extend(records[0].parent().0);
        bytes.extend(((HEADER + bodies.len()) as u64).to_le_bytes());
        bytes.extend(crc(&bytes));
        bytes.extend(bodies);
        Ok(PackedFile { bytes, as_it_came: vec![("test", records.len() as u64)] })
    }

    fn start_bytes(&self) -> usize {
        HEADER
    }

    fn start(&self, start: &[u8]) -> Result<PackedStart, PackedDamage> {
        let start = start.get(..HEADER).ok_or_else(damaged)?;
        if crc(&start[..HEADER - 4]) != start[HEADER - 4..] {
            return Err(damaged());
        }
        let header = PackedHeader {
            identity: Identity { chain_id: word(start, 0), genesis: hash_at(start, 8) },
            first: word(start, 40),
            heights: word(start, 48) as u32,
            parent: hash_at(start, 52),
        };
        let bytes = word(start, 84);
        Ok(PackedStart { header, bytes, opening: bytes })
    }

    /// The records up to the first that is damaged.
    fn intact_bytes(&self, file: &[u8]) -> u64 {
        let mut rest = &file[HEADER..];
        while let (Some(_), after) = decode(rest) {
            rest = after;
        }
        (file.len() - rest.len()) as u64
    }

    fn open(&self, bytes: PackedBytes) -> Result<Box<dyn PackedRange>, PackedDamage> {
        let all = bytes.read(0, bytes.len() as usize).ok_or_else(damaged)?.to_vec();
        let file = bytes;
        let PackedStart { header, bytes, .. } = self.start(&all)?;
        if bytes != all.len() as u64 {
            return Err(damaged());
        }
        let mut rest = &all[HEADER..];
        let mut records = Vec::new();
        for _ in 0..header.heights {
            let (record, after) = decode(rest);
            records.push(record);
            rest = after;
        }
        Ok(Box::new(ToyRange { header, records, file }))
    }
}

fn damaged() -> PackedDamage {
    PackedDamage::Damaged("toy".into())
}

fn encode(record: &RecordRef) -> Vec<u8> {
    let mut out = record.height().to_le_bytes().to_vec();
    out.extend(record.timestamp().to_le_bytes());
    out.extend(record.hash().0);
    out.extend(record.parent().0);
    out.extend(record.flags().to_le_bytes());
    out.extend(record.transaction_count().to_le_bytes());
    out.extend(record.log_count().to_le_bytes());
    let count = record.transaction_count() as usize;
    // Work that meets bytes that the disk does not deliver is dropped.
    let hashes = (0..count).filter_map(|at| record.transaction(at).ok());
    hashes.for_each(|hash| out.extend(hash.expect("it is there").0));
    let terms = record.terms().into_iter().flatten();
    terms.flatten().for_each(|term| out.extend(term.to_le_bytes()));
    for at in 0..5 {
        let part = record.part(at).slice;
        if part.probe().is_err() {
            return out;
        }
        out.extend((part.len() as u32).to_le_bytes());
        out.extend(part.as_ref());
    }
    out
}

/// The next record, if it is intact, and the bytes behind it.
fn decode(bytes: &[u8]) -> (Option<Record>, &[u8]) {
    let Some(len) = bytes.get(..4) else { return (None, &[]) };
    let len = u32::from_le_bytes(len.try_into().expect("4 bytes")) as usize;
    let Some(body) = bytes.get(8..8 + len) else { return (None, &[]) };
    let intact = crc(&[&bytes[..4], body].concat()) == bytes[4..8];
    (intact.then(|| record(body)), &bytes[8 + len..])
}

fn record(body: &[u8]) -> Record {
    let (transactions, logs) = (word(body, 84) as u32 as usize, word(body, 88) as u32 as usize);
    let mut at = 92;
    let mut take = |len: usize| {
        at += len;
        &body[at - len..at]
    };
    let transactions = (0..transactions).map(|_| hash_at(take(32), 0)).collect();
    let logs = (0..logs).map(|_| std::array::from_fn(|_| word(take(8), 0))).collect();
    let mut parts = Vec::new();
    for _ in 0..5 {
        let len = u32::from_le_bytes(take(4).try_into().expect("4 bytes")) as usize;
        parts.push(Part::uncompressed(take(len).to_vec()));
    }
    Record {
        height: word(body, 0),
        timestamp: word(body, 8),
        hash: hash_at(body, 16),
        parent: hash_at(body, 48),
        flags: word(body, 80) as u32,
        transactions,
        logs,
        parts,
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(at + 8) - at;
    word[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(word)
}

fn hash_at(bytes: &[u8], at: usize) -> Hash {
    Hash(bytes[at..at + 32].try_into().expect("32 bytes"))
}

struct ToyRange {
    header: PackedHeader,
    records: Vec<Option<Record>>,
    file: PackedBytes,
}

impl PackedRange for ToyRange {
    fn header(&self) -> PackedHeader {
        self.header
    }

    fn hash(&self, height: u64) -> Option<Hash> {
        Some(self.record(height).ok()?.hash)
    }

    fn extent(&self, _: u64) -> Result<(u64, usize), PackedDamage> {
        Ok((0, 0)) // opening reads all
    }

    fn terms_extent(&self) -> (u64, usize) {
        (0, 0)
    }

    fn record(&self, height: u64) -> Result<Record, PackedDamage> {
        if READS_AGAIN.get() {
            self.file.read(0, self.file.len() as usize).ok_or_else(damaged)?;
        }
        let at = height.checked_sub(self.header.first).map(|at| at as usize);
        let record = at.and_then(|at| self.records.get(at)?.clone());
        record.ok_or_else(|| PackedDamage::Damaged("toy record".into()))
    }

    fn proven(&self, height: u64) -> Result<Record, PackedDamage> {
        self.record(height)
    }

    /// A transaction's stretch is the whole part.
    fn read(
        &self,
        height: u64,
        wanted: Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, PackedDamage> {
        let record = self.record(height)?;
        let part = match wanted {
            Wanted::Count => return Ok(Some(record.transactions.len())),
            Wanted::Part { part, .. } => part,
            Wanted::Transaction { part, at, hash } => match record.transactions.get(at) {
                Some(found) if hash.is_none_or(|hash| hash == found) => part,
                _ => return Ok(hash.is_none().then_some(0)),
            },
        };
        out.extend_from_slice(&record.parts[part].bytes);
        Ok(Some(0))
    }

    fn logs(
        &self,
        height: u64,
        _: &mut LogTest<'_>,
        _: &mut PackedLogs,
    ) -> Result<usize, PackedDamage> {
        self.record(height).map(|record| record.logs.len())
    }

    /// Compares three bits of a hash: candidates are many, and most are others.
    fn candidates(&self, hash: &Hash) -> Result<Vec<(u64, Option<usize>)>, PackedDamage> {
        let is_like = |found: &Hash| found.0[0] % 8 == hash.0[0] % 8;
        let mut all = Vec::new();
        for record in self.records.iter().flatten() {
            let transactions = record.transactions.iter().map(is_like).enumerate();
            let transactions = transactions.filter(|(_, like)| *like && !HIDES_TRANSACTIONS.get());
            all.extend(is_like(&record.hash).then_some((record.height, None)));
            all.extend(transactions.map(|(at, _)| (record.height, Some(at))));
        }
        Ok(all)
    }

    fn check_indexes(&self, keys: &PackedKeys) -> Result<(), PackedDamage> {
        let is_found = |(hash, place): &(Hash, (u64, Option<usize>))| {
            self.candidates(hash).is_ok_and(|found| found.contains(place))
        };
        let is_listed = |(term, height): &(u64, u64)| {
            self.heights_of_terms(&[*term]).is_ok_and(|heights| heights.contains(height))
        };
        let leads = keys.hashes.iter().all(is_found) && keys.terms.iter().all(is_listed);
        if leads { Ok(()) } else { Err(PackedDamage::Damaged("toy index".into())) }
    }

    fn heights_of_terms(&self, wanted: &[u64]) -> Result<Vec<u64>, PackedDamage> {
        let has_one = |term: &u64| wanted.contains(term);
        let has = |record: &&Record| record.logs.iter().flatten().any(has_one);
        Ok(self.records.iter().flatten().filter(has).map(|record| record.height).collect())
    }

    fn check(&self) -> Result<(), PackedDamage> {
        let whole = self.records.iter().all(Option::is_some);
        if whole { Ok(()) } else { Err(PackedDamage::Damaged("toy records".into())) }
    }
}
