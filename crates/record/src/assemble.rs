//! From a node's two answers to a record: prove them, then cut the exact bytes into parts.
//!
//! Pure. `neve verify` makes the record of every stored block again with this and compares.

use std::ops::Range;

use bytes::Bytes;
use neve_chain::{
    Block, CheckedBlock, CheckedReceipts, Checks, Header, Log, ProofError, Receipts,
    TotalDifficulty, Unsettled,
};
use neve_store::{Hash, Part, Record, Terms};

use crate::parts::{FLAG_ZERO_DIFFICULTY, FULL, HASHES, HEADER, RECEIPTS, SPANS};
use crate::spans::{FieldOffsets, HASH_LEN, LogSpan, MINER_LEN, NONCE_LEN, Spans, TransactionSpan};
use crate::terms::terms;

/// A proven height.
pub struct Assembled {
    /// Record to store.
    pub record: Record,
    /// Header of the block.
    pub header: Header,
    /// Receipts that a later header settles; `None` if the block's own header proved its receipts.
    pub unsettled: Option<Unsettled>,
    /// Form in which the upstream gives the total difficulty.
    pub difficulty: TotalDifficulty,
}

/// Proves and cuts. `block` and `receipts` are the `result` values of `eth_getBlockByNumber(n,
/// true)` and `eth_getBlockReceipts(n)`.
pub fn assemble(block: &[u8], receipts: &[u8], checks: &Checks) -> Result<Assembled, ProofError> {
    let checked = Block::parse(block)?.check(checks)?;
    let proven = Receipts::parse(receipts)?.check(&checked)?;
    let [block, receipts] = [block, receipts].map(Bytes::copy_from_slice);
    Ok(cut(block, receipts, &checked, &proven))
}

/// The texts become parts as they are: not a byte of them is copied.
pub fn cut(
    block: Bytes,
    receipts: Bytes,
    checked: &CheckedBlock<'_>,
    proven: &CheckedReceipts<'_>,
) -> Assembled {
    let difficulty = checked.total_difficulty_form();
    let record = cut_texts(block, receipts, checked, proven);
    let zero = difficulty == TotalDifficulty::Zero;
    let record = Record { flags: if zero { FLAG_ZERO_DIFFICULTY } else { 0 }, ..record };
    let header = checked.header.clone();
    Assembled { record, header, unsettled: proven.unsettled(), difficulty }
}

/// Cuts without proof, for texts that were proven when they were stored. The flags are zero.
pub(crate) fn cut_texts(
    block: Bytes,
    receipts: Bytes,
    parsed: &Block<'_>,
    proven: &Receipts<'_>,
) -> Record {
    let mut record = derived(&block, parsed, proven);
    record.parts[FULL] = Part::uncompressed(block);
    record.parts[RECEIPTS] = Part::uncompressed(receipts);
    record
}

/// Makes all of a record that is derived from the node's texts, without these.
pub(crate) fn derived(block: &[u8], parsed: &Block<'_>, proven: &Receipts<'_>) -> Record {
    // Both forms are made at ingest, so that no request parses or edits JSON.
    let (hashes, header) = (with_hashes(block, parsed), header_of(block, parsed));
    let spans = spans_of(parsed, proven, [hashes.1, header.1, pieces_of(parsed)]);
    let mut parts = vec![Part::uncompressed(Bytes::new()); 5];
    parts[HASHES] = Part::uncompressed(hashes.0);
    parts[HEADER] = Part::uncompressed(header.0);
    parts[SPANS] = Part::uncompressed(spans.encode());
    Record {
        height: parsed.header.number,
        timestamp: parsed.header.timestamp,
        hash: Hash(parsed.hash.0),
        parent: Hash(parsed.header.parent_hash.0),
        transactions: parsed.transactions.iter().map(|tx| Hash(tx.hash.0)).collect(),
        logs: proven.logs.iter().map(terms_of).collect(),
        flags: 0,
        parts,
    }
}

/// Places in the node's texts, with those of the fields in each form of the block.
fn spans_of(block: &Block<'_>, receipts: &Receipts<'_>, pieces: [FieldOffsets; 3]) -> Spans {
    Spans {
        settled: block.header.settles(),
        pieces,
        transactions: transaction_spans(block, receipts),
        logs: receipts.logs.iter().map(|log| log_span(&log.span)).collect(),
    }
}

fn pieces_of(block: &Block<'_>) -> FieldOffsets {
    let layout = &block.layout;
    debug_assert!(
        layout.hash.len() == HASH_LEN as usize
            && layout.miner.len() == MINER_LEN as usize
            && layout.nonce.len() == NONCE_LEN as usize
    );
    FieldOffsets {
        hash: layout.hash.start,
        miner: layout.miner.start,
        nonce: layout.nonce.start,
        total_difficulty: layout.total_difficulty.start,
        total_difficulty_len: layout.total_difficulty.len() as u32,
    }
}

/// Text made from a block's by taking stretches out and putting others in, and where the fields
/// went. Stretches come in ascending order.
struct Edit<'a> {
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
    /// Place where the stretches that were kept begin: in the text, and in `out`.
    kept: Vec<(usize, usize)>,
}

impl<'a> Edit<'a> {
    fn new(text: &'a [u8]) -> Self {
        // Both forms leave out transactions: far shorter than the text of a large block.
        Self { text, at: 0, out: Vec::with_capacity(text.len().min(1 << 16)), kept: vec![(0, 0)] }
    }

    /// Copies up to `range`, and puts what `by` appends in its place.
    fn replace(&mut self, range: Range<usize>, by: impl FnOnce(&mut Vec<u8>)) {
        self.out.extend_from_slice(self.text.get(self.at..range.start).unwrap_or_default());
        by(&mut self.out);
        self.at = range.end;
        self.kept.push((range.end, self.out.len()));
    }

    fn finish(mut self, pieces: FieldOffsets) -> (Vec<u8>, FieldOffsets) {
        self.out.extend_from_slice(self.text.get(self.at..).unwrap_or_default());
        let moved = FieldOffsets {
            hash: self.moved(pieces.hash),
            miner: self.moved(pieces.miner),
            nonce: self.moved(pieces.nonce),
            total_difficulty: self.moved(pieces.total_difficulty),
            ..pieces
        };
        (self.out, moved)
    }

    fn moved(&self, offset: u32) -> u32 {
        let offset = offset as usize;
        // A kept stretch was copied as it is: its begin in `out` decides for all offsets in it.
        let after = self.kept.partition_point(|(from, _)| *from <= offset);
        let (from, to) = self.kept[after - 1]; // the first begins at 0
        (to + (offset - from)) as u32
    }
}

fn usizes(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// The block as `eth_getBlockByNumber(n, false)` shows it: each transaction is its hash.
fn with_hashes(text: &[u8], block: &Block<'_>) -> (Vec<u8>, FieldOffsets) {
    let mut edit = Edit::new(text);
    edit.replace(usizes(&block.layout.transactions_inside), |out| {
        for (at, transaction) in block.transactions.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(format!("\"{:#x}\"", transaction.hash).as_bytes());
        }
    });
    edit.finish(pieces_of(block))
}

/// The header as `eth_getHeaderByNumber(n)` shows it: four members fewer.
fn header_of(text: &[u8], block: &Block<'_>) -> (Vec<u8>, FieldOffsets) {
    let layout = &block.layout;
    let members = [&layout.block_extra_data, &layout.size, &layout.transactions, &layout.uncles];
    let mut edit = Edit::new(text);
    members.into_iter().for_each(|member| edit.replace(with_comma(text, &usizes(member)), |_| {}));
    edit.finish(pieces_of(block))
}

/// A member with the comma that separates it: the one behind it, or before it if it is the last.
fn with_comma(text: &[u8], member: &Range<usize>) -> Range<usize> {
    match text.get(member.end) {
        Some(b',') => member.start..member.end + 1,
        _ => member.start.saturating_sub(1)..member.end,
    }
}

fn transaction_spans(block: &Block<'_>, receipts: &Receipts<'_>) -> Vec<TransactionSpan> {
    let both = block.transactions.iter().zip(&receipts.receipts);
    both.map(|(transaction, receipt)| TransactionSpan {
        at: transaction.span.start,
        len: transaction.span.len() as u32,
        receipt_at: receipt.span.start,
        receipt_len: receipt.span.len() as u32,
        first_log: receipt.logs.start as u32,
    })
    .collect()
}

fn log_span(span: &Range<u32>) -> LogSpan {
    LogSpan { at: span.start, len: span.len() as u32 }
}

fn terms_of(log: &Log<'_>) -> Terms {
    terms(&log.address.0.0, log.topics.iter().map(|topic| topic.0))
}
