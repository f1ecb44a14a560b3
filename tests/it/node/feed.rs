//! The harness itself: a real node runs, and every kind of transaction really gets into its chain.

use std::time::{Duration, Instant};

use crate::support::feed::{Feed, Kind, Made, quantity};
use crate::support::node::{Node, Options, rpc};
use serde_json::{Value, json};

/// For all that happens once the node is up.
const LIMIT: Duration = Duration::from_mins(4);
/// Kinds that succeed, with their wire type.
const SUCCEEDED: [(Kind, u64); 8] = [
    (Kind::Legacy, 0),
    (Kind::LegacyUnprotected, 0),
    (Kind::AccessListEmpty, 1),
    (Kind::AccessList, 1),
    (Kind::DynamicFee, 2),
    (Kind::Create, 2),
    (Kind::CreateEmpty, 2),
    (Kind::Transfer, 2),
];
/// Kinds that succeed and emit a log with none, one, two, three and four topics.
const LOGGED: [Kind; 2] = [Kind::CreateWithLogs, Kind::CallWithLogs];
/// Kinds that fail.
const FAILED: [Kind; 3] = [Kind::CreateReverted, Kind::CallReverted, Kind::OutOfGas];

#[test]
#[ignore = "needs avalanchego, which Go builds: ./check"]
fn a_round_makes_every_kind() {
    let start = Instant::now();
    let node = Node::start(Options::default());
    eprintln!("ready after {:?}", start.elapsed());
    node.within(LIMIT, || {
        let round = Instant::now();
        let made = Feed::new(&node).round();
        eprintln!("round of {} transactions in {:?}", made.len(), round.elapsed());
        print_blocks(&made);
        let chain = Chain { url: node.http_url(), made };
        chain.check_successes();
        chain.check_signatures_and_lists();
        chain.check_logs();
        chain.check_failures();
        chain.check_creations();
        chain.check_blocks();
        chain.check_atomic();
    });
}

#[test]
#[ignore = "needs avalanchego, which Go builds: ./check"]
fn a_custom_network_survives_stop_kill_and_restart() {
    let helicon_after = Some(Duration::from_hours(1));
    let node = Node::start(Options { helicon_after, ..Options::default() });
    node.within(LIMIT, || {
        let mut feed = Feed::with_seed(&node, 7);
        let import = feed.import();
        let export = feed.export().pop().expect("an export was made");
        assert!(export.block > import.block);
        let block = |height: u64| {
            let params = json!([format!("{height:#x}"), true]);
            rpc::rpc(&node.http_url(), "eth_getBlockByNumber", &params)
        };
        let before = block(export.block);
        let pid = node.pid();
        node.stop();
        assert_eq!(node.pid(), None);
        rpc::try_call(&node.http_url(), "eth_chainId", &json!([])).unwrap_err();
        node.restart();
        assert_ne!(node.pid(), pid);
        assert_eq!(block(export.block), before);
        node.kill();
        node.restart();
        assert_eq!(block(export.block), before);
        assert!(feed.transfers(1)[0].block > export.block);
    });
}

/// Content that a feeder made, and the node to ask about it.
struct Chain {
    url: String,
    made: Vec<Made>,
}

impl Chain {
    /// Status and wire type of everything that should succeed.
    fn check_successes(&self) {
        for (kind, wire) in SUCCEEDED {
            let (tx, receipt) = self.one(kind);
            assert_eq!(quantity(&receipt["status"]), 1, "{kind:?}: {receipt}");
            assert_eq!(quantity(&receipt["type"]), wire, "{kind:?}: {receipt}");
            assert_eq!(quantity(&tx["type"]), wire, "{kind:?}: {tx}");
            assert_eq!(receipt["logs"], json!([]), "{kind:?}");
        }
    }

    /// Checks the fields that distinguish transactions of one type.
    fn check_signatures_and_lists(&self) {
        let v = |kind| quantity(&self.one(kind).0["v"]);
        assert!(v(Kind::Legacy) >= 35, "a chain id is in v");
        assert!((27..=28).contains(&v(Kind::LegacyUnprotected)), "no chain id is in v");
        let list = |kind| self.one(kind).0["accessList"].as_array().map(Vec::len);
        assert_eq!(list(Kind::AccessListEmpty), Some(0));
        assert_eq!(list(Kind::AccessList), Some(2));
        assert_eq!(list(Kind::DynamicFee), Some(2));
    }

    /// None to four topics each, and data of more than one size.
    fn check_logs(&self) {
        let mut sizes = Vec::new();
        for kind in LOGGED {
            let (_, receipt) = self.one(kind);
            assert_eq!(quantity(&receipt["status"]), 1, "{kind:?}: {receipt}");
            let logs = receipt["logs"].as_array().expect("logs are a list");
            let topics: Vec<_> = logs.iter().filter_map(|log| log["topics"].as_array()).collect();
            assert_eq!(topics.iter().map(|list| list.len()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
            sizes.extend(logs.iter().filter_map(|log| log["data"].as_str()).map(str::len));
        }
        sizes.sort_unstable();
        sizes.dedup();
        assert!(sizes.len() > 1, "all log data has the same size: {sizes:?}");
    }

    /// Failed ones are in a block all the same; only one of them burnt all its gas.
    fn check_failures(&self) {
        for kind in FAILED {
            let (tx, receipt) = self.one(kind);
            assert_eq!(quantity(&receipt["status"]), 0, "{kind:?}: {receipt}");
            let burnt = quantity(&receipt["gasUsed"]) == quantity(&tx["gas"]);
            assert_eq!(burnt, kind == Kind::OutOfGas, "{kind:?}: {receipt}");
        }
    }

    /// Checks that creations left code behind, or none.
    fn check_creations(&self) {
        let kinds = [Kind::Create, Kind::CreateWithLogs, Kind::CreateEmpty, Kind::CreateReverted];
        for kind in kinds {
            let (tx, receipt) = self.one(kind);
            assert_eq!(tx["to"], Value::Null, "{kind:?}");
            let address = &receipt["contractAddress"];
            let code = self.ask("eth_getCode", &json!([address, "latest"]));
            let has_code = matches!(kind, Kind::Create | Kind::CreateWithLogs);
            assert_eq!(code != json!("0x"), has_code, "{kind:?} at {address}: {code}");
        }
    }

    /// A block without logs, and one with many transactions.
    fn check_blocks(&self) {
        let quiet = json!([format!("{:#x}", self.of(Kind::Legacy).block)]);
        let receipts = self.ask("eth_getBlockReceipts", &quiet);
        let receipts = receipts.as_array().expect("receipts are a list");
        assert!(receipts.iter().all(|receipt| receipt["logs"] == json!([])), "{receipts:?}");
        let most = self.made.iter().map(|made| transactions(&self.block(made.block))).max();
        assert!(most >= Some(10), "the fullest block has {most:?} transactions");
    }

    /// Atomic transactions are in extra data: one alone in its block, both found by their id.
    fn check_atomic(&self) {
        for kind in [Kind::Export, Kind::Import] {
            let made = self.of(kind);
            let extra = &self.block(made.block)["blockExtraData"];
            assert!(extra.as_str().is_some_and(|data| data.len() > 2), "{kind:?}: {extra}");
            let url = self.url.replace("/rpc", "/avax");
            let answer = rpc::call(&url, "avax.getAtomicTx", &json!({"txID": made.cb58}));
            assert_eq!(answer["blockHeight"], json!(made.block.to_string()), "{kind:?}");
        }
        assert_eq!(transactions(&self.block(self.of(Kind::Import).block)), 0);
    }

    /// The first of a kind.
    fn of(&self, kind: Kind) -> &Made {
        self.made.iter().find(|made| made.kind == kind).unwrap_or_else(|| panic!("no {kind:?}"))
    }

    /// Transaction and receipt of the first of a kind; both name the block that the feeder named.
    fn one(&self, kind: Kind) -> (Value, Value) {
        let made = self.of(kind);
        let tx = self.ask("eth_getTransactionByHash", &json!([made.hash]));
        let receipt = self.ask("eth_getTransactionReceipt", &json!([made.hash]));
        assert_eq!(quantity(&tx["blockNumber"]), made.block, "{kind:?}");
        assert_eq!(quantity(&receipt["blockNumber"]), made.block, "{kind:?}");
        (tx, receipt)
    }

    /// A block with the hashes of its transactions.
    fn block(&self, height: u64) -> Value {
        self.ask("eth_getBlockByNumber", &json!([format!("{height:#x}"), false]))
    }

    /// Calls the C-chain.
    fn ask(&self, method: &str, params: &Value) -> Value {
        rpc::call(&self.url, method, params)
    }
}

/// Returns the number of ordinary transactions of a block.
fn transactions(block: &Value) -> usize {
    block["transactions"].as_array().expect("a block has a list of transactions").len()
}

/// Shows what went where: which kinds share a block differs from run to run.
fn print_blocks(made: &[Made]) {
    let mut blocks = std::collections::BTreeMap::<u64, Vec<Kind>>::new();
    for one in made {
        blocks.entry(one.block).or_default().push(one.kind);
    }
    for (block, mut kinds) in blocks {
        let count = kinds.len();
        kinds.dedup();
        eprintln!("block {block}: {count} transactions: {kinds:?}");
    }
}
