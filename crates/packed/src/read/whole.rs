//! Texts of a whole height in the form of fields: both blocks, the header, and all receipts.

use crate::error::PackedError;
use crate::frames::frame::Content;
use crate::read::fields::{Depth, Fields, Header, comma, limit};
use crate::read::json::{self, Sums};
use crate::read::log_out::{LOG_ROOM, LOGS_RESERVED};
use crate::read::text::TotalDifficulty;
use crate::stream::facts::Chunk;
use crate::stream::header::LOGS_BLOOM;

/// Room for the text of a receipt without its logs: a usual length.
const RECEIPT_ROOM: usize = 1250;

impl Fields<'_> {
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
}

impl Header {
    fn finish(&mut self, bloom: &[u8; 256]) {
        if self.bloom_derived {
            self.values.set(LOGS_BLOOM, bloom.to_vec());
        }
    }
}
