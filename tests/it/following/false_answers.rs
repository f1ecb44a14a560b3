//! An upstream whose answers are wrong: nothing of it is ever served, the reason is logged and
//! counted, and following goes on when it tells the truth.

use neve_chain::ClaimedHeader;
use neve_devnet::{Config, Counted, DevnetThread, Fault, Helicon, Part, Profile, RateLimit};
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
    let series = format!("neve_blocks_rejected_total{{reason=\"{reason}\"}}");
    neve.count(&series)
}

/// Checks that neve serves the true block at a height.
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
    is_refused_on(config(helicon), rules(helicon), fault, (reason, says));
}

fn is_refused_on(config: Config, rules: Rules, fault: Fault, (reason, says): (&str, &str)) {
    let devnet = start(config);
    let (_dir, neve) = follow(&devnet);
    let wrong = HEAD + 2;
    let fault = devnet.faults().inject(fault.at(wrong));
    devnet.advance(6);
    neve.wait_for_log(says);
    neve.wait(reason, |_| (refused(&neve, reason) >= 1).then_some(()));
    neve.wait_for_head(wrong - 1);
    let error = neve.wait("the reason in /health", |health| {
        health["upstreams"][0]["error"].as_str().map(str::to_owned)
    });
    assert!(error.starts_with(&format!("block {wrong}: ")), "{error}");
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

/// Drives the receipts of all unsettled heights out of memory if it is taken: then no header can disprove them.
#[test]
fn logs_with_more_data_than_their_gas_buys() {
    let mut config = config(Helicon::FromGenesis);
    config.chain.profile = Profile::many_logs();
    let data = format!("\"data\":\"0x{}", "00".repeat(17 << 20));
    let fault = Fault::Replaced("\"data\":\"0x", data.leak());
    is_refused_on(config, Rules::Helicon, fault, ("log_gas", "reason=\"log_gas\""));
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
        neve.wait_for_log("upstream data rejected");
        assert_eq!(neve.client().call("eth_blockNumber", "[]").status, 421);
        fault.clear();
        neve.wait_for_head(HEAD);
        serves_the_truth(&neve, &devnet, 5, Rules::BeforeHelicon);
    }
}

/// Go's decoder ignores the case of keys and takes the last: what `eth_getBlockByNumber` and
/// `eth_getBlockReceipts` say would be another thing to its clients.
#[test]
fn block_with_an_unknown_key_is_rejected_and_its_key_and_upstream_are_named() {
    let no = Helicon::Never;
    let forged = |from, to, says| is_refused(Fault::Replaced(from, to), no, "unknown_key", says);
    forged("\"input\":", "\"To\":\"0xabab\",\"input\":", "transaction with the key \\\"To\\\"");
    forged("\"hash\":", "\"Hash\":\"0xabab\",\"hash\":", "with the key \\\"Hash\\\"");
    forged("\"status\":", "\"Status\":\"0x0\",\"status\":", "receipt with the key \\\"Status\\\"");
    forged("\"to\":", "\"new\":1,\"to\":", "transaction with the key \\\"new\\\", which no known");
    let twice = Fault::Replaced("\"status\":", "\"status\":\"0x0\",\"status\":");
    is_refused(twice, no, "shape", "a key that is given twice");
}

#[test]
fn forged_key_is_rejected_from_the_named_upstream() {
    let devnet = start(config(Helicon::Never));
    let (_dir, neve) = follow(&devnet);
    devnet.faults().inject(Fault::Replaced("\"status\":", "\"Status\":1,\"status\":").at(HEAD + 1));
    devnet.advance(1);
    neve.wait_for_log("which is \\\"status\\\" but for case");
    let log = neve.log();
    let line = log.lines().find(|line| line.contains("but for case")).unwrap();
    assert!(line.contains(&devnet.base_url()), "{line}");
}

/// Admitted keys are served as they came; others stay a finding.
#[test]
fn admitted_key_is_stored_and_verify_finds_it_unless_told() {
    let devnet = start(config(Helicon::Never));
    let dir = fresh_dir();
    devnet.faults().inject(Fault::Replaced("\"type\":\"0x0\"}", "\"type\":\"0x0\",\"zNew\":1}"));
    let admit = ["--admit-keys", "receipt.zNew,block.other"];
    let url = devnet.base_url();
    let arguments = [&["--upstream", &url, "--start", "0"][..], &admit].concat();
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(devnet.latest());
    let served = (1..=HEAD).any(|height| {
        let params = format!("[\"{height:#x}\"]");
        neve.client().call("eth_getBlockReceipts", &params).text().contains(",\"zNew\":1}")
    });
    assert!(served, "no receipt with the key");
    neve.stop();
    let store = dir.path().join("store").display().to_string();
    let verify = run(&["verify", "--data-dir", &store]);
    assert_eq!(verify.status.code(), Some(1));
    let found = String::from_utf8_lossy(&verify.stdout).into_owned();
    assert!(found.contains("unknown_key: receipt with the key \"zNew\""), "{found}");
    let verify = run(&[&["verify", "--data-dir", &store], &admit[..]].concat());
    assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stdout));
}

#[test]
fn key_that_cannot_be_admitted_is_a_wrong_argument() {
    for (key, says) in [
        ("block.Hash", "differs in case only from hash"),
        ("receipt.status", "neve knows status already"),
        ("root", "write OBJECT.KEY"),
    ] {
        for command in [&["serve", "--dev"][..], &["verify", "--data-dir", "/nothing"]] {
            let output = run(&[command, &["--admit-keys", key]].concat());
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(64), "{error}");
            assert!(error.contains(key) && error.contains(says), "{error}");
        }
    }
}

/// Values that only the upstream knows are not proven, and yet they end no envelope.
#[test]
fn relayed_result_of_another_type_is_not_served_until_the_upstream_is_honest() {
    let forged = r#""v1"},{"jsonrpc":"2.0","id":2,"result":"0xbad""#.to_owned();
    let long = format!("\"{}\"", "x".repeat(20_000));
    for (text, reason) in [(forged, "malformed"), (long, "too_large"), ("7".to_owned(), "type")] {
        let devnet = start(config(Helicon::Never));
        let lie = devnet.faults().inject(Fault::Result(text).on("web3_clientVersion"));
        let (_dir, neve) = follow(&devnet);
        let series = format!(
            "neve_upstream_rejected_values_total{{method=\"web3_clientVersion\",reason=\"{reason}\"}}"
        );
        neve.wait("the rejection", |_| (neve.count(&series) >= 1).then_some(()));
        assert_eq!(neve.client().call("web3_clientVersion", "[]").status, 421);
        lie.clear();
        neve.wait("the true version", |_| {
            let answer = neve.client().call("web3_clientVersion", "[]");
            (answer.status == 200 && answer.text().contains("v1.14.2")).then_some(())
        });
        assert!(neve.log().len() < 20_000, "{}", neve.log());
    }
}

#[test]
fn error_text_of_an_upstream_is_cut_and_forges_no_log_line() {
    let devnet = start(config(Helicon::Never));
    let (_dir, neve) = follow(&devnet);
    let text = format!("\n2026-01-01 ERROR forged\u{1b}[31m\r{}", "x".repeat(50_000));
    devnet.faults().inject(Fault::Error(text));
    devnet.advance(1);
    let error = neve.wait("the error", |health| {
        let error = health["upstream"]["error"].as_str()?;
        error.contains("forged").then(|| error.to_owned())
    });
    assert!(error.len() < 400 && !error.contains('\n'), "{error}");
    neve.wait_for_log("ERROR forged");
    let log = neve.log();
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01 ERROR")), "{log}");
    assert!(!log.contains("forged\u{1b}") && log.len() < 50_000, "{log}");
    assert!(neve.health().to_string().len() < 20_000);
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
    neve.wait_for_head(wrong); // neve cannot know yet
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
    neve.wait("evidence", |_| {
        let kept = evidence(dir.path());
        let has = |end: &str| kept.iter().any(|name| name.ends_with(&format!("-{wrong}-{end}")));
        let has_lie = has("settled_receipts_root") || has("settled_logs_bloom");
        (has_lie && has("accepted")).then_some(())
    });
    neve.stop();
    let store = dir.path().join("store").display().to_string();
    assert!(run(&["verify", "--data-dir", &store, "--recover-senders"]).status.success());
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

/// Requests receipts one by one, a hundred in a batch, as of Avalanche's public API.
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

/// A batch of receipts takes the whole allowance of a second. What came before it is not requested again, or no
/// height would ever be whole.
#[test]
fn upstream_that_limits_the_calls_of_batches_is_followed() {
    let mut config = config(Helicon::FromGenesis).with_head(4);
    config.chain.profile = Profile::many_logs();
    config.rate_limit = Some(RateLimit { per_second: 100.0, counts: Counted::Calls });
    let devnet = start(config);
    devnet.faults().inject(Fault::NoBlockReceipts);
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &devnet.base_url(), "--start", "1"]);
    neve.wait_for_head(4);
    assert!(!neve.log().contains("upstream failed"), "{}", neve.log());
}

/// An upstream that throttles, and one that does not.
fn throttling_and_free() -> [DevnetThread; 2] {
    let mut config = config(Helicon::FromGenesis);
    config.chain.profile = Profile::many_logs();
    let free = start(config.clone());
    config.rate_limit = Some(RateLimit { per_second: 20.0, counts: Counted::Calls });
    let throttling = start(config);
    throttling.faults().inject(Fault::NoBlockReceipts);
    [throttling, free]
}

#[test]
fn heights_in_flight_go_to_an_upstream_that_comes_later() {
    let [throttling, free] = throttling_and_free();
    let absent = free.faults().inject(Fault::Refuse);
    let (dir, urls) = (fresh_dir(), [&throttling, &free].map(|node| node.base_url()));
    let arguments = ["--upstream", &urls[0], "--upstream", &urls[1], "--start", "0"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait("requests that are throttled", |_| {
        let labels = format!("upstream=\"{}\",reason=\"throttled\"", urls[0]);
        (neve.count(&format!("neve_upstream_faults_total{{{labels}}}")) > 0).then_some(())
    });
    absent.clear();
    neve.wait_for_head(HEAD);
}

/// Gives its heights to the other one, and does not take it for one that stalls.
#[test]
fn upstream_that_throttles_beside_a_free_one_is_not_penalized() {
    let [throttling, free] = throttling_and_free();
    let (dir, urls) = (fresh_dir(), [&throttling, &free].map(|node| node.base_url()));
    let arguments = ["--upstream", &urls[0], "--upstream", &urls[1], "--start", "0"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(HEAD);
    let faults = |reason| {
        let labels = format!("upstream=\"{}\",reason=\"{reason}\"", urls[0]);
        neve.count(&format!("neve_upstream_faults_total{{{labels}}}"))
    };
    assert!(faults("throttled") > 0);
    assert_eq!(faults("stalled"), 0);
}

/// Text of a header at a height that its chain does not have. Its hash is right.
fn made_header(of: &DevnetThread, height: u64) -> String {
    let block = of.block(HEAD).expect("the chain has it");
    let text = block.answer(Part::Header, of.rules());
    let mut answer = ClaimedHeader::parse(&text).expect("a header");
    let [number, hash] = [format!("{:#x}", answer.header.number), answer.header.hash().to_string()];
    answer.header.number = height;
    let text = String::from_utf8(text).unwrap();
    let text = text.replace(&hash, &answer.header.hash().to_string());
    text.replace(&format!("\"number\":\"{number}\""), &format!("\"number\":\"{height:#x}\""))
}

/// The header has the form of later rules, too, and proves itself: only the other upstream contradicts it.
#[test]
fn made_header_far_above_moves_nothing_that_two_upstreams_must_agree_on() {
    let devnets = [(); 2].map(|()| start(config(Helicon::Never)));
    let (dir, urls) = (fresh_dir(), [&devnets[0], &devnets[1]].map(|one| one.base_url()));
    let upstreams = ["--upstream", &urls[0], "--upstream", &urls[1], "--upstream-quorum", "2"];
    let neve = Neve::start(dir.path(), &[&upstreams[..], &["--start", "0"]].concat());
    neve.wait_for_head(HEAD);
    let far = 1_000_000_000;
    let header = made_header(&start(config(Helicon::FromGenesis)), far);
    let faults = devnets[0].faults();
    faults.inject(Fault::Result(format!("\"{far:#x}\"")).on("eth_blockNumber"));
    faults.inject(Fault::Result(header).on("eth_getHeaderByNumber"));
    let advance = || {
        for one in &devnets {
            one.advance(1);
        }
    };
    for step in 1..=5 {
        advance();
        neve.wait("the lie", |health| {
            let of = |key: &str| health["upstreams"][0][key].clone();
            (of("head") == far && of("rules") == "helicon").then_some(())
        });
        neve.wait_for_head(HEAD + step);
        is_unmoved(&neve, HEAD + step);
    }
    faults.clear();
    advance();
    neve.wait("its true head", |health| (health["upstreams"][0]["head"] == HEAD + 6).then_some(()));
    neve.wait_for_head(HEAD + 6);
    is_unmoved(&neve, HEAD + 6);
    serves_the_truth(&neve, &devnets[1], HEAD + 6, Rules::BeforeHelicon);
}

/// Checks that head, lag, rules and status are those of the true chain.
fn is_unmoved(neve: &Neve, head: u64) {
    let health = neve.health();
    let blocks = &health["blocks"];
    assert_eq!((&blocks["head"], &blocks["lag"]), (&head.into(), &0.into()), "{health}");
    assert_eq!([&health["status"], &health["upstream"]["rules"]], ["ok", "before_helicon"]);
    assert_eq!(neve.client().get("/ready").status, 200);
}

/// Another continuation of the chain takes the place of heights that no header has settled.
#[test]
fn unproven_heights_that_the_upstream_has_otherwise_are_replaced() {
    let devnet = start(config(Helicon::FromGenesis));
    let (dir, neve) = follow(&devnet);
    let proven = neve.health()["blocks"]["settled_height"].as_u64().unwrap();
    assert!(proven < HEAD);
    neve.stop();
    devnet.branch(HEAD, 99);
    let url = devnet.base_url();
    let neve = Neve::start(dir.path(), &["--upstream", &url]);
    neve.wait_for_log("upstream has another block");
    devnet.advance(30);
    neve.wait_for_head(HEAD + 30);
    (proven..=HEAD + 1).for_each(|at| serves_the_truth(&neve, &devnet, at, Rules::Helicon));
}
