//! Texts of a whole height in the form of fields: both blocks, the header, and all receipts.

use alloy_primitives::B256;

use crate::error::PackedError;
use crate::frames::frame::Content;
use crate::read::fields::{Depth, Fields, Hashed, Header, comma, limit};
use crate::read::json::{self, Sums};
use crate::read::log_out::{LOG_ROOM, LOGS_RESERVED};
use crate::read::text::TotalDifficulty;
use crate::stream::header::LOGS_BLOOM;

/// Space for the text of a receipt without its logs: a usual length.
pub(super) const RECEIPT_ROOM: usize = 1250;
/// Space for the text of a transaction: a usual length.
pub(super) const TRANSACTION_ROOM: usize = 1100;

impl Fields<'_> {
    pub(crate) fn block(
        &self,
        total: TotalDifficulty,
        out: &mut Vec<u8>,
    ) -> Result<(), PackedError> {
        // The frame's numbers are not proven: a false one must not reserve gigabytes.
        let room = self.frame.txs.min(LOGS_RESERVED) * TRANSACTION_ROOM;
        let (mut list, mut bloom) = (Vec::with_capacity(room), [0; 256]);
        let mut header = self.each_chunk(Depth::Bloom, |header, hashed| {
            let Hashed { at, chunk, hashes, blooms } = hashed;
            header.join_bloom(blooms, &mut bloom);
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
        let mut header = self.each_chunk(Depth::Bloom, |header, hashed| {
            header.join_bloom(hashed.blooms, &mut bloom);
            for hash in hashed.hashes {
                comma(&mut list);
                json::hash(&mut list, hash);
            }
            Ok(())
        })?;
        header.finish(&bloom);
        json::block(out, &header.values, self.head(total), Some(&list));
        Ok(())
    }

    /// Hashes of the transactions. No receipt is unpacked for them.
    pub(crate) fn hashes(&self) -> Result<Vec<B256>, PackedError> {
        let mut found = Vec::new();
        self.each_chunk(Depth::Transactions, |_, hashed| {
            found.extend_from_slice(hashed.hashes);
            Ok(())
        })?;
        Ok(found)
    }

    pub(crate) fn header(
        &self,
        total: TotalDifficulty,
        out: &mut Vec<u8>,
    ) -> Result<(), PackedError> {
        let first = self.group(0)?;
        // A stored bloom needs no receipts. A derived one needs all of them, which is most of the
        // work.
        let mut header = self.header_of(&first)?;
        if header.bloom_derived {
            let bloom = self.derived_bloom(&header, &first)?;
            header.finish(&bloom);
        }
        json::block(out, &header.values, self.head(total), None);
        Ok(())
    }

    /// Joins the blooms of all receipts. `first` is the first group.
    fn derived_bloom(
        &self,
        header: &Header<'_>,
        first: &Content,
    ) -> Result<[u8; 256], PackedError> {
        let mut bloom = [0; 256];
        let mut join = |group: &Content| -> Result<(), PackedError> {
            for at in &group.chunks {
                let chunk = self.chunk(group, at, Depth::All)?;
                header.join_bloom(&self.model.known.blooms(&chunk), &mut bloom);
            }
            Ok(())
        };
        join(first)?;
        (1..self.frame.groups.len()).try_for_each(|at| join(&self.group(at)?))?;
        Ok(bloom)
    }

    pub(crate) fn receipts(&self, out: &mut Vec<u8>) -> Result<(), PackedError> {
        // Each transaction has a signature in the frame, so its number is no mere claim.
        out.reserve(self.frame.txs * RECEIPT_ROOM + self.frame.logs.min(LOGS_RESERVED) * LOG_ROOM);
        let before = out.len();
        out.push(b'[');
        self.each_chunk(Depth::All, |header, hashed| {
            let Hashed { at, chunk, hashes, blooms } = hashed;
            let (mut gas, mut log) = (at.start.gas, at.start.log);
            for (index, bloom) in blooms.iter().enumerate() {
                let (tx, receipt) = (&chunk.txs[index], &chunk.receipts[index]);
                gas = gas.wrapping_add(receipt.gas_used);
                let sums = Sums { gas, log, bloom, paid: header.paid };
                comma(out);
                let place = self.at(at.start.tx + index, &hashes[index]);
                json::receipt(out, chunk, tx, receipt, sums, place);
                limit(&out[before..])?;
                log += receipt.logs.len();
            }
            Ok(())
        })?;
        out.push(b']');
        Ok(())
    }
}

impl Header<'_> {
    /// Adds the blooms of receipts to the block's, if it is derived from them.
    fn join_bloom(&self, blooms: &[[u8; 256]], bloom: &mut [u8; 256]) {
        for one in blooms.iter().filter(|_| self.bloom_derived) {
            bloom.iter_mut().zip(one).for_each(|(all, byte)| *all |= byte);
        }
    }

    fn finish(&mut self, bloom: &[u8; 256]) {
        if self.bloom_derived {
            self.values.set(LOGS_BLOOM, bloom.to_vec());
        }
    }
}
