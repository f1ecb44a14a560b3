//! Reads of one transaction in the form of fields, its receipt, or its hash. Only its group is unpacked,
//! and the first one for the header.

use std::mem;

use alloy_primitives::B256;

use crate::error::{PackedError, Reason};
use crate::frames::frame::ChunkAt;
use crate::read::fields::{Depth, Fields, Header};
use crate::read::json::{self, Sums};
use crate::read::log_out::{LOG_ROOM, LOGS_RESERVED};
use crate::read::whole::{RECEIPT_ROOM, TRANSACTION_ROOM};
use crate::stream::derive;
use crate::stream::facts::{Chunk, Rx};

impl Fields<'_> {
    /// Reads the chunk of transaction `at`; also returns the header and the place in the chunk.
    fn chunk_of(
        &self,
        at: usize,
        receipt: bool,
    ) -> Result<Option<(Header<'_>, ChunkAt, Chunk, usize)>, PackedError> {
        if at >= self.frame.txs {
            return Ok(None);
        }
        let number = self.frame.group_of(at);
        let mut group = self.group(number)?;
        let header =
            // The header lies in the first group.
            if number == 0 { self.header_of(&group) } else { self.header_of(&self.group(0)?) };
        let missing = || PackedError::malformed("group", "a transaction without a chunk");
        let found = group.chunk_of(at).ok_or_else(missing)?;
        let place = at - found.start.tx;
        let depth = if receipt { Depth::Receipt(place) } else { Depth::Transaction(place) };
        let chunk = self.chunk(&group, found, depth)?;
        let found =
            // Found again, to take it out of the group: above it is lent.
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
        // Before hashing: the others of the chunk would be hashed for nothing.
        Self::only(&mut chunk, place);
        Ok(self.put_transaction(&header, &chunk, at, wanted, out))
    }

    /// Appends transaction `at`, which is the only one of its chunk.
    fn put_transaction(
        &self,
        header: &Header<'_>,
        chunk: &Chunk,
        at: usize,
        wanted: Option<&B256>,
        out: &mut Vec<u8>,
    ) -> bool {
        let signatures = self.frame.signatures(at, 1);
        let hashes = derive::hashes(chunk, signatures);
        // The index has a few bits of a hash: the place may be that of another transaction.
        if wanted.is_some_and(|wanted| hashes.first() != Some(wanted)) {
            return false;
        }
        if let ([tx], [hash], [signature]) = (&chunk.txs[..], &hashes[..], signatures) {
            out.reserve(TRANSACTION_ROOM + 2 * tx.input.len());
            json::transaction(out, chunk, tx, signature, header.base_fee, self.at(at, hash));
        }
        #[cfg(test)]
        wrong::shorten("transaction", at, out);
        true
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
        let one = One::of(&found, &chunk.receipts, place);
        Self::only(&mut chunk, place);
        Ok(self.put_receipt(&header, &chunk, one, wanted, out))
    }

    /// Appends the receipt of a transaction, which is the only one of its chunk.
    fn put_receipt(
        &self,
        header: &Header<'_>,
        chunk: &Chunk,
        One { at, gas, log }: One,
        wanted: Option<&B256>,
        out: &mut Vec<u8>,
    ) -> bool {
        let hashes = derive::hashes(chunk, self.frame.signatures(at, 1));
        if wanted.is_some_and(|wanted| hashes.first() != Some(wanted)) {
            return false;
        }
        let blooms = self.model.known.blooms(chunk);
        if let ([tx], [receipt], [hash], [bloom]) =
            (&chunk.txs[..], &chunk.receipts[..], &hashes[..], &blooms[..])
        {
            let sums = Sums { gas, log, bloom, paid: header.paid };
            out.reserve(RECEIPT_ROOM + receipt.logs.len().min(LOGS_RESERVED) * LOG_ROOM);
            json::receipt(out, chunk, tx, receipt, sums, self.at(at, hash));
        }
        #[cfg(test)]
        wrong::shorten("receipt", at, out);
        true
    }

    /// Calls `each` with the place of each transaction, its text, and the text of its receipt, as reads of one of them make
    /// both. Unpacks each group and reads each chunk once: a packer compares all texts, and reads of one by one would take
    /// a multiple.
    pub(crate) fn ones(
        &self,
        mut each: impl FnMut(usize, &[u8], &[u8]) -> Result<(), Reason>,
    ) -> Result<Result<(), Reason>, PackedError> {
        let mut header = None;
        for number in 0..self.frame.groups.len() {
            let group = self.group(number)?;
            let header = match &header {
                Some(header) => header,
                // The header lies in the first group.
                None => &*header.insert(self.header_of(&group)?),
            };
            for found in &group.chunks {
                let chunk = self.chunk(&group, found, Depth::All)?;
                if let Err(reason) = self.ones_of(header, found, chunk, &mut each) {
                    return Ok(Err(reason));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Calls `each` for the transactions of a chunk.
    fn ones_of(
        &self,
        header: &Header<'_>,
        found: &ChunkAt,
        mut chunk: Chunk,
        mut each: impl FnMut(usize, &[u8], &[u8]) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        let (mut transaction, mut receipt) = (Vec::new(), Vec::new());
        let (txs, receipts) = (mem::take(&mut chunk.txs), mem::take(&mut chunk.receipts));
        for (place, (tx, rx)) in txs.iter().zip(&receipts).enumerate() {
            (chunk.txs, chunk.receipts) = (vec![tx.clone()], vec![rx.clone()]);
            let one = One::of(found, &receipts, place);
            transaction.clear();
            receipt.clear();
            self.put_transaction(header, &chunk, one.at, None, &mut transaction);
            self.put_receipt(header, &chunk, one, None, &mut receipt);
            each(one.at, &transaction, &receipt)?;
        }
        Ok(())
    }

    pub(crate) fn transaction_hash(&self, at: usize) -> Result<Option<B256>, PackedError> {
        if at >= self.frame.txs {
            return Ok(None);
        }
        let group = self.group(self.frame.group_of(at))?;
        let missing = || PackedError::malformed("group", "a transaction without a chunk");
        let found = group.chunk_of(at).ok_or_else(missing)?;
        let place = at - found.start.tx;
        let mut chunk = self.chunk(&group, found, Depth::Transaction(place))?;
        Self::only(&mut chunk, place);
        Ok(derive::hashes(&chunk, self.frame.signatures(at, 1)).first().copied())
    }
}

/// Place of a transaction, and what its receipt adds up from those before.
#[derive(Debug, Clone, Copy)]
struct One {
    /// Place in the block.
    at: usize,
    /// Cumulative gas of the receipt.
    gas: u64,
    /// Index of its first log in the block.
    log: usize,
}

impl One {
    /// Goes on from the receipts before `place` of a chunk. A forged file must not overflow the gas.
    fn of(found: &ChunkAt, receipts: &[Rx], place: usize) -> Self {
        let (before, rest) = receipts.split_at(place.min(receipts.len()));
        let used = before.iter().chain(rest.first()).map(|one| one.gas_used);
        let gas = used.fold(found.start.gas, u64::wrapping_add);
        let logs: usize = before.iter().map(|one| one.logs.len()).sum();
        Self { at: found.start.tx + place, gas, log: found.start.log + logs }
    }
}

/// Faults that a test puts into reads of one, which no byte of a file can.
#[cfg(test)]
pub(crate) mod wrong {
    use std::cell::Cell;

    thread_local! {
        /// Kind and place of a text that lacks its last byte if it is read alone.
        pub(crate) static TEXT: Cell<Option<(&str, usize)>> = const { Cell::new(None) };
    }

    /// Takes the last byte of a text if it is the wrong one.
    pub(crate) fn shorten(kind: &str, at: usize, out: &mut Vec<u8>) {
        if TEXT.get() == Some((kind, at)) {
            out.pop();
        }
    }
}
