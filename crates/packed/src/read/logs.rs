//! Logs of a height in the form of fields, as far as they match.

use alloy_primitives::B256;

use crate::error::PackedError;
use crate::frames::frame::ChunkAt;
use crate::read::fields::{Depth, Fields, HASHED_BYTES, WAITING_BYTES, limit};
use crate::read::json;
use crate::read::log_out::LogOut;
use crate::stream::derive::Messages;
use crate::stream::facts::{Chunk, address};

/// Logs of a chunk that match.
struct Found<'g> {
    at: &'g ChunkAt,
    chunk: Chunk,
    /// Place of the transaction and of the log in the chunk.
    logs: Vec<(usize, usize)>,
}

impl Fields<'_> {
    /// Only transactions with a log that matches are hashed: those of a group together, up to
    /// [`HASHED_BYTES`].
    pub(crate) fn logs(
        &self,
        mut matches: impl FnMut(&[u8; 20], &[[u8; 32]]) -> bool,
        out: &mut LogOut,
    ) -> Result<(), PackedError> {
        for at in 0..self.frame.groups.len() {
            let group = self.group(at)?;
            let (mut messages, mut found) = (Messages::default(), Vec::new());
            let (mut held, mut memory) = (0, 0);
            for at in &group.chunks {
                let chunk = self.chunk(&group, at, Depth::All)?;
                let logs = matching(&chunk, &mut matches);
                // Without a match no hash of a transaction is needed, which is most of the work.
                if logs.is_empty() {
                    continue;
                }
                self.encode(at, &chunk, &logs, &mut messages);
                (held, memory) = (held + chunk.data.len(), memory + chunk.bytes());
                found.push(Found { at, chunk, logs });
                if held + messages.bytes() >= HASHED_BYTES || memory >= WAITING_BYTES {
                    self.write_logs(&found, &messages.hashes(), out)?;
                    found.clear();
                    (held, memory) = (0, 0);
                }
            }
            self.write_logs(&found, &messages.hashes(), out)?;
        }
        Ok(())
    }

    fn encode(
        &self,
        at: &ChunkAt,
        chunk: &Chunk,
        logs: &[(usize, usize)],
        messages: &mut Messages,
    ) {
        let signatures = self.frame.signatures(at.start.tx, at.txs);
        let mut last = None;
        for (index, _) in logs.iter().filter(|(index, _)| last.replace(*index) != Some(*index)) {
            if let (Some(tx), Some(signature)) = (chunk.txs.get(*index), signatures.get(*index)) {
                messages.transaction(chunk, tx, signature);
            }
        }
    }

    /// Appends the texts. `hashes` are those of the transactions with such logs.
    fn write_logs(
        &self,
        found: &[Found<'_>],
        hashes: &[B256],
        out: &mut LogOut,
    ) -> Result<(), PackedError> {
        let count: usize = found.iter().map(|one| one.logs.len()).sum();
        out.reserve(count);
        let mut hashes = hashes.iter();
        for Found { at, chunk, logs } in found {
            for logs in logs.chunk_by(|(one, _), (next, _)| one == next) {
                let hash = hashes.next();
                let hash =
                    hash.ok_or_else(|| PackedError::malformed("frame", "too few signatures"))?;
                let mut shared = None;
                for (tx, number) in logs {
                    let (log, index) = (&chunk.logs[*number], at.start.log + number);
                    let place = self.at(at.start.tx + tx, hash);
                    out.begin();
                    json::log(&mut out.text, chunk, log, index, place, &mut shared);
                    #[cfg(test)]
                    crate::read::one::wrong::shorten("log", index, &mut out.text);
                    // The text of a small file may be large: it is bounded as it grows.
                    limit(out.logs())?;
                    out.end(index as u32);
                }
            }
        }
        Ok(())
    }
}

/// Finds the logs that match.
fn matching(
    chunk: &Chunk,
    matches: &mut impl FnMut(&[u8; 20], &[[u8; 32]]) -> bool,
) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (index, receipt) in chunk.receipts.iter().enumerate() {
        for number in receipt.logs.clone() {
            let log = &chunk.logs[number];
            if matches(address(&log.address), log.topics()) {
                found.push((index, number));
            }
        }
    }
    found
}
