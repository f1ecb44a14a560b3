//! Reads of one transaction in the form of fields, its receipt, or its hash. Only its group is unpacked,
//! and the first one for the header.

use alloy_primitives::B256;

use crate::error::PackedError;
use crate::frames::frame::ChunkAt;
use crate::read::fields::{Depth, Fields, Header};
use crate::read::json::{self, Sums};
use crate::read::log_out::{LOG_ROOM, LOGS_RESERVED};
use crate::read::whole::{RECEIPT_ROOM, TRANSACTION_ROOM};
use crate::stream::derive;
use crate::stream::facts::Chunk;

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
        let signatures = self.frame.signatures(at, 1);
        let hashes = derive::hashes(&chunk, signatures);
        // The index has a few bits of a hash: the place may be that of another transaction.
        if wanted.is_some_and(|wanted| hashes.first() != Some(wanted)) {
            return Ok(false);
        }
        if let ([tx], [hash], [signature]) = (&chunk.txs[..], &hashes[..], signatures) {
            out.reserve(TRANSACTION_ROOM + 2 * tx.input.len());
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
        // Gas and log index go on from the receipts before. A forged file must not overflow them.
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
            out.reserve(RECEIPT_ROOM + receipt.logs.len().min(LOGS_RESERVED) * LOG_ROOM);
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
        let place = at - found.start.tx;
        let mut chunk = self.chunk(&group, found, Depth::Transaction(place))?;
        Self::only(&mut chunk, place);
        Ok(derive::hashes(&chunk, self.frame.signatures(at, 1)).first().copied())
    }
}
