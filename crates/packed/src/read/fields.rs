//! A height in the form of fields: its header, and its chunks one after the other.

use alloy_primitives::B256;

use crate::container::bytes::Bytes;
use crate::error::PackedError;
use crate::frames::frame::{ChunkAt, Content, Frame, TEXT_BYTES_MAX};
use crate::frames::model::Model;
use crate::read::json::{self, At, Head};
use crate::read::text::TotalDifficulty;
use crate::stream::derive::Messages;
use crate::stream::facts::Chunk;
use crate::stream::header::{BASE_FEE, Values};
use crate::stream::tables::number;
use crate::stream::unwalk::Reader;

/// Symbol of the base fee that was paid, if the header's explains all prices; 16 + n: n bytes.
pub(crate) const PAID_AS_SHOWN: u8 = 0;
pub(crate) const PAID_BYTES: u8 = 16;

/// Bytes of chunks that are hashed together. Beyond them no more chunks wait in memory.
pub(super) const HASHED_BYTES: usize = 64 << 10;
/// Memory of chunks that wait. Groups of a packer take less, others may have many logs without data.
pub(super) const WAITING_BYTES: usize = 1 << 20;

/// A height in the form of fields.
#[derive(Debug)]
pub(crate) struct Fields<'f> {
    pub(crate) height: u64,
    pub(crate) hash: &'f B256,
    pub(crate) parent: &'f B256,
    pub(crate) model: &'f Model,
    pub(crate) frame: Frame<'f>,
    /// Text of [`json::start`].
    pub(crate) start: Vec<u8>,
}

/// A chunk with the values that are hashed for it.
pub(super) struct Hashed<'a> {
    pub(super) at: &'a ChunkAt,
    pub(super) chunk: &'a Chunk,
    /// Hashes of the transactions.
    pub(super) hashes: &'a [B256],
    /// Blooms of the receipts that were read.
    pub(super) blooms: &'a [[u8; 256]],
}

/// Header, and the base fee that was paid.
pub(super) struct Header<'f> {
    pub(super) values: Values<'f>,
    pub(super) bloom_derived: bool,
    pub(super) base_fee: Option<u128>,
    pub(super) paid: Option<u128>,
}

/// Place up to which the receipts of a chunk are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Up to this transaction of the chunk.
    Transaction(usize),
    Transactions,
    /// To the end if the header's bloom is derived, which needs the logs.
    Bloom,
    /// Up to this receipt of the chunk.
    Receipt(usize),
    All,
}

impl<'f> Fields<'f> {
    pub(crate) fn new(
        height: u64,
        hash: &'f B256,
        parent: &'f B256,
        model: &'f Model,
        frame: Frame<'f>,
    ) -> Self {
        Self { height, hash, parent, model, frame, start: json::start(height, hash) }
    }

    pub(super) fn group(&self, at: usize) -> Result<Content, PackedError> {
        self.frame.group(at, &self.model.dictionary)
    }

    pub(super) fn header_of(&self, first: &Content) -> Result<Header<'f>, PackedError> {
        let mut symbols = Bytes::new(first.head_symbols(), "header");
        let mut literals = Bytes::new(self.frame.head_literals, "header");
        let (values, bloom_derived) =
            Values::read(&self.model.template, self.height, &mut symbols, &mut literals)?;
        let base_fee = match values.get(BASE_FEE) {
            Some(bytes) if bytes.len() > 16 => {
                return Err(symbols.error("a base fee over 128 bits"));
            }
            bytes => bytes.map(number),
        };
        let paid = match symbols.byte()? {
            PAID_AS_SHOWN => base_fee,
            symbol @ PAID_BYTES..=32 => {
                Some(number(literals.take(usize::from(symbol - PAID_BYTES))?))
            }
            _ => return Err(symbols.error("an unknown symbol")),
        };
        symbols.end()?;
        literals.end()?;
        Ok(Header { values, bloom_derived, base_fee, paid })
    }

    pub(super) fn chunk(
        &self,
        group: &Content,
        at: &ChunkAt,
        depth: Depth,
    ) -> Result<Chunk, PackedError> {
        let [symbols, literals, receipt_symbols, receipt_literals] = group.lanes(at);
        let model = self.model;
        let mut reader = Reader::new(&model.tables, model.chain_id, symbols, literals);
        let without_logs = matches!(depth, Depth::Transaction(_) | Depth::Transactions);
        reader.chunk.reserve(at.txs, if without_logs { 0 } else { at.logs });
        if let Depth::Transaction(place) = depth {
            // A word may refer to those before it, so that reading begins with the first.
            (0..=place).try_for_each(|_| reader.transaction())?;
            return Ok(reader.chunk);
        }
        for _ in 0..at.txs {
            reader.transaction()?;
        }
        if matches!(depth, Depth::Transactions | Depth::Bloom) {
            reader.end()?;
            return Ok(reader.chunk);
        }
        reader.switch(receipt_symbols, receipt_literals)?;
        let count = if let Depth::Receipt(at) = depth { at + 1 } else { at.txs };
        for receipt in 0..count {
            reader.receipt(receipt)?;
        }
        // With fewer receipts than there are, the streams have bytes left.
        if count == at.txs {
            reader.end()?;
        }
        Ok(reader.chunk)
    }

    /// Calls `each` with the header and each chunk in turn.
    pub(super) fn each_chunk(
        &self,
        depth: Depth,
        mut each: impl FnMut(&Header<'f>, Hashed<'_>) -> Result<(), PackedError>,
    ) -> Result<Header<'f>, PackedError> {
        let mut header = None;
        for at in 0..self.frame.groups.len() {
            let group = self.group(at)?;
            let header = match &header {
                Some(header) => header,
                None => &*header.insert(self.header_of(&group)?),
            };
            let depth = match depth {
                // A bloom that is not stored follows from all logs.
                Depth::Bloom if header.bloom_derived => Depth::All,
                Depth::Bloom => Depth::Transactions,
                depth => depth,
            };
            self.each_of_group(&group, depth, |hashed| each(header, hashed))?;
        }
        header.ok_or_else(|| PackedError::malformed("frame", "no group"))
    }

    /// Calls `each` with each chunk of a group. Hashes of several chunks are made together,
    /// because many take less time than few, up to [`HASHED_BYTES`].
    fn each_of_group(
        &self,
        group: &Content,
        depth: Depth,
        mut each: impl FnMut(Hashed<'_>) -> Result<(), PackedError>,
    ) -> Result<(), PackedError> {
        let known = &self.model.known;
        let (mut messages, mut waiting) = (Messages::default(), Vec::new());
        let (mut held, mut memory) = (0, 0);
        for (number, at) in group.chunks.iter().enumerate() {
            let chunk = self.chunk(group, at, depth)?;
            let signatures = self.frame.signatures(at.start.tx, at.txs);
            for (tx, signature) in chunk.txs.iter().zip(signatures) {
                messages.transaction(&chunk, tx, signature);
            }
            let blooms = known.begin(&chunk, &mut messages);
            (held, memory) = (held + chunk.data.len(), memory + chunk.bytes());
            waiting.push((at, chunk, signatures.len(), blooms));
            let is_last = number + 1 == group.chunks.len();
            // Several chunks are hashed together, as long as they take little memory.
            if !is_last && held + messages.bytes() < HASHED_BYTES && memory < WAITING_BYTES {
                continue;
            }
            (held, memory) = (0, 0);
            let hashes = messages.hashes();
            let mut rest = &hashes[..];
            for (at, chunk, txs, blooms) in waiting.drain(..) {
                let hashes = first(&mut rest, txs.min(chunk.txs.len()));
                let unknown = first(&mut rest, blooms.unknown());
                let blooms = &known.finish(blooms, unknown)[..];
                each(Hashed { at, chunk: &chunk, hashes, blooms })?;
            }
        }
        Ok(())
    }

    pub(super) fn head(&self, total: TotalDifficulty) -> Head<'_> {
        Head { height: self.height, hash: self.hash, parent: self.parent, total }
    }

    pub(super) fn at<'a>(&'a self, index: usize, hash: &'a B256) -> At<'a> {
        let (start, height, block_hash) = (&self.start[..], self.height, self.hash);
        At { start, height, block_hash, index, hash }
    }
}

/// Takes up to `count` from the front.
fn first<'a>(rest: &mut &'a [B256], count: usize) -> &'a [B256] {
    let (first, others) = rest.split_at(count.min(rest.len()));
    *rest = others;
    first
}

/// Separates entries of a list.
pub(super) fn comma(out: &mut Vec<u8>) {
    if !matches!(out.last(), None | Some(b'[')) {
        out.push(b',');
    }
}

/// Refuses a text over [`TEXT_BYTES_MAX`].
pub(super) fn limit(out: &[u8]) -> Result<(), PackedError> {
    if out.len() > TEXT_BYTES_MAX { Err(PackedError::OutputLimit(TEXT_BYTES_MAX)) } else { Ok(()) }
}
