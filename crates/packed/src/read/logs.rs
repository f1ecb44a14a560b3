//! Logs of a height in the form of fields, as far as they match.

use crate::error::PackedError;
use crate::frames::frame::ChunkAt;
use crate::read::fields::{Depth, Fields, limit};
use crate::read::json;
use crate::read::log_out::LogOut;
use crate::stream::derive;
use crate::stream::facts::{Chunk, address};

impl Fields<'_> {
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
