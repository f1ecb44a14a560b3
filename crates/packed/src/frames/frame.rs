//! A frame in the form of fields: directory of groups, signatures, and the packed groups.
//!
//! A group is a zstd frame with the streams of consecutive chunks. A chunk is at most sixteen
//! transactions with their receipts. Both are bounded in bytes, so that a small answer needs little.

use std::ops::Range;

use crate::container::bytes::{Bytes, put_varint};
use crate::error::PackedError;
use crate::frames::compress::Dictionary;
use crate::stream::facts::{Chunk, LOGS_MAX, TRANSACTIONS_MAX};
use crate::stream::header::FIELDS;
use crate::stream::lanes::Lane;

const PLACE: &str = "frame";
/// Bytes of a group's content that a reader accepts.
pub(crate) const GROUP_BYTES_MAX: usize = 32 << 20;
/// Longest text of a part, which is that of the longest receipts that are packed, and most bytes of all groups of a height.
/// A frame of few bytes may say that it unpacks to any number: this bounds the memory that a hostile one takes.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 20;
/// Transactions of a chunk.
pub(crate) const CHUNK_TRANSACTIONS: usize = 16;
/// Weight at which a chunk or a group ends, see docs/PACKED.md.
pub(crate) const CHUNK_WEIGHT: usize = 32 << 10;
pub(crate) const GROUP_WEIGHT: usize = 56 << 10;
/// Weight of each group of a block with several.
pub(crate) const GROUPS_WEIGHT: usize = CHUNK_WEIGHT;

/// Streams of a chunk, and the sums that a reader needs of it.
#[derive(Debug, Clone)]
pub(crate) struct Streams {
    pub(crate) txs: usize,
    pub(crate) logs: usize,
    pub(crate) gas: u64,
    pub(crate) lanes: [Lane; 2],
}

impl Streams {
    pub(crate) fn of(chunk: &Chunk, lanes: [Lane; 2]) -> Self {
        // A sum over 64 bits is no node's, and is found when the texts are compared.
        let gas = chunk.receipts.iter().fold(0_u64, |sum, one| sum.wrapping_add(one.gas_used));
        Self { txs: chunk.txs.len(), logs: chunk.logs.len(), gas, lanes }
    }
}

/// A group before zstd.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) content: Vec<u8>,
    txs: usize,
    logs: usize,
    gas: u64,
}

impl Group {
    pub(crate) fn write(head_symbols: &[u8], chunks: &[Streams]) -> Self {
        let mut content = Vec::new();
        put_varint(&mut content, head_symbols.len() as u64);
        content.extend_from_slice(head_symbols);
        put_varint(&mut content, chunks.len() as u64);
        for Streams { txs, logs, gas, lanes } in chunks {
            [*txs as u64, *logs as u64, *gas]
                .into_iter()
                .for_each(|sum| put_varint(&mut content, sum));
            for lane in lanes {
                put_varint(&mut content, lane.symbols.len() as u64);
                put_varint(&mut content, lane.literals.len() as u64);
            }
        }
        for lane in chunks.iter().flat_map(|chunk| &chunk.lanes) {
            content.extend_from_slice(&lane.symbols);
            content.extend_from_slice(&lane.literals);
        }
        let sum = |of: fn(&Streams) -> usize| chunks.iter().map(of).sum();
        let gas = chunks.iter().fold(0_u64, |sum, chunk| sum.wrapping_add(chunk.gas));
        Self { content, txs: sum(|chunk| chunk.txs), logs: sum(|chunk| chunk.logs), gas }
    }
}

/// Puts a frame together, behind its form.
pub(crate) fn write(
    out: &mut Vec<u8>,
    groups: &[(Group, Vec<u8>)],
    head_literals: &[u8],
    signatures: &[[u8; 64]],
) {
    let logs: usize = groups.iter().map(|(group, _)| group.logs).sum();
    for count in [signatures.len(), logs, groups.len()] {
        put_varint(out, count as u64);
    }
    put_directory(out, groups);
    put_varint(out, head_literals.len() as u64);
    out.extend_from_slice(head_literals);
    signatures.iter().for_each(|signature| out.extend_from_slice(signature));
    groups.iter().for_each(|(_, packed)| out.extend_from_slice(packed));
}

/// Appends the lengths of the groups, and the sums of all but the last one.
fn put_directory(out: &mut Vec<u8>, groups: &[(Group, Vec<u8>)]) {
    for (at, (group, packed)) in groups.iter().enumerate() {
        put_varint(out, packed.len() as u64);
        put_varint(out, group.content.len() as u64);
        // The sums say where the next group begins, and behind the last one is none.
        if at + 1 < groups.len() {
            [group.txs as u64, group.logs as u64, group.gas]
                .into_iter()
                .for_each(|sum| put_varint(out, sum));
        }
    }
}

/// Position of a group or of a chunk in its block.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Start {
    pub(crate) tx: usize,
    pub(crate) log: usize,
    pub(crate) gas: u64,
}

impl Start {
    /// Returns the place behind so many transactions and logs, which used so much gas.
    fn behind(self, txs: usize, logs: usize, gas: u64) -> Self {
        Self { tx: self.tx + txs, log: self.log + logs, gas: self.gas.wrapping_add(gas) }
    }
}

#[derive(Debug)]
pub(crate) struct GroupAt {
    pub(crate) start: Start,
    packed: Range<usize>,
    content: usize,
}

impl GroupAt {
    /// Reads the directory of the groups of a frame, which may have `length` bytes each at most.
    fn read_all(
        bytes: &mut Bytes<'_>,
        txs: usize,
        logs: usize,
        length: usize,
    ) -> Result<Vec<Self>, PackedError> {
        // Groups without transactions would cost time and add nothing to a text.
        let count = bytes.count(txs.max(1))?;
        // The count is the file's: it must not decide how much memory is taken.
        let mut groups = Vec::with_capacity(count.min(64));
        let (mut start, mut end) = (Start::default(), 0);
        for at in 0..count {
            let packed = end..end + bytes.count(length)?;
            end = packed.end;
            groups.push(Self { start, packed, content: bytes.count(GROUP_BYTES_MAX)? });
            if at + 1 < count {
                start = start.behind(bytes.count(txs)?, bytes.count(logs)?, bytes.varint()?);
            }
        }
        Ok(groups)
    }
}

/// A frame, read up to its groups.
#[derive(Debug)]
pub(crate) struct Frame<'f> {
    pub(crate) txs: usize,
    pub(crate) logs: usize,
    pub(crate) groups: Vec<GroupAt>,
    pub(crate) head_literals: &'f [u8],
    signatures: &'f [[u8; 64]],
    packed: &'f [u8],
}

impl<'f> Frame<'f> {
    /// Reads a frame behind its form.
    pub(crate) fn read(frame: &'f [u8]) -> Result<Self, PackedError> {
        let mut bytes = Bytes::new(frame, PLACE);
        let (txs, logs) = (bytes.count(TRANSACTIONS_MAX)?, bytes.count(LOGS_MAX)?);
        let groups = GroupAt::read_all(&mut bytes, txs, logs, frame.len())?;
        let Some(last) = groups.last().filter(|last| last.start.tx <= txs) else {
            return Err(bytes.error("groups that do not fit the transactions"));
        };
        // Before anything is unpacked: small frames could unpack to gigabytes.
        if groups.iter().map(|group| group.content).sum::<usize>() > TEXT_BYTES_MAX {
            return Err(PackedError::OutputLimit(TEXT_BYTES_MAX));
        }
        let literals = bytes.count(frame.len())?;
        let head_literals = bytes.take(literals)?;
        let (signatures, _) = bytes.take(64 * txs)?.as_chunks();
        let packed = bytes.take(last.packed.end)?;
        bytes.end()?;
        Ok(Self { txs, logs, groups, head_literals, signatures, packed })
    }

    /// Returns the bytes of all groups, unpacked.
    pub(crate) fn unpacked_len(&self) -> usize {
        self.groups.iter().map(|group| group.content).sum()
    }

    /// Returns the group of transaction `at`.
    pub(crate) fn group_of(&self, at: usize) -> usize {
        self.groups.partition_point(|group| group.start.tx <= at).saturating_sub(1)
    }

    /// Returns `count` signatures from transaction `from` on.
    pub(crate) fn signatures(&self, from: usize, count: usize) -> &'f [[u8; 64]] {
        self.signatures.get(from..from + count).unwrap_or_default()
    }

    /// Unpacks a group.
    pub(crate) fn group(&self, at: usize, with: &Dictionary) -> Result<Content, PackedError> {
        let missing = || PackedError::malformed(PLACE, "no such group");
        let group = self.groups.get(at).ok_or_else(missing)?;
        let packed = self.packed.get(group.packed.clone()).ok_or_else(missing)?;
        let end = self.groups.get(at + 1).map_or(self.txs, |next| next.start.tx);
        Content::read(with.unpack(packed, group.content)?, group.start, end)
    }
}

/// An unpacked group.
#[derive(Debug)]
pub(crate) struct Content {
    bytes: Vec<u8>,
    head_symbols: Range<usize>,
    pub(crate) chunks: Vec<ChunkAt>,
}

/// A chunk of a group.
#[derive(Debug)]
pub(crate) struct ChunkAt {
    pub(crate) start: Start,
    pub(crate) txs: usize,
    pub(crate) logs: usize,
    /// Symbols and literals of the transactions, then of the receipts.
    lanes: [Range<usize>; 4],
}

impl ChunkAt {
    /// Reads an entry of a group's directory: a chunk from `start` on whose streams begin behind those of the chunks
    /// before, at `place`. Also returns the start of the next chunk.
    fn read(
        bytes: &mut Bytes<'_>,
        start: Start,
        place: &mut usize,
        length: usize,
    ) -> Result<(Self, Start), PackedError> {
        let (txs, logs) = (bytes.count(TRANSACTIONS_MAX)?, bytes.count(LOGS_MAX)?);
        let gas = bytes.varint()?;
        let mut lanes = [const { 0..0 }; 4];
        for lane in &mut lanes {
            *lane = *place..*place + bytes.count(length)?;
            *place = lane.end;
        }
        Ok((Self { start, txs, logs, lanes }, start.behind(txs, logs, gas)))
    }

    /// Moves the streams behind the directory of the group.
    fn shift(&mut self, bytes: usize) {
        for lane in &mut self.lanes {
            *lane = lane.start + bytes..lane.end + bytes;
        }
    }
}

impl Content {
    /// Reads the directory of a group whose transactions end before `end`.
    fn read(content: Vec<u8>, mut start: Start, end: usize) -> Result<Self, PackedError> {
        let mut bytes = Bytes::new(&content, "group");
        let symbols = bytes.count(FIELDS.len() + 1)?;
        let at = content.len() - bytes.rest().len();
        bytes.take(symbols)?;
        let count = bytes.count(end.saturating_sub(start.tx).max(1))?;
        // The count is the file's, as above.
        let mut chunks = Vec::with_capacity(count.min(64));
        let mut place = 0;
        for _ in 0..count {
            let (chunk, next) = ChunkAt::read(&mut bytes, start, &mut place, content.len())?;
            chunks.push(chunk);
            start = next;
        }
        let streams = content.len() - bytes.rest().len();
        if start.tx != end || place != bytes.rest().len() {
            return Err(bytes.error("chunks that do not fill it"));
        }
        // The streams begin behind the directory, whose end is known now.
        chunks.iter_mut().for_each(|chunk| chunk.shift(streams));
        Ok(Self { head_symbols: at..at + symbols, chunks, bytes: content })
    }

    pub(crate) fn head_symbols(&self) -> &[u8] {
        self.bytes.get(self.head_symbols.clone()).unwrap_or_default()
    }

    /// Returns symbols and literals of the transactions, then of the receipts.
    pub(crate) fn lanes(&self, chunk: &ChunkAt) -> [&[u8]; 4] {
        let [a, b, c, d] = &chunk.lanes;
        [a, b, c, d].map(|lane| self.bytes.get(lane.clone()).unwrap_or_default())
    }

    /// Returns the chunk of transaction `at` of the block.
    pub(crate) fn chunk_of(&self, at: usize) -> Option<&ChunkAt> {
        let behind = self.chunks.partition_point(|chunk| chunk.start.tx <= at);
        self.chunks.get(behind.checked_sub(1)?).filter(|chunk| at < chunk.start.tx + chunk.txs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::bytes::put_varint;

    /// A frame of so many transactions, and of groups that say to unpack to so many bytes.
    fn frame(txs: u8, groups: &[usize]) -> Vec<u8> {
        let mut out = vec![txs, 0];
        put_varint(&mut out, groups.len() as u64);
        for (at, content) in groups.iter().enumerate() {
            out.push(0);
            put_varint(&mut out, *content as u64);
            if at + 1 < groups.len() {
                out.extend([0, 0, 0]);
            }
        }
        out.push(0);
        out.resize(out.len() + 64 * usize::from(txs), 0);
        out
    }

    #[test]
    fn groups_of_a_height_unpack_to_no_more_than_a_text() {
        let mut groups = vec![GROUP_BYTES_MAX; TEXT_BYTES_MAX / GROUP_BYTES_MAX];
        assert_eq!(Frame::read(&frame(9, &groups)).unwrap().unpacked_len(), TEXT_BYTES_MAX);
        groups.push(1);
        assert!(matches!(Frame::read(&frame(9, &groups)), Err(PackedError::OutputLimit(_))));
        assert!(Frame::read(&frame(1, &[GROUP_BYTES_MAX + 1])).is_err());
    }
}
