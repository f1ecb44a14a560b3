//! Results that are wrong on demand: each is refused for the reason that it stands for, and only
//! where it was asked for.

use neve_chain::{AdmittedKeys, Block, Checks, Disproof, Form, ProofError, Receipts, Settlement};
use neve_devnet::{Config, DevnetThread, Fault, Helicon, Rule};
use serde_json::{Value, json};

use crate::support::{error, hex, result};

const CHECKS: Checks = Checks { chain_id: 43_112, senders: true, admitted: AdmittedKeys::NONE };

/// Answers about a height that a follower requests.
struct Height {
    block: String,
    receipts: String,
}

impl Height {
    fn of(devnet: &DevnetThread, height: u64) -> Self {
        Self {
            block: result(devnet, "eth_getBlockByNumber", &json!([hex(height), true])),
            receipts: result(devnet, "eth_getBlockReceipts", &json!([hex(height)])),
        }
    }

    /// Reason why it is refused, if it is.
    fn refusal(&self) -> Option<&'static str> {
        let check = || {
            let block = Block::parse(self.block.as_bytes())?.check(&CHECKS)?;
            Receipts::parse(self.receipts.as_bytes())?.check(&block).map(drop)
        };
        check().err().as_ref().map(ProofError::reason)
    }
}

fn start(helicon: Helicon) -> DevnetThread {
    DevnetThread::start(Config::test().with_helicon(helicon).with_head(30)).unwrap()
}

/// A height whose block has transactions, and whose receipts have data in a log.
fn rich(devnet: &DevnetThread) -> u64 {
    let is_rich = |height: &u64| {
        let block = devnet.block(*height).unwrap();
        let receipts = String::from_utf8_lossy(block.receipts()).into_owned();
        let count = |text: &str| receipts.matches(text).count();
        let data = count("\"data\":\"0x") > count("\"data\":\"0x\"");
        block.transactions().len() > 1 && data
    };
    (5..20).find(is_rich).expect("such a height")
}

/// Injects a rule for one height, and says why that height is refused; the next one never is.
fn refusal(devnet: &DevnetThread, rule: Rule) -> Option<&'static str> {
    let height = rich(devnet);
    let injected = devnet.faults().inject(rule.at(height));
    assert_eq!(Height::of(devnet, height + 1).refusal(), None);
    assert_eq!(injected.hits(), 0);
    let refusal = Height::of(devnet, height).refusal();
    assert!(injected.hits() > 0, "{injected:?}");
    injected.clear();
    assert_eq!(Height::of(devnet, height).refusal(), None);
    refusal
}

#[test]
fn each_fault_is_refused_for_its_reason() {
    for (helicon, lie) in [(Helicon::Never, Some("receipts_root")), (Helicon::FromGenesis, None)] {
        let devnet = start(helicon);
        for (fault, expected) in [
            (Fault::Whitespace, Some("shape")),
            (Fault::KeyOrder, Some("shape")),
            (Fault::MissingReceipt, Some("receipt_count")),
            (Fault::LyingReceipts, lie),
            (Fault::WrongTransaction, Some("transaction_hash")),
            (Fault::WrongHash, Some("header_hash")),
            (Fault::WrongParent, None),
        ] {
            let name = format!("{fault:?} {helicon:?}");
            assert_eq!(refusal(&devnet, fault.into()), expected, "{name}");
        }
        assert!(devnet.faults().is_empty());
    }
}

/// Another layout, the same JSON.
#[test]
fn another_layout_says_the_same() {
    let devnet = start(Helicon::Never);
    let height = rich(&devnet);
    let plain = Height::of(&devnet, height);
    for fault in [Fault::Whitespace, Fault::KeyOrder] {
        devnet.faults().inject(fault);
        let other = Height::of(&devnet, height);
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(value(&other.block), value(&plain.block));
        assert_eq!(value(&other.receipts), value(&plain.receipts));
        assert!(other.block != plain.block && other.receipts != plain.receipts);
        let block = Block::parse_as(other.block.as_bytes(), Form::Any).unwrap();
        block.check(&CHECKS).unwrap();
        devnet.faults().clear();
    }
}

/// Receipts that are false and fit: the settling header tells, none before it.
#[test]
fn a_lie_is_found_at_settlement() {
    let devnet = start(Helicon::FromGenesis);
    let lie = rich(&devnet);
    devnet.faults().inject(Fault::LyingReceipts.at(lie));
    let mut window = Settlement::new(Settlement::BYTES_MAX_DEFAULT);
    let found = (0..=30).find_map(|height| {
        let answers = Height::of(&devnet, height);
        let block = Block::parse(answers.block.as_bytes()).unwrap().check(&CHECKS).unwrap();
        let receipts = Receipts::parse(answers.receipts.as_bytes()).unwrap().check(&block).unwrap();
        let disproof = window.settle(&block.checked_header()).err();
        receipts.unsettled().into_iter().for_each(|receipts| window.push(receipts));
        disproof
    });
    let Some(Disproof::ReceiptsRoot { header, from, through, .. }) = found else {
        panic!("{found:?}")
    };
    assert!(header > lie && (from..=through).contains(&lie));
}

/// All ways to the receipts tell the same lie.
#[test]
fn lies_are_consistent() {
    let devnet = start(Helicon::Never);
    let lie = rich(&devnet);
    devnet.faults().inject(Fault::LyingReceipts.at(lie));
    let receipts: Vec<Value> = serde_json::from_str(&Height::of(&devnet, lie).receipts).unwrap();
    let truth: Vec<Value> = serde_json::from_slice(devnet.block(lie).unwrap().receipts()).unwrap();
    assert_ne!(receipts, truth);
    for receipt in receipts {
        let hash = json!([receipt["transactionHash"]]);
        let alone = result(&devnet, "eth_getTransactionReceipt", &hash);
        assert_eq!(serde_json::from_str::<Value>(&alone).unwrap(), receipt);
    }
}

/// Without a log with data the outcome of a transaction is another. Without anything to lie about, the
/// truth is told and nothing counted.
#[test]
fn lying_receipts_differ_in_each_block_with_transactions() {
    let devnet = start(Helicon::Never);
    let lie = devnet.faults().inject(Fault::LyingReceipts);
    for height in 1..=30 {
        let before = lie.hits();
        let block = devnet.block(height).unwrap();
        let receipts = Height::of(&devnet, height).receipts;
        let told = receipts.as_bytes() != block.receipts();
        assert_eq!(told, !block.transactions().is_empty(), "{height}");
        assert_eq!(lie.hits() - before, u64::from(told));
    }
}

#[test]
fn a_wrong_parent_has_right_hashes() {
    for helicon in [Helicon::Never, Helicon::FromGenesis] {
        let devnet = start(helicon);
        devnet.faults().inject(Fault::WrongParent.at(9));
        let answers = Height::of(&devnet, 9);
        let block = Block::parse(answers.block.as_bytes()).unwrap().check(&CHECKS).unwrap();
        assert_ne!(block.header.parent_hash, devnet.block(8).unwrap().hash());
        assert_ne!(block.hash, devnet.block(9).unwrap().hash());
        assert_eq!(answers.refusal(), None);
    }
}

#[test]
fn another_genesis_and_another_chain() {
    let devnet = start(Helicon::Never);
    let truth = Height::of(&devnet, 0);
    let genesis = devnet.faults().inject(Fault::WrongGenesis);
    let other = Height::of(&devnet, 0);
    assert_eq!(other.refusal(), None);
    assert_ne!(other.block, truth.block);
    assert_eq!(Height::of(&devnet, 1).refusal(), None);
    assert_eq!(genesis.hits(), 2);
    devnet.faults().inject(Fault::WrongChainId);
    assert_eq!(result(&devnet, "eth_chainId", &json!([])), "\"0xdead\"");
    assert_eq!(result(&devnet, "net_version", &json!([])), "\"57005\"");
}

#[test]
fn nulls_and_a_missing_method() {
    let devnet = start(Helicon::Never);
    let number = json!(["0x7"]);
    devnet.faults().inject(Fault::NullBlock.at(7).times(1));
    let block = || result(&devnet, "eth_getBlockByNumber", &json!(["0x7", true]));
    assert_eq!(block(), "null");
    assert_ne!(block(), "null");
    devnet.faults().inject(Fault::NullReceipts.at(6..=7));
    assert_eq!(result(&devnet, "eth_getBlockReceipts", &number), "null");
    assert_ne!(result(&devnet, "eth_getBlockReceipts", &json!(["0x8"])), "null");
    let none = devnet.faults().inject(Fault::NoBlockReceipts);
    let (code, message) = error(&devnet, "eth_getBlockReceipts", &number);
    assert_eq!((code, none.hits()), (-32_601, 1));
    assert_eq!(message, "the method eth_getBlockReceipts does not exist/is not available");
    let hash = devnet.block(7).and_then(|block| block.transactions().first().copied());
    if let Some(hash) = hash {
        let receipt = result(&devnet, "eth_getTransactionReceipt", &json!([hash.to_string()]));
        assert!(receipt.starts_with('{'));
    }
}

/// Several faults at once, each narrowed in its own way.
#[test]
fn rules_are_narrowed() {
    let devnet = start(Helicon::Never);
    let by_method = devnet.faults().inject(Fault::Whitespace.on("eth_getHeaderByNumber").at(3..=5));
    let spaced = |method: &str, params: Value| result(&devnet, method, &params).starts_with("{ ");
    assert!(spaced("eth_getHeaderByNumber", json!(["0x4"])));
    assert!(!spaced("eth_getHeaderByNumber", json!(["0x6"])));
    assert!(!spaced("eth_getBlockByNumber", json!(["0x4", false])));
    assert!(spaced("eth_getHeaderByNumber", json!(["0x5"])));
    assert_eq!(by_method.hits(), 2);
}
