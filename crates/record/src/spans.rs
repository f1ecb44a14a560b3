//! The spans part: byte ranges of values, transactions and logs in the other parts.

use crate::parts::{FULL, HASHES, HEADER};

/// The parts that carry block fields, in the order of [`Spans::pieces`].
const BLOCK_PARTS: [usize; 3] = [HASHES, HEADER, FULL];

/// Places of the values in a block part that some responses show differently, quotes included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FieldOffsets {
    /// `hash`, 68 bytes.
    pub hash: u32,
    /// `miner`, 44 bytes.
    pub miner: u32,
    /// `nonce`, 20 bytes.
    pub nonce: u32,
    /// `totalDifficulty`, of the length below.
    pub total_difficulty: u32,
    /// The length of `totalDifficulty`.
    pub total_difficulty_len: u32,
}

/// The length of a `hash` value with its quotes.
pub const HASH_LEN: u32 = 68;
/// The length of a `miner` value with its quotes.
pub const MINER_LEN: u32 = 44;
/// The length of a `nonce` value with its quotes.
pub const NONCE_LEN: u32 = 20;

/// A transaction in its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionSpan {
    /// Place where it begins in [`FULL`].
    pub at: u32,
    /// Bytes of the transaction in [`FULL`].
    pub len: u32,
    /// Place where its receipt begins in [`RECEIPTS`](crate::parts::RECEIPTS).
    pub receipt_at: u32,
    /// Length of the receipt.
    pub receipt_len: u32,
    /// The block's number of its first log.
    pub first_log: u32,
}

/// A log in [`RECEIPTS`](crate::parts::RECEIPTS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogSpan {
    /// Place where it begins.
    pub at: u32,
    /// Bytes of the log.
    pub len: u32,
}

/// Everything that the spans part says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spans {
    /// Height that the header settles; `None` for a synchronous block.
    pub settled: Option<u64>,
    /// Places in the parts [`HASHES`], [`HEADER`] and [`FULL`].
    pub pieces: [FieldOffsets; 3],
    /// A span a transaction.
    pub transactions: Vec<TransactionSpan>,
    /// A span a log.
    pub logs: Vec<LogSpan>,
}

const SETTLED_AT: usize = 8;
const PIECES_AT: usize = SETTLED_AT + 8;
const PIECES_LEN: usize = 5 * 4;
const TRANSACTIONS_AT: usize = PIECES_AT + BLOCK_PARTS.len() * PIECES_LEN + 4;
const TRANSACTION_LEN: usize = 5 * 4;
const LOG_LEN: usize = 2 * 4;
const _: () = assert!(TRANSACTIONS_AT == 80);

impl Spans {
    /// The bytes of the part.
    pub fn encode(&self) -> Vec<u8> {
        let counts = [self.transactions.len() as u32, self.logs.len() as u32];
        let mut bytes = Vec::with_capacity(
            TRANSACTIONS_AT + self.transactions.len() * TRANSACTION_LEN + self.logs.len() * LOG_LEN,
        );
        put(&mut bytes, &counts);
        // 0 is none, so that height 0 can be told from it.
        bytes.extend_from_slice(&self.settled.map_or(0, |settled| settled + 1).to_le_bytes());
        for pieces in &self.pieces {
            let FieldOffsets { hash, miner, nonce, total_difficulty, total_difficulty_len } =
                *pieces;
            put(&mut bytes, &[hash, miner, nonce, total_difficulty, total_difficulty_len]);
        }
        put(&mut bytes, &[0]);
        for span in &self.transactions {
            let TransactionSpan { at, len, receipt_at, receipt_len, first_log } = *span;
            put(&mut bytes, &[at, len, receipt_at, receipt_len, first_log]);
        }
        self.logs.iter().for_each(|span| put(&mut bytes, &[span.at, span.len]));
        bytes
    }
}

fn put(bytes: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
}

/// A spans part, read in place: a look-up takes the words that it needs and no others.
#[derive(Clone, Copy)]
pub struct SpansRef<'a>(pub &'a [u8]);

impl SpansRef<'_> {
    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.0.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Height that the block's header settles; `None` for a synchronous block.
    pub fn settled(&self) -> Option<u64> {
        let bytes = self.0.get(SETTLED_AT..SETTLED_AT + 8)?;
        u64::from_le_bytes(bytes.try_into().ok()?).checked_sub(1)
    }

    /// The pieces of a block part.
    pub fn pieces(&self, part: usize) -> Option<FieldOffsets> {
        let at = PIECES_AT + PIECES_LEN * BLOCK_PARTS.iter().position(|block| *block == part)?;
        Some(FieldOffsets {
            hash: self.word(at)?,
            miner: self.word(at + 4)?,
            nonce: self.word(at + 8)?,
            total_difficulty: self.word(at + 12)?,
            total_difficulty_len: self.word(at + 16)?,
        })
    }

    /// Transaction `at` and its receipt.
    pub fn transaction(&self, at: usize) -> Option<TransactionSpan> {
        // Words behind the table would be read as a transaction.
        if at >= self.word(0)? as usize {
            return None;
        }
        let at = TRANSACTIONS_AT + at * TRANSACTION_LEN;
        Some(TransactionSpan {
            at: self.word(at)?,
            len: self.word(at + 4)?,
            receipt_at: self.word(at + 8)?,
            receipt_len: self.word(at + 12)?,
            first_log: self.word(at + 16)?,
        })
    }

    /// Log `at` of the block.
    pub fn log(&self, at: usize) -> Option<LogSpan> {
        // Words behind the table would be read as a log.
        if at >= self.word(4)? as usize {
            return None;
        }
        let logs = TRANSACTIONS_AT + self.word(0)? as usize * TRANSACTION_LEN;
        let at = logs + at * LOG_LEN;
        Some(LogSpan { at: self.word(at)?, len: self.word(at + 4)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::RECEIPTS;

    #[test]
    fn encoded_spans_are_read_in_place() {
        let pieces = |of: u32| FieldOffsets {
            hash: of,
            miner: of + 1,
            nonce: of + 2,
            total_difficulty: of + 3,
            total_difficulty_len: 5,
        };
        let transaction = |of: u32| TransactionSpan {
            at: of,
            len: of + 1,
            receipt_at: of + 2,
            receipt_len: of + 3,
            first_log: of + 4,
        };
        let spans = Spans {
            settled: Some(0),
            pieces: [pieces(10), pieces(20), pieces(30)],
            transactions: vec![transaction(100), transaction(200)],
            logs: [7, 9, 11].map(|at| LogSpan { at, len: at + 1 }).to_vec(),
        };
        let bytes = spans.encode();
        assert_eq!(bytes.len(), 80 + 2 * 20 + 3 * 8);
        let read = SpansRef(&bytes);
        assert_eq!(read.settled(), Some(0));
        assert_eq!(read.pieces(HEADER), Some(pieces(20)));
        assert_eq!(read.pieces(FULL), Some(pieces(30)));
        assert_eq!(read.pieces(RECEIPTS), None);
        assert_eq!(read.transaction(1), Some(transaction(200)));
        assert_eq!(read.transaction(2), None);
        assert_eq!(read.log(2), Some(LogSpan { at: 11, len: 12 }));
        assert_eq!(read.log(3), None);
        assert_eq!(SpansRef(&Spans::default().encode()).settled(), None);
    }

    #[test]
    fn a_short_part_has_nothing() {
        assert_eq!(SpansRef(&[]).settled(), None);
        assert_eq!(SpansRef(&[1; 40]).transaction(0), None);
        assert_eq!(SpansRef(&[1; 40]).log(0), None);
    }
}
