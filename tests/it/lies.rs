//! An upstream whose answers are wrong: nothing of it is ever served, the reason is logged and
//! counted, and following goes on when it tells the truth.

use neve_devnet::{Config, DevnetThread, Fault, Helicon, Part, Profile};
use neve_jsonrpc::Rules;

use super::backfill::evidence;
use crate::support::neve::{Neve, fresh_dir, run};

const HEAD: u64 = 20;

/// A chain of which every block has transactions.
fn config(helicon: Helicon) -> Config {
    let mut config = Config::test().with_head(HEAD).with_helicon(helicon);
    config.chain.profile = Profile::c_chain();
    config
}

fn start(config: Config) -> DevnetThread {
    DevnetThread::start(config).expect("loopback has free ports")
}

fn follow(devnet: &DevnetThread) -> (tempfile::TempDir, Neve) {
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let neve = Neve::start(dir.path(), &["--upstream", &url, "--start", "0"]);
    neve.wait_for_head(devnet.latest());
    (dir, neve)
}

fn refused(neve: &Neve, reason: &str) -> u64 {
    let series = format!("neve_blocks_refused_total{{reason=\"{reason}\"}}");
    neve.count(&series)
}

/// What neve serves of a height is the true block.
fn serves_the_truth(neve: &Neve, devnet: &DevnetThread, height: u64, rules: Rules) {
    let block = devnet.block(height).expect("the chain has it");
    let is = |method: &str, params: &str, expected: &[u8]| {
        let answer = neve.client().call(method, params).text();
        let result = answer.strip_prefix("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":");
        let result = result.and_then(|rest| rest.strip_suffix("}\n"));
        let same = result.is_some_and(|result| result.as_bytes() == expected);
        assert!(same, "{method} of {height}: {answer}");
    };
    let full = block.answer(Part::Full, rules);
    is("eth_getBlockByNumber", &format!("[\"{height:#x}\",true]"), &full);
    is("eth_getBlockReceipts", &format!("[\"{height:#x}\"]"), block.receipts());
}

/// A block with this fault is refused for that reason, and what follows it waits.
fn is_refused(fault: Fault, helicon: Helicon, reason: &str, says: &str) {
    let (devnet, rules) = (start(config(helicon)), rules(helicon));
    let (_dir, neve) = follow(&devnet);
    let wrong = HEAD + 2;
    let fault = devnet.faults().inject(fault.at(wrong));
    devnet.advance(6);
    neve.wait_for_log(says);
    assert!(refused(&neve, reason) >= 1, "{reason} is not counted:\n{}", neve.log());
    neve.wait_for_head(wrong - 1);
    let params = format!("[\"{wrong:#x}\",false]");
    assert_eq!(neve.client().call("eth_getBlockByNumber", &params).status, 421, "{reason}");
    assert_eq!(neve.health()["blocks"]["head"], wrong - 1);
    fault.clear();
    neve.wait_for_head(HEAD + 6);
    (wrong - 1..=wrong + 1).for_each(|height| serves_the_truth(&neve, &devnet, height, rules));
}

fn rules(helicon: Helicon) -> Rules {
    if helicon == Helicon::Never { Rules::BeforeHelicon } else { Rules::Helicon }
}

#[test]
fn receipts_that_are_not_all_there() {
    is_refused(
        Fault::MissingReceipt,
        Helicon::Never,
        "receipt_count",
        "reason=\"receipt_count\" why=\"",
    );
}

#[test]
fn receipts_that_the_header_disproves() {
    is_refused(Fault::LyingReceipts, Helicon::Never, "receipts_root", "reason=\"receipts_root\"");
}

#[test]
fn a_transaction_that_was_not_signed_so() {
    for helicon in [Helicon::Never, Helicon::FromGenesis] {
        let reason = "transaction_hash";
        is_refused(Fault::WrongTransaction, helicon, reason, "reason=\"transaction_hash\"");
    }
}

#[test]
fn a_hash_that_is_not_the_headers() {
    for helicon in [Helicon::Never, Helicon::FromGenesis] {
        is_refused(Fault::WrongHash, helicon, "header_hash", "reason=\"header_hash\"");
    }
}

#[test]
fn a_block_behind_another_parent() {
    is_refused(Fault::WrongParent, Helicon::Never, "parent_link", "the block before is 0x");
}

/// Each of the node's bytes is part of its answers: what a proxy has formatted anew is not stored.
#[test]
fn a_block_in_another_layout() {
    for fault in [Fault::Whitespace, Fault::KeyOrder] {
        let (devnet, dir) = (start(config(Helicon::Never)), fresh_dir());
        let url = devnet.base_url();
        let fault = devnet.faults().inject(fault.at(1..=HEAD));
        let neve = Neve::start(dir.path(), &["--upstream", &url, "--start", "5"]);
        neve.wait_for_log("refused what the upstream sent");
        assert_eq!(neve.client().call("eth_blockNumber", "[]").status, 421);
        fault.clear();
        neve.wait_for_head(HEAD);
        serves_the_truth(&neve, &devnet, 5, Rules::BeforeHelicon);
    }
}

/// No error: a node whose head is announced may not have it yet.
#[test]
fn a_block_or_receipts_that_are_not_there_yet() {
    for fault in [Fault::NullBlock, Fault::NullReceipts] {
        let devnet = start(config(Helicon::FromGenesis));
        let (_dir, neve) = follow(&devnet);
        let fault = devnet.faults().inject(fault.at(HEAD + 1));
        devnet.advance(1);
        neve.wait("three questions", |_| (fault.hits() >= 3).then_some(()));
        assert_eq!(neve.health()["blocks"]["head"], HEAD);
        fault.clear();
        neve.wait_for_head(HEAD + 1);
        serves_the_truth(&neve, &devnet, HEAD + 1, Rules::Helicon);
    }
}

/// Accepts blocks until one settles `height`. Gives its height.
fn settle(devnet: &DevnetThread, height: u64) -> u64 {
    while devnet.settled() < height {
        devnet.advance(1);
    }
    devnet.latest()
}

/// Under Helicon only a later header can tell: what was served is withdrawn, and comes back true.
#[test]
fn receipts_that_a_later_header_disproves() {
    let devnet = start(config(Helicon::FromGenesis));
    let (dir, neve) = follow(&devnet);
    let wrong = HEAD + 1;
    let fault = devnet.faults().inject(Fault::LyingReceipts.at(wrong));
    devnet.advance(1);
    neve.wait_for_head(wrong); // nobody can know yet
    let disproving = settle(&devnet, wrong);
    neve.wait("the withdrawal", |health| {
        (health["blocks"]["head"].as_u64()? < wrong).then_some(())
    });
    assert!(refused(&neve, "settled_receipts_root") + refused(&neve, "settled_logs_bloom") >= 1);
    fault.clear();
    // What was disproved once is not believed again before it is proven.
    settle(&devnet, disproving);
    neve.wait_for_head(devnet.latest());
    (HEAD..=disproving).for_each(|height| serves_the_truth(&neve, &devnet, height, Rules::Helicon));
    let kept = evidence(dir.path());
    let of_wrong = |end: &str| kept.iter().any(|name| name.ends_with(&format!("-{wrong}-{end}")));
    assert!(of_wrong("settled_receipts_root") || of_wrong("settled_logs_bloom"), "{kept:?}");
    assert!(of_wrong("accepted"), "{kept:?}");
    neve.stop();
    let store = dir.path().join("store").display().to_string();
    assert!(run(&["verify", "--data-dir", &store, "--senders"]).status.success());
}

#[test]
fn another_genesis_or_chain_id_than_the_stores() {
    for fault in [Fault::WrongGenesis, Fault::WrongChainId] {
        let devnet = start(config(Helicon::Never));
        let (_dir, neve) = follow(&devnet);
        devnet.faults().inject(fault);
        // Who an upstream is, it is asked at the start of a session, and after failures in a row.
        let fails = Fault::Status(500, neve_devnet::RetryAfter::Absent);
        devnet.faults().inject(fails.on("eth_getBlockReceipts"));
        devnet.advance(2);
        neve.wait("the refusal", |health| {
            (health["upstream"]["state"] == "wrong_chain").then_some(())
        });
        assert_eq!(neve.health()["blocks"]["head"], HEAD);
    }
}

/// As Avalanche's public API: each receipt is asked for, a hundred in a batch.
#[test]
fn an_upstream_without_block_receipts() {
    let mut config = config(Helicon::FromGenesis);
    config.chain.profile = Profile::many_logs(); // 187 transactions a block
    let devnet = start(config);
    devnet.faults().inject(Fault::NoBlockReceipts);
    let (_dir, neve) = follow(&devnet);
    (1..=HEAD).for_each(|height| serves_the_truth(&neve, &devnet, height, Rules::Helicon));
    // All that were under way at first, eight and the four newest, and none since.
    assert!(devnet.counters().calls("eth_getBlockReceipts") <= 12);
}

/// Another continuation of the chain takes the place of heights that no header has settled.
#[test]
fn unproven_heights_that_the_upstream_has_otherwise_are_replaced() {
    let devnet = start(config(Helicon::FromGenesis));
    let (dir, neve) = follow(&devnet);
    let proven = neve.health()["blocks"]["verified_height"].as_u64().unwrap();
    assert!(proven < HEAD);
    neve.stop();
    devnet.branch(HEAD, 99);
    let url = devnet.base_url();
    let neve = Neve::start(dir.path(), &["--upstream", &url]);
    neve.wait_for_log("the upstream has another block there");
    devnet.advance(30);
    neve.wait_for_head(HEAD + 30);
    (proven..=HEAD + 1).for_each(|at| serves_the_truth(&neve, &devnet, at, Rules::Helicon));
}
