//! Two answers of an upstream: a block and its receipts. Nothing panics, and accepted ones become parts
//! that are JSON, with spans that point into them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use neve_chain::{
    AdmittedKeys, Block, BlockFees, Checks, FeeHistory, FeeRule, Form, ClaimedHeader, HeaderForm,
    Receipts, new_head, raw_block, raw_header, raw_receipts, raw_transaction,
};
use neve_record::assemble::{Assembled, assemble};
use neve_record::parts::{FULL, HASHES, HEADER, RECEIPTS, SPANS};
use neve_record::spans::SpansRef;
use serde_json::value::RawValue;

/// Senders are recovered by another crate, at a cost that hides all else.
const CHECKS: Checks = Checks { chain_id: 43_112, senders: false, admitted: AdmittedKeys::NONE };

fuzz_target!(|input: &[u8]| {
    // No JSON has a zero byte.
    let mut texts = input.splitn(2, |byte| *byte == 0);
    let (block, receipts) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
    read_all(block, receipts);
    make_all(block, receipts);
    if let Ok(assembled) = assemble(block, receipts, &CHECKS) {
        check(&assembled, block, receipts);
    }
});

/// Reads both in the looser form, too.
fn read_all(block: &[u8], receipts: &[u8]) {
    for form in [Form::Node, Form::Any] {
        if let Ok(answer) = ClaimedHeader::parse_as(block, form) {
            drop(answer.check());
        }
        let receipts = Receipts::parse_as(receipts, form);
        if let Ok(block) = Block::parse_as(block, form)
            && let Ok(block) = block.check(&CHECKS)
            && let Ok(receipts) = receipts
        {
            drop(receipts.check(&block));
        }
    }
}

/// Makes the other forms, of texts that were not proven.
fn make_all(block: &[u8], receipts: &[u8]) {
    let _ = (raw_block(block), raw_header(block), raw_receipts(receipts), raw_transaction(block));
    let _ = (new_head(block, HeaderForm::V1_15), BlockFees::from_header(block));
    let fees = [BlockFees::from_block(block), BlockFees::from_receipts(block, receipts)];
    for fees in fees.into_iter().flatten() {
        drop(FeeHistory::write(FeeRule::BeforeHelicon, &[fees], None, &[0.0, 50.0, 100.0]));
    }
}

fn check(assembled: &Assembled, block: &[u8], receipts: &[u8]) {
    let parts = &assembled.record.parts;
    assert_eq!(parts[FULL].bytes, block);
    assert_eq!(parts[RECEIPTS].bytes, receipts);
    for part in [HASHES, HEADER, FULL, RECEIPTS] {
        assert_json(&parts[part].bytes);
    }
    let spans = SpansRef(&parts[SPANS].bytes);
    for at in 0..assembled.record.transactions.len() {
        let span = spans.transaction(at).expect("a span of each transaction");
        assert_json(cut(block, span.at, span.len));
        assert_json(cut(receipts, span.receipt_at, span.receipt_len));
    }
    for at in 0..assembled.record.logs.len() {
        let span = spans.log(at).expect("a span of each log");
        assert_json(cut(receipts, span.at, span.len));
    }
    for part in [HASHES, HEADER, FULL] {
        let pieces = spans.pieces(part).expect("pieces of each form of the block");
        let quoted = cut(&parts[part].bytes, pieces.hash, neve_record::spans::HASH_LEN);
        assert_eq!(quoted, format!("\"{}\"", assembled.record.hash).as_bytes());
    }
}

fn cut(text: &[u8], at: u32, len: u32) -> &[u8] {
    &text[at as usize..(at + len) as usize]
}

fn assert_json(text: &[u8]) {
    let json = serde_json::from_slice::<&RawValue>(text);
    assert!(json.is_ok(), "{json:?}: {}", text.escape_ascii());
}
