//! Several upstreams: one of them slow, away, throttling, too young, too old, of another chain, or a
//! liar. The others do the work, what is served is true, and a series says what was wrong.

use std::time::{Duration, Instant};

use neve_devnet::{Config, DevnetThread, Fault, Helicon, Older, Part, RetryAfter, Rule};
use serde_json::Value;
use tempfile::TempDir;

use super::backfill::evidence;
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::served::devnet_of;

const HEAD: u64 = 300;

fn config() -> Config {
    Config::test().with_head(HEAD).with_helicon(Helicon::FromGenesis)
}

/// Two nodes of one chain; their bytes are the same.
fn two() -> [DevnetThread; 2] {
    [devnet_of(config()), devnet_of(config())]
}

fn start(devnets: &[DevnetThread], arguments: &[&str]) -> (TempDir, Neve) {
    let (dir, urls) = (fresh_dir(), devnets.iter().map(|one| one.base_url()).collect::<Vec<_>>());
    let upstreams = urls.iter().flat_map(|url| ["--upstream", url]).collect::<Vec<_>>();
    let neve = Neve::start(dir.path(), &[&upstreams[..], &["--start", "0"], arguments].concat());
    (dir, neve)
}

/// Starts neve with the same store.
fn again(dir: &TempDir, devnets: &[DevnetThread]) -> Neve {
    let urls = devnets.iter().map(|one| one.base_url()).collect::<Vec<_>>();
    let upstreams = urls.iter().flat_map(|url| ["--upstream", url]).collect::<Vec<_>>();
    Neve::start(dir.path(), &upstreams)
}

fn advance(devnets: &[DevnetThread], blocks: u64) {
    devnets.iter().for_each(|one| {
        one.advance(blocks);
    });
}

fn faults(neve: &Neve, devnet: &DevnetThread, reason: &str) -> u64 {
    let url = devnet.base_url();
    neve.count(&format!("neve_upstream_faults_total{{upstream=\"{url}\",reason=\"{reason}\"}}"))
}

fn heights(neve: &Neve, devnet: &DevnetThread) -> u64 {
    neve.count(&format!("neve_upstream_blocks_total{{upstream=\"{}\"}}", devnet.base_url()))
}

fn state(neve: &Neve, devnet: &DevnetThread) -> String {
    let url = devnet.base_url();
    let health = neve.health();
    let all = health["upstreams"].as_array().cloned().unwrap_or_default();
    let one = all.iter().find(|one| one["url"] == *url);
    one.map_or_else(String::new, |one| one["state"].as_str().unwrap_or_default().to_owned())
}

fn serves_the_truth(neve: &Neve, devnet: &DevnetThread) {
    let mut client = neve.client();
    for height in 0..=devnet.latest() {
        let block = devnet.block(height).expect("the chain has it");
        let full = block.answer(Part::Full, devnet.rules());
        let full = String::from_utf8_lossy(&full).into_owned();
        let answer = client.call("eth_getBlockByNumber", &format!("[\"{height:#x}\",true]")).text();
        assert!(answer.contains(&full), "{height}: {answer}");
        let answer = client.call("eth_getBlockReceipts", &format!("[\"{height:#x}\"]")).text();
        assert!(answer.contains(&*String::from_utf8_lossy(block.receipts())), "{height}");
    }
}

/// With this fault of the first all the same everything comes, and the reason is counted. The directory of the store goes
/// with its value.
fn is_lived_through(
    rule: impl Into<Rule>,
    reason: &str,
    arguments: &[&str],
) -> (TempDir, Neve, [DevnetThread; 2]) {
    let devnets = two();
    let (dir, neve) = start(&devnets, arguments);
    neve.wait_for_head(HEAD);
    neve.wait("both", |health| {
        let all = health["upstreams"].as_array()?;
        all.iter().all(|one| one["state"] == "up").then_some(())
    });
    devnets[0].faults().inject(rule);
    advance(&devnets, 100);
    neve.wait_for_head(HEAD + 100);
    neve.wait(reason, |_| (faults(&neve, &devnets[0], reason) >= 1).then_some(()));
    serves_the_truth(&neve, &devnets[1]);
    advance(&devnets, 1);
    neve.wait_for_head(HEAD + 101);
    assert_eq!(neve.count("neve_blocks_withdrawn_total"), 0);
    (dir, neve, devnets)
}

const BLOCK: &str = "eth_getBlockByNumber";

#[test]
fn upstream_that_goes_away_is_lived_through() {
    is_lived_through(Fault::Refuse, "unreachable", &[]);
    is_lived_through(Fault::Status(500, RetryAfter::Absent), "http_status", &[]);
    is_lived_through(Fault::Garbage.on(BLOCK), "invalid_json", &[]);
}

#[test]
fn upstream_that_stalls_is_lived_through() {
    // Whatever waited for it would wait longer than this test does.
    is_lived_through(Fault::Stall.on(BLOCK), "stalled", &["--upstream-request-timeout", "1h"]);
}

#[test]
fn upstream_that_throttles_is_paused_as_long_as_it_says() {
    let rule = Fault::Status(429, RetryAfter::Seconds(3600));
    let (_dir, neve, devnets) = is_lived_through(rule, "throttled", &[]);
    neve.wait("the rest", |_| (state(&neve, &devnets[0]) == "paused").then_some(()));
    let requests = devnets[0].counters().http_requests();
    advance(&devnets, 20);
    neve.wait_for_head(HEAD + 121);
    assert_eq!(devnets[0].counters().http_requests(), requests);
    let window =
        format!("neve_upstream_concurrency_limit{{upstream=\"{}\"}}", devnets[0].base_url());
    assert!(neve.metric(&window).unwrap() >= 1.0);
}

#[test]
fn slow_upstream_gives_fewer_heights() {
    let devnets = two();
    devnets[0].faults().inject(Fault::Latency(Duration::from_millis(500)));
    let (_dir, neve) = start(&devnets, &[]);
    neve.wait_for_head(HEAD);
    let [slow, quick] = [&devnets[0], &devnets[1]].map(|one| heights(&neve, one));
    assert!(quick > 2 * slow, "slow {slow}, quick {quick}");
    serves_the_truth(&neve, &devnets[1]);
}

#[test]
fn upstream_of_another_chain_is_not_used() {
    for fault in [Fault::WrongChainId, Fault::WrongGenesis] {
        let devnets = two();
        // Known before the other is asked, so that it is the right one.
        let (dir, neve) = start(&devnets[1..], &[]);
        neve.wait_for_head(HEAD);
        neve.stop();
        devnets[0].faults().inject(fault);
        advance(&devnets, 10);
        let urls = [devnets[0].base_url(), devnets[1].base_url()];
        let arguments = ["--upstream", &*urls[0], "--upstream", &*urls[1]];
        let neve = Neve::start(dir.path(), &arguments);
        neve.wait_for_head(HEAD + 10);
        neve.wait("the refusal", |_| (state(&neve, &devnets[0]) == "wrong_chain").then_some(()));
        assert!(faults(&neve, &devnets[0], "wrong_chain") >= 1);
        assert_eq!(heights(&neve, &devnets[0]), 0);
        assert_eq!(neve.client().get("/ready").status, 200);
    }
}

/// Upstream with an equal genesis, and other blocks at proven heights.
#[test]
fn upstream_with_another_history_is_not_used() {
    let devnets = two();
    let (dir, neve) = start(&devnets[1..], &[]);
    neve.wait_for_head(HEAD);
    neve.stop();
    devnets[0].branch(10, 7);
    advance(&devnets, 10);
    let urls = [devnets[0].base_url(), devnets[1].base_url()];
    let neve = Neve::start(dir.path(), &["--upstream", &urls[0], "--upstream", &urls[1]]);
    neve.wait_for_head(HEAD + 10);
    neve.wait("the refusal", |_| (state(&neve, &devnets[0]) == "disagrees").then_some(()));
    assert!(faults(&neve, &devnets[0], "disagrees") >= 1);
    serves_the_truth(&neve, &devnets[1]);
}

/// A node that has not gone over to v1.15's rules shows old blocks otherwise.
#[test]
fn upstream_with_old_rules_is_not_used() {
    let of = || devnet_of(Config::test().with_head(HEAD));
    let devnets = [of(), of()];
    devnets[1].go_over(Duration::ZERO);
    devnets[1].advance(5);
    let (_dir, neve) = start(&devnets, &["--backfill-to", "none"]);
    neve.wait_for_head(HEAD + 5);
    neve.wait("the old one", |_| (state(&neve, &devnets[0]) == "old_rules").then_some(()));
    serves_the_truth(&neve, &devnets[1]);
    assert_eq!(neve.health()["upstream"]["rules"], "helicon");
}

/// A node that began late, or prunes.
#[test]
fn upstream_without_old_heights_gives_the_newer_ones() {
    let young = Config { keep_heights: 50, older: Older::Absent, ..config() };
    let devnets = [devnet_of(young), devnet_of(config())];
    // The other one gives nothing before the young one was asked for an old height.
    let stall = devnets[1].faults().inject(Fault::Stall.on("eth_getBlockReceipts"));
    let (_dir, neve) = start(&devnets, &[]);
    let missing = || faults(&neve, &devnets[0], "missing_height");
    neve.wait("a height that is missing", |_| (missing() >= 1).then_some(()));
    stall.clear();
    neve.wait_for_head(HEAD);
    assert!(heights(&neve, &devnets[1]) >= HEAD - 60);
    serves_the_truth(&neve, &devnets[1]);
}

#[test]
fn upstream_that_lies_is_asked_last_and_both_answers_are_kept() {
    let devnets = two();
    let (dir, neve) = start(&devnets, &[]);
    neve.wait_for_head(HEAD);
    // One that lies before it is admitted is not asked at all.
    wait_until_both_are_asked(&neve);
    let before = heights(&neve, &devnets[0]);
    for height in HEAD + 1..=HEAD + 200 {
        devnets[0].faults().inject(Fault::WrongHash.at(height));
    }
    for step in 1..=20 {
        advance(&devnets, 10);
        neve.wait_for_head(HEAD + 10 * step);
        if faults(&neve, &devnets[0], "header_hash") > 0 {
            break;
        }
    }
    serves_the_truth(&neve, &devnets[1]);
    let refused = faults(&neve, &devnets[0], "header_hash");
    assert!((1..100).contains(&refused), "{refused}: who lies is asked last");
    assert_eq!(heights(&neve, &devnets[0]), before);
    // Files are written beside the work. Each is counted once it is whole.
    let told = neve.wait("a lie and what was accepted instead", |_| {
        let kept = evidence(dir.path());
        let told = kept.iter().find(|name| name.ends_with("-header_hash"))?;
        let accepted = format!("-{}-accepted", told.split('-').nth(2)?);
        let are_there = kept.iter().any(|name| name.ends_with(&accepted));
        let are_whole = neve.count("neve_evidence_files_total") >= kept.len() as u64;
        (are_there && are_whole).then(|| told.clone())
    });
    let text = std::fs::read_to_string(dir.path().join("store/evidence").join(told)).unwrap();
    assert!(text.contains(&devnets[0].base_url()), "{text}");
}

/// Two of three must have the same block.
#[test]
fn upstreams_that_must_agree() {
    let devnets = [devnet_of(config()), devnet_of(config()), devnet_of(config())];
    let (_dir, neve) = start(&devnets, &["--upstream-quorum", "2"]);
    neve.wait_for_head(HEAD);
    devnets[0].branch(HEAD + 1, 7);
    advance(&devnets, 20);
    neve.wait_for_head(HEAD + 20);
    serves_the_truth(&neve, &devnets[1]);
    assert_eq!(neve.count("neve_blocks_withdrawn_total"), 0);
    drop(neve);
    // With one against one nothing is served.
    let (_dir, neve) = start(&devnets[..2], &["--upstream-quorum", "2"]);
    neve.wait("a disagreement", |_| {
        (neve.count("neve_upstream_disagreements_total") >= 1).then_some(())
    });
    neve.wait_for_head(HEAD);
    assert_eq!(neve.health()["blocks"]["head"], HEAD);
}

/// An upstream that must confirm each block wants a pause.
#[test]
fn upstream_that_throttles_is_not_asked_to_agree_before_its_pause_ends() {
    let devnets = two();
    let (_dir, neve) = start(&devnets, &["--upstream-quorum", "2"]);
    neve.wait_for_head(HEAD);
    wait_until_both_are_asked(&neve);
    let pause = devnets[1].faults().inject(Fault::Status(429, RetryAfter::Seconds(20)).on(BLOCK));
    advance(&devnets, 5);
    neve.wait("a pause", |_| (state(&neve, &devnets[1]) == "paused").then_some(()));
    let labels = format!("method=\"{BLOCK}\",reason=\"throttled\"");
    let throttled = || neve.count(&format!("neve_upstream_call_errors_total{{{labels}}}"));
    // Requests that were in flight as the pause began are throttled too.
    neve.wait("all of them", |_| (throttled() >= pause.hits()).then_some(()));
    let before = throttled();
    let until = Instant::now() + Duration::from_secs(3);
    neve.wait("the pause", |_| (Instant::now() >= until).then_some(()));
    let more = throttled() - before;
    assert!(more <= 1, "{more} requests in its pause");
    assert_eq!(neve.health()["blocks"]["head"], HEAD, "one upstream has confirmed");
    pause.clear();
    neve.wait_for_head(HEAD + 5);
}

#[test]
fn requests_are_paced() {
    let devnet = devnet_of(config());
    let start_at = Instant::now();
    let (_dir, neve) =
        start(std::slice::from_ref(&devnet), &["--upstream-requests-per-second", "50"]);
    neve.wait_for_head(150);
    let requests = devnet.counters().http_requests();
    let allowed = 50.0 * start_at.elapsed().as_secs_f64() + 50.0 + 10.0;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let made = requests as f64;
    assert!(made <= allowed, "{made} requests, allowed {allowed}");
}

fn wait_until_both_are_asked(neve: &Neve) {
    neve.wait("both", |health| {
        let all = health["upstreams"].as_array()?;
        all.iter().all(|one| one["state"] == "up").then_some(())
    });
}

#[test]
fn false_head_of_one_upstream_is_not_believed() {
    let devnets = two();
    let (_dir, neve) = start(&devnets, &[]);
    neve.wait_for_head(HEAD);
    wait_until_both_are_asked(&neve);
    let lie = devnets[0].faults().inject(Fault::FalseHead(1_000_000_000));
    advance(&devnets, 5);
    neve.wait_for_head(HEAD + 5);
    neve.wait("the doubt", |_| (faults(&neve, &devnets[0], "false_head") >= 1).then_some(()));
    advance(&devnets, 5);
    neve.wait_for_head(HEAD + 10);
    let blocks = &neve.health()["blocks"];
    assert_eq!((&blocks["lag"], &blocks["upstream_head"]), (&0.into(), &(HEAD + 10).into()));
    assert_eq!(neve.client().get("/ready").status, 200);
    lie.clear();
    advance(&devnets, 5);
    neve.wait_for_head(HEAD + 15);
    neve.wait("its true head", |health| {
        let all = health["upstreams"].as_array()?;
        all.iter().all(|one| one["head"] == HEAD + 15).then_some(())
    });
    assert_eq!(neve.client().get("/ready").status, 200);
}

/// Requests the block of a far head, since it may be true; but only a header proves it.
#[test]
fn announced_head_without_a_header_counts_for_no_lag() {
    let devnets = two();
    let (_dir, neve) = start(&devnets, &[]);
    neve.wait_for_head(HEAD);
    wait_until_both_are_asked(&neve);
    devnets[0].faults().inject(Fault::FalseHead(40));
    advance(&devnets, 1);
    neve.wait_for_head(HEAD + 1);
    let asked = || devnets[0].counters().calls("eth_getHeaderByNumber");
    let before = asked();
    neve.wait("two questions for its header", |_| (asked() >= before + 2).then_some(()));
    let blocks = &neve.health()["blocks"];
    assert_eq!((&blocks["lag"], &blocks["upstream_head"]), (&0.into(), &(HEAD + 1).into()));
    assert_eq!(neve.client().get("/ready").status, 200);
    advance(&devnets, 3);
    neve.wait_for_head(HEAD + 4);
}

/// Two must have a block, and one of them comes back without it.
#[test]
fn upstream_without_a_proven_header_hides_no_lag() {
    let devnets = two();
    let (_dir, neve) = start(&devnets, &["--upstream-quorum", "2"]);
    neve.wait_for_head(HEAD);
    wait_until_both_are_asked(&neve);
    let away = devnets[1].faults().inject(Fault::Refuse);
    neve.wait("its end", |_| (state(&neve, &devnets[1]) != "up").then_some(()));
    devnets[1].faults().inject(Fault::Result("null".into()).at(HEAD + 1..=HEAD + 5));
    advance(&devnets, 5);
    let lag = || neve.health()["blocks"]["lag"].clone();
    neve.wait("the lag", |_| (lag() == 5).then_some(()));
    away.clear();
    wait_until_both_are_asked(&neve);
    assert_eq!(lag(), 5);
}

fn rules(neve: &Neve) -> String {
    neve.health()["upstream"]["rules"].as_str().unwrap_or_default().to_owned()
}

fn total_difficulty(neve: &Neve, height: u64) -> String {
    let params = format!("[\"{height:#x}\",false]");
    let block = neve.client().result("eth_getBlockByNumber", &params);
    block["totalDifficulty"].as_str().unwrap_or_default().to_owned()
}

/// Blocks of v1.15 have zero there, all of them; no hash binds it.
fn zero_at(height: u64) -> Rule {
    let of = |value: u64| &*format!("\"totalDifficulty\":\"{value:#x}\"").leak();
    Fault::Replaced(of(height), of(0)).at(height)
}

#[test]
fn rules_stay_if_only_one_of_two_upstreams_changes_them() {
    let devnets =
        [devnet_of(Config::test().with_head(HEAD)), devnet_of(Config::test().with_head(HEAD))];
    let (_dir, neve) = start(&devnets, &[]);
    neve.wait_for_head(HEAD);
    wait_until_both_are_asked(&neve);
    devnets[0].faults().inject(zero_at(HEAD + 1));
    advance(&devnets, 1);
    neve.wait_for_head(HEAD + 1);
    neve.wait("the lie", |health| {
        let all = health["upstreams"].as_array()?;
        all.iter().any(|one| one["rules"] == "helicon").then_some(())
    });
    assert_eq!(rules(&neve), "before_helicon");
    assert_eq!(total_difficulty(&neve, HEAD), format!("{HEAD:#x}"));
    assert_eq!(total_difficulty(&neve, HEAD + 1), format!("{:#x}", HEAD + 1));
    assert_eq!(state(&neve, &devnets[1]), "up");
    advance(&devnets, 1);
    neve.wait_for_head(HEAD + 2);
    assert_eq!(total_difficulty(&neve, HEAD + 2), format!("{:#x}", HEAD + 2));
}

#[test]
fn one_upstream_of_two_does_not_change_the_rules_while_the_other_is_away() {
    for is_there_first in [true, false] {
        let devnets = [(); 2].map(|()| devnet_of(Config::test().with_head(HEAD)));
        let away = || devnets[1].faults().inject(Fault::Refuse);
        if !is_there_first {
            away();
        }
        let (dir, neve) = start(&devnets, &[]);
        neve.wait_for_head(HEAD);
        if is_there_first {
            wait_until_both_are_asked(&neve);
            away();
        }
        neve.wait("its end", |_| (state(&neve, &devnets[1]) != "up").then_some(()));
        rules_stay(neve, &dir, &devnets);
    }
}

/// The first upstream lies about two blocks, then again after a restart, when the store has rules and no upstream
/// agrees on them.
fn rules_stay(mut neve: Neve, dir: &TempDir, devnets: &[DevnetThread; 2]) {
    for height in [HEAD + 1, HEAD + 3] {
        for height in [height, height + 1] {
            devnets[0].faults().inject(zero_at(height));
        }
        devnets[0].advance(1);
        neve.wait_for_head(height);
        let lied = |health: &Value| health["upstreams"][0]["rules"] == "helicon";
        neve.wait("the lie", |health| lied(health).then_some(()));
        // What neve concludes from the lie, it has concluded with the next block.
        devnets[0].advance(1);
        neve.wait_for_head(height + 1);
        assert_eq!(rules(&neve), "before_helicon");
        assert_eq!(total_difficulty(&neve, HEAD), format!("{HEAD:#x}"));
        neve.stop();
        neve = again(dir, devnets);
        neve.wait_for_head(height + 1);
    }
}

/// A single upstream cannot be contradicted, but it can be right again.
#[test]
fn rules_return_when_the_upstream_answers_as_before() {
    let devnets = [devnet_of(Config::test().with_head(HEAD))];
    let (_dir, neve) = start(&devnets, &[]);
    neve.wait_for_head(HEAD);
    let lie = devnets[0].faults().inject(zero_at(HEAD + 1));
    advance(&devnets, 1);
    neve.wait("the lie", |_| (rules(&neve) == "helicon").then_some(()));
    lie.clear();
    advance(&devnets, 1);
    neve.wait("the truth", |_| (rules(&neve) == "before_helicon").then_some(()));
    assert_eq!(total_difficulty(&neve, HEAD), format!("{HEAD:#x}"));
}

#[test]
fn upstream_named_twice_is_a_wrong_argument() {
    let arguments =
        ["--upstream", "http://host:80/", "--upstream", "http://HOST", "--upstream-quorum", "2"];
    let output = run(&[&["serve", "--data-dir", "/nothing"], &arguments[..]].concat());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{error}");
    assert!(error.contains("--upstream http://HOST (flag): named twice"), "{error}");
}
