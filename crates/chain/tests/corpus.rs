//! Every block and receipt that was recorded from avalanchego (`tests/corpus` of the repository:
//! v1.14.2 with all forks from the start, v1.14.2 fork by fork, v1.14.2 before London, v1.15.0
//! through the activation of Helicon), under every check.

use std::{collections::BTreeMap, ops::Range};

use alloy_primitives::hex;
use neve_chain::{
    AdmittedKeys, Block, CheckedBlock, CheckedReceipts, Checks, ClaimedHeader, Receipts,
    TotalDifficulty, atomic, encode_block,
};

use crate::support::{CORPORA, Height, chain, result, rows};

const CHECKS: Checks = Checks { chain_id: 43_112, senders: true, admitted: AdmittedKeys::NONE };

fn check(height: &Height) -> (CheckedBlock<'_>, CheckedReceipts<'_>) {
    let block = Block::parse(height.full.as_bytes()).unwrap().check(&CHECKS).unwrap();
    let receipts = Receipts::parse(height.receipts.as_bytes()).unwrap().check(&block).unwrap();
    (block, receipts)
}

fn cut<'t>(text: &'t str, span: &Range<u32>) -> &'t str {
    &text[span.start as usize..span.end as usize]
}

/// Hash, transactions root, transaction hashes, senders, extra data, size, and all of the
/// receipts that can be checked at once; counts as the corpus' README gives them.
#[test]
fn every_block_is_proven() {
    for (corpus, heights, transactions, logs) in [
        ("v1.14.2/main", 340, 2001, 3698),
        ("v1.14.2/forks", 272, 647, 1259),
        ("v1.14.2/apricot0", 129, 134, 268),
        ("v1.15.0", 382, 2105, 3387),
    ] {
        let chain = chain(corpus);
        let (mut transactions_found, mut logs_found, mut parent) = (0, 0, None);
        for (number, height) in (0_u64..).zip(&chain) {
            let (block, receipts) = check(height);
            assert_eq!(block.header.number, number);
            assert!(parent.is_none_or(|parent| parent == block.header.parent_hash));
            assert_eq!(receipts.is_proven(), block.header.settles().is_none());
            transactions_found += block.transactions.len();
            logs_found += receipts.logs.len();
            parent = Some(block.hash);
        }
        assert_eq!(chain.len(), heights, "{corpus}");
        assert_eq!((transactions_found, logs_found), (transactions, logs), "{corpus}");
    }
}

/// Helicon came at block 202 of the last chain, and nowhere else.
#[test]
fn helicon_blocks_are_asynchronous() {
    for corpus in CORPORA {
        for (number, height) in chain(corpus).iter().enumerate() {
            let header = ClaimedHeader::parse(height.full.as_bytes()).unwrap().header;
            let helicon = corpus == "v1.15.0" && number >= 202;
            assert_eq!(header.settles().is_some(), helicon, "{corpus} {number}");
        }
    }
}

/// `debug_getRawBlock` and `debug_getRawReceipts` are the node's own encodings.
#[test]
fn encodings_are_the_nodes() {
    for corpus in CORPORA {
        let chain = chain(corpus);
        for height in &chain {
            let (block, receipts) = check(height);
            let transactions: Vec<Vec<u8>> = block
                .transactions
                .iter()
                .map(|transaction| {
                    let mut out = Vec::new();
                    transaction.encode(&mut out);
                    out
                })
                .collect();
            let ext_data = block.ext_data.unwrap().to_vec();
            let encoded = encode_block(&block.header.encode(), &transactions, &ext_data);
            assert_eq!(hex::encode_prefixed(encoded), height.raw);
            let encoded: Vec<_> = receipts.encodings().iter().map(hex::encode_prefixed).collect();
            assert_eq!(encoded, height.raw_receipts);
        }
        assert!(chain.len() > 100);
    }
}

/// Nodes with coreth show the number, nodes with saevm zero, for all blocks.
#[test]
fn total_difficulty_tells_the_node() {
    for corpus in CORPORA {
        let expected =
            if corpus == "v1.15.0" { TotalDifficulty::Zero } else { TotalDifficulty::Number };
        for (number, height) in chain(corpus).iter().enumerate() {
            let expected = if number == 0 { TotalDifficulty::Unknown } else { expected };
            assert_eq!(check(height).0.total_difficulty_form(), expected);
        }
    }
}

/// Cuts the other answers about a block from the full one, by its layout.
#[test]
fn other_answers_can_be_cut_from_a_block() {
    for corpus in CORPORA {
        for height in chain(corpus) {
            let block = Block::parse(height.full.as_bytes()).unwrap();
            let hashes: Vec<_> =
                block.transactions.iter().map(|tx| format!("\"{}\"", tx.hash)).collect();
            let inside = &block.layout.transactions_inside;
            let mut cut = height.full.clone();
            cut.replace_range(inside.start as usize..inside.end as usize, &hashes.join(","));
            assert_eq!(cut, height.hashes);
        }
    }
}

/// `eth_getHeaderByNumber` has the same members but four; it is proven by its hash alone.
#[test]
fn header_answers_are_a_part_of_the_block() {
    let mut headers = 0;
    for corpus in CORPORA {
        let chain = chain(corpus);
        for row in rows(corpus, "methods.jsonl.gz") {
            let Some(text) = result(&row.response) else { continue };
            // "pending" answers have no hash after Helicon.
            if !row.rpc.starts_with("eth_getHeaderBy") || text == "null" || text.contains("null") {
                continue;
            }
            let answer = ClaimedHeader::parse(text.as_bytes()).unwrap();
            answer.check().unwrap();
            let height = &chain[answer.header.number as usize];
            assert_eq!(without_body(&height.full), text);
            headers += 1;
        }
    }
    assert_eq!(headers, 580);
}

/// Cuts the four members of a block that a header answer lacks, each with a comma.
fn without_body(full: &str) -> String {
    let layout = Block::parse(full.as_bytes()).unwrap().layout;
    let mut text = full.to_owned();
    for member in [&layout.uncles, &layout.transactions, &layout.size, &layout.block_extra_data] {
        let (start, end) = (member.start as usize, member.end as usize);
        let last = text.as_bytes()[end] == b'}';
        let range = if last { start - 1..end } else { start..end + 1 };
        text.replace_range(range, "");
    }
    text
}

/// Single transactions and receipts are slices of the two answers.
#[test]
fn spans_are_the_answers_about_one_transaction() {
    let mut found = (0, 0);
    for corpus in CORPORA {
        let mut transactions = BTreeMap::new();
        let mut receipts = BTreeMap::new();
        for height in chain(corpus) {
            let (block, checked) = check(&height);
            for (transaction, receipt) in block.transactions.iter().zip(&checked.receipts) {
                let hash = transaction.hash.to_string();
                transactions.insert(hash.clone(), cut(&height.full, &transaction.span).to_owned());
                receipts.insert(hash, cut(&height.receipts, &receipt.span).to_owned());
            }
        }
        for row in rows(corpus, "methods.jsonl.gz") {
            let hash = row.request.split('"').find(|part| part.len() == 66).unwrap_or_default();
            let Some(text) = result(&row.response) else { continue };
            match (&row.rpc[..], transactions.get(hash), receipts.get(hash)) {
                ("eth_getTransactionByHash", Some(expected), _) => {
                    assert_eq!(text, expected);
                    found.0 += 1;
                }
                ("eth_getTransactionReceipt", _, Some(expected)) => {
                    assert_eq!(text, expected);
                    found.1 += 1;
                }
                _ => {}
            }
        }
    }
    assert_eq!(found, (483, 483));
}

/// Spans of logs cover the whole of each list but for the commas.
#[test]
fn spans_of_logs_lie_side_by_side() {
    for height in chain("v1.15.0") {
        let text = &height.receipts;
        let receipts = Receipts::parse(text.as_bytes()).unwrap();
        for receipt in &receipts.receipts {
            let logs: Vec<_> =
                receipts.logs_of(receipt).iter().map(|log| cut(text, &log.span)).collect();
            let list = format!("\"logs\":[{}],\"logsBloom\"", logs.join(","));
            assert!(cut(text, &receipt.span).contains(&list));
        }
    }
}

/// Spans of the values that pending answers show otherwise.
#[test]
fn layout_of_single_values() {
    for corpus in CORPORA {
        for height in chain(corpus) {
            let block = Block::parse(height.full.as_bytes()).unwrap();
            let layout = &block.layout;
            let text = |span| cut(&height.full, span);
            assert_eq!(text(&layout.hash), format!("\"{}\"", block.hash));
            assert_eq!(text(&layout.miner), format!("\"{:#x}\"", block.header.miner));
            assert_eq!(text(&layout.nonce), format!("\"{}\"", block.header.nonce));
            let total = block.total_difficulty.unwrap();
            assert_eq!(text(&layout.total_difficulty), format!("\"{total:#x}\""));
            assert_eq!(text(&layout.size), format!("\"size\":\"{:#x}\"", block.size.unwrap()));
            assert_eq!(text(&layout.uncles), "\"uncles\":[]");
        }
    }
}

/// The rule that coreth has for `extDataGasUsed` from Apricot Phase 4 to Granite, and the ids that
/// the codec gives. Shows that the gas of atomic transactions is computed rightly, on which
/// `gasUsed` of asynchronous blocks hangs.
#[test]
fn atomic_transactions_cost_what_headers_say() {
    let mut blocks = [0; 3];
    for corpus in CORPORA {
        for height in chain(corpus) {
            let (block, _) = check(&height);
            let data = block.ext_data.unwrap().to_vec();
            if data.is_empty() {
                continue;
            }
            if block.header.settles().is_some() {
                let batch = atomic::parse_batch(&data).unwrap();
                let limits: u64 = block.transactions.iter().map(|tx| tx.gas).sum();
                let atomic: u64 = batch.iter().map(atomic::AtomicTx::gas).sum();
                assert_eq!(block.header.gas_used, limits + atomic);
                assert_eq!(block.header.ext_data_gas_used, Some(0));
                blocks[2] += 1;
            } else if let Ok(batch) = atomic::parse_batch(&data) {
                let gas = batch.iter().map(atomic::AtomicTx::gas).sum();
                assert_eq!(block.header.ext_data_gas_used, Some(gas));
                blocks[1] += 1;
            } else {
                let single = atomic::parse_single(&data).unwrap().unwrap();
                let gas = single.gas_before_apricot_5();
                assert!(block.header.ext_data_gas_used.is_none_or(|used| used == gas));
                blocks[0] += 1;
            }
        }
    }
    assert_eq!(blocks, [6, 30, 8]);
}
