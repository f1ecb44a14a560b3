//! Reads of a height in the form of fields.

use alloy_primitives::B256;

use crate::container::bytes::Bytes;
use crate::error::PackedError;
use crate::frames::frame::{ChunkAt, Content, Frame, TEXT_BYTES_MAX};
use crate::frames::model::Model;
use crate::read::json::{self, At, Head, Sums};
use crate::read::log_out::LogOut;
use crate::read::text::TotalDifficulty;
use crate::stream::derive;
use crate::stream::facts::{Chunk, address};
use crate::stream::header::{BASE_FEE, LOGS_BLOOM, Values};
use crate::stream::tables::number;
use crate::stream::unwalk::Reader;

/// Room for the text of a receipt, and for that of each of its logs: usual lengths.
const RECEIPT_ROOM: usize = 1250;
const LOG_ROOM: usize = 700;
/// Logs that room is made for at once.
const LOGS_RESERVED: usize = 4096;
/// Symbol of the base fee that was paid, if the header's explains all prices; 16 + n: n bytes.
pub(crate) const PAID_AS_SHOWN: u8 = 0;
pub(crate) const PAID_BYTES: u8 = 16;

/// A height in the form of fields.
#[derive(Debug)]
pub(crate) struct Fields<'f> {
    pub(crate) height: u64,
    pub(crate) hash: &'f B256,
    pub(crate) parent: &'f B256,
    pub(crate) model: &'f Model,
    pub(crate) frame: Frame<'f>,
}

/// Header, and the base fee that was paid.
struct Header {
    values: Values,
    bloom_derived: bool,
    base_fee: Option<u128>,
    paid: Option<u128>,
}

/// How far the receipts of a chunk are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Transactions,
    /// To the end if the header's bloom is derived, which needs the logs.
    Bloom,
    /// Up to this receipt of the chunk.
    Receipt(usize),
    All,
}

impl Fields<'_> {
    fn group(&self, at: usize) -> Result<Content, PackedError> {
        self.frame.group(at, &self.model.dictionary)
    }

    fn header_of(&self, first: &Content) -> Result<Header, PackedError> {
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

    fn chunk(&self, group: &Content, at: &ChunkAt, depth: Depth) -> Result<Chunk, PackedError> {
        let [symbols, literals, receipt_symbols, receipt_literals] = group.lanes(at);
        let model = self.model;
        let mut reader = Reader::new(&model.tables, model.chain_id, symbols, literals);
        reader.chunk.reserve(at.txs, if depth == Depth::Transactions { 0 } else { at.logs });
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
        if count == at.txs {
            reader.end()?;
        }
        Ok(reader.chunk)
    }

    /// Calls `each` with each chunk in turn, the header, and the hashes of the chunk.
    fn each_chunk(
        &self,
        depth: Depth,
        mut each: impl FnMut(&Header, &ChunkAt, &Chunk, &[B256]) -> Result<(), PackedError>,
    ) -> Result<Header, PackedError> {
        let mut header = None;
        for at in 0..self.frame.groups.len() {
            let group = self.group(at)?;
            let header = match &header {
                Some(header) => header,
                None => &*header.insert(self.header_of(&group)?),
            };
            let depth = match depth {
                Depth::Bloom if header.bloom_derived => Depth::All,
                Depth::Bloom => Depth::Transactions,
                depth => depth,
            };
            for at in &group.chunks {
                let chunk = self.chunk(&group, at, depth)?;
                let signatures = self.frame.signatures(at.start.tx, at.txs);
                each(header, at, &chunk, &derive::hashes(&chunk, signatures))?;
            }
        }
        header.ok_or_else(|| PackedError::malformed("frame", "no group"))
    }

    fn head(&self, total: TotalDifficulty) -> Head<'_> {
        Head { height: self.height, hash: self.hash, parent: self.parent, total }
    }

    fn at<'a>(&'a self, index: usize, hash: &'a B256) -> At<'a> {
        At { height: self.height, block_hash: self.hash, index, hash }
    }

    pub(crate) fn block(
        &self,
        total: TotalDifficulty,
        out: &mut Vec<u8>,
    ) -> Result<(), PackedError> {
        let (mut list, mut bloom) = (Vec::new(), [0; 256]);
        let mut header = self.each_chunk(Depth::Bloom, |header, at, chunk, hashes| {
            self.join_bloom(header, chunk, &mut bloom);
            let signatures = self.frame.signatures(at.start.tx, at.txs);
            for (index, (tx, hash)) in chunk.txs.iter().zip(hashes).enumerate() {
                let place = self.at(at.start.tx + index, hash);
                comma(&mut list);
                json::transaction(&mut list, chunk, tx, &signatures[index], header.base_fee, place);
                limit(&list)?;
            }
            Ok(())
        })?;
        header.finish(&bloom);
        json::block(out, &header.values, self.head(total), Some(&list));
        Ok(())
    }

    pub(crate) fn with_hashes(
        &self,
        total: TotalDifficulty,
        out: &mut Vec<u8>,
    ) -> Result<(), PackedError> {
        let (mut list, mut bloom) = (Vec::new(), [0; 256]);
        let mut header = self.each_chunk(Depth::Bloom, |header, _, chunk, hashes| {
            self.join_bloom(header, chunk, &mut bloom);
            for hash in hashes {
                comma(&mut list);
                list.extend_from_slice(format!("\"{hash:#x}\"").as_bytes());
            }
            Ok(())
        })?;
        header.finish(&bloom);
        json::block(out, &header.values, self.head(total), Some(&list));
        Ok(())
    }

    pub(crate) fn header(
        &self,
        total: TotalDifficulty,
        out: &mut Vec<u8>,
    ) -> Result<(), PackedError> {
        let first = self.group(0)?;
        let mut header = self.header_of(&first)?;
        if header.bloom_derived {
            let mut bloom = [0; 256];
            let mut join = |group: &Content| -> Result<(), PackedError> {
                for at in &group.chunks {
                    let chunk = self.chunk(group, at, Depth::All)?;
                    self.join_bloom(&header, &chunk, &mut bloom);
                }
                Ok(())
            };
            join(&first)?;
            (1..self.frame.groups.len()).try_for_each(|at| join(&self.group(at)?))?;
            header.finish(&bloom);
        }
        json::block(out, &header.values, self.head(total), None);
        Ok(())
    }

    fn join_bloom(&self, header: &Header, chunk: &Chunk, bloom: &mut [u8; 256]) {
        if !header.bloom_derived {
            return;
        }
        for one in self.model.known.blooms(chunk) {
            bloom.iter_mut().zip(one).for_each(|(all, byte)| *all |= byte);
        }
    }

    pub(crate) fn receipts(&self, out: &mut Vec<u8>) -> Result<(), PackedError> {
        out.reserve(self.frame.txs * RECEIPT_ROOM + self.frame.logs.min(LOGS_RESERVED) * LOG_ROOM);
        out.push(b'[');
        self.each_chunk(Depth::All, |header, at, chunk, hashes| {
            let blooms = self.model.known.blooms(chunk);
            let (mut gas, mut log) = (at.start.gas, at.start.log);
            for (index, bloom) in blooms.iter().enumerate() {
                let (tx, receipt) = (&chunk.txs[index], &chunk.receipts[index]);
                gas = gas.wrapping_add(receipt.gas_used);
                let sums = Sums { gas, log, bloom, paid: header.paid };
                comma(out);
                let place = self.at(at.start.tx + index, &hashes[index]);
                json::receipt(out, chunk, tx, receipt, sums, place);
                limit(out)?;
                log += receipt.logs.len();
            }
            Ok(())
        })?;
        out.push(b']');
        Ok(())
    }

    /// Reads the chunk of transaction `at`; also returns the header and the place in the chunk.
    fn chunk_of(
        &self,
        at: usize,
        receipt: bool,
    ) -> Result<Option<(Header, ChunkAt, Chunk, usize)>, PackedError> {
        if at >= self.frame.txs {
            return Ok(None);
        }
        let number = self.frame.group_of(at);
        let mut group = self.group(number)?;
        let header =
            if number == 0 { self.header_of(&group) } else { self.header_of(&self.group(0)?) };
        let missing = || PackedError::malformed("group", "a transaction without a chunk");
        let found = group.chunk_of(at).ok_or_else(missing)?;
        let place = at - found.start.tx;
        let depth = if receipt { Depth::Receipt(place) } else { Depth::Transactions };
        let chunk = self.chunk(&group, found, depth)?;
        let found =
            group.chunks.iter().position(|chunk| chunk.start.tx + place == at && place < chunk.txs);
        let found = group.chunks.swap_remove(found.ok_or_else(missing)?);
        Ok(Some((header?, found, chunk, place)))
    }

    /// Keeps one transaction and its receipt of a chunk.
    fn only(chunk: &mut Chunk, place: usize) {
        chunk.txs = chunk.txs.drain(..).skip(place).take(1).collect();
        chunk.receipts = chunk.receipts.drain(..).skip(place).take(1).collect();
    }

    pub(crate) fn transaction(
        &self,
        at: usize,
        wanted: Option<&B256>,
        out: &mut Vec<u8>,
    ) -> Result<bool, PackedError> {
        let Some((header, _, mut chunk, place)) = self.chunk_of(at, false)? else {
            return Ok(false);
        };
        Self::only(&mut chunk, place);
        let signatures = self.frame.signatures(at, 1);
        let hashes = derive::hashes(&chunk, signatures);
        if wanted.is_some_and(|wanted| hashes.first() != Some(wanted)) {
            return Ok(false);
        }
        if let ([tx], [hash], [signature]) = (&chunk.txs[..], &hashes[..], signatures) {
            json::transaction(out, &chunk, tx, signature, header.base_fee, self.at(at, hash));
        }
        Ok(true)
    }

    pub(crate) fn receipt(
        &self,
        at: usize,
        wanted: Option<&B256>,
        out: &mut Vec<u8>,
    ) -> Result<bool, PackedError> {
        let Some((header, found, mut chunk, place)) = self.chunk_of(at, true)? else {
            return Ok(false);
        };
        let before = &chunk.receipts[..place];
        let gas = before.iter().fold(found.start.gas, |sum, one| sum.wrapping_add(one.gas_used));
        let log = found.start.log + before.iter().map(|one| one.logs.len()).sum::<usize>();
        let gas = gas.wrapping_add(chunk.receipts[place].gas_used);
        Self::only(&mut chunk, place);
        let hashes = derive::hashes(&chunk, self.frame.signatures(at, 1));
        if wanted.is_some_and(|wanted| hashes.first() != Some(wanted)) {
            return Ok(false);
        }
        let blooms = self.model.known.blooms(&chunk);
        if let ([tx], [receipt], [hash], [bloom]) =
            (&chunk.txs[..], &chunk.receipts[..], &hashes[..], &blooms[..])
        {
            let sums = Sums { gas, log, bloom, paid: header.paid };
            json::receipt(out, &chunk, tx, receipt, sums, self.at(at, hash));
        }
        Ok(true)
    }

    pub(crate) fn transaction_hash(&self, at: usize) -> Result<Option<B256>, PackedError> {
        if at >= self.frame.txs {
            return Ok(None);
        }
        let group = self.group(self.frame.group_of(at))?;
        let missing = || PackedError::malformed("group", "a transaction without a chunk");
        let found = group.chunk_of(at).ok_or_else(missing)?;
        let mut chunk = self.chunk(&group, found, Depth::Transactions)?;
        Self::only(&mut chunk, at - found.start.tx);
        Ok(derive::hashes(&chunk, self.frame.signatures(at, 1)).first().copied())
    }

    pub(crate) fn logs(
        &self,
        mut matches: impl FnMut(&[u8; 20], &[[u8; 32]]) -> bool,
        out: &mut LogOut,
    ) -> Result<(), PackedError> {
        for at in 0..self.frame.groups.len() {
            let group = self.group(at)?;
            for at in &group.chunks {
                let chunk = self.chunk(&group, at, Depth::All)?;
                self.logs_of(at, chunk, &mut matches, out)?;
            }
        }
        Ok(())
    }

    /// Only transactions with a log that matches are hashed.
    fn logs_of(
        &self,
        at: &ChunkAt,
        mut chunk: Chunk,
        matches: &mut impl FnMut(&[u8; 20], &[[u8; 32]]) -> bool,
        out: &mut LogOut,
    ) -> Result<(), PackedError> {
        let mut wanted: Vec<(usize, usize)> = Vec::new();
        for (index, receipt) in chunk.receipts.iter().enumerate() {
            for number in receipt.logs.clone() {
                let log = &chunk.logs[number];
                let address = address(&log.address).first_chunk();
                if address.is_some_and(|address| matches(address, log.topics())) {
                    wanted.push((index, number));
                }
            }
        }
        let mut txs: Vec<usize> = wanted.iter().map(|(index, _)| *index).collect();
        txs.dedup();
        let all = self.frame.signatures(at.start.tx, at.txs);
        let signatures: Vec<[u8; 64]> = txs.iter().map(|index| all[*index]).collect();
        chunk.txs = txs.iter().map(|index| std::mem::take(&mut chunk.txs[*index])).collect();
        let hashes = derive::hashes(&chunk, &signatures);
        let mut of_logs: Option<(usize, Vec<u8>)> = None;
        for (index, number) in wanted {
            let hash = txs.binary_search(&index).ok().and_then(|at| hashes.get(at));
            let Some(hash) = hash else { continue };
            if of_logs.as_ref().is_none_or(|(of, _)| *of != index) {
                of_logs = Some((index, json::of_logs(self.at(at.start.tx + index, hash))));
            }
            let Some((_, of_logs)) = &of_logs else { continue };
            out.begin();
            json::log(&mut out.text, &chunk, &chunk.logs[number], at.start.log + number, of_logs);
            limit(&out.text)?;
            out.end((at.start.log + number) as u32);
        }
        Ok(())
    }
}

impl Header {
    fn finish(&mut self, bloom: &[u8; 256]) {
        if self.bloom_derived {
            self.values.set(LOGS_BLOOM, bloom.to_vec());
        }
    }
}

fn comma(out: &mut Vec<u8>) {
    if !matches!(out.last(), None | Some(b'[')) {
        out.push(b',');
    }
}

fn limit(out: &[u8]) -> Result<(), PackedError> {
    if out.len() > TEXT_BYTES_MAX { Err(PackedError::OutputLimit(TEXT_BYTES_MAX)) } else { Ok(()) }
}
