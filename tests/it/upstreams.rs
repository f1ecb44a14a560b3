//! Several upstreams: one of them slow, away, throttling, too young, too old, of another chain, or a
//! liar. The others do the work, what is served is true, and a series says what was wrong.

use std::time::{Duration, Instant};

use neve_devnet::{Config, DevnetThread, Fault, Helicon, Older, Part, RetryAfter, Rule};

use super::backfill::evidence;
use crate::support::neve::{Neve, fresh_dir};

const HEAD: u64 = 300;

fn config() -> Config {
    Config::test().with_head(HEAD).with_helicon(Helicon::FromGenesis)
}

fn devnet(config: Config) -> DevnetThread {
    DevnetThread::start(config).expect("loopback has free ports")
}

/// Two nodes of one chain; their bytes are the same.
fn two() -> [DevnetThread; 2] {
    [devnet(config()), devnet(config())]
}

fn start(devnets: &[DevnetThread], arguments: &[&str]) -> (tempfile::TempDir, Neve) {
    let (dir, urls) = (fresh_dir(), devnets.iter().map(|one| one.base_url()).collect::<Vec<_>>());
    let upstreams = urls.iter().flat_map(|url| ["--upstream", url]).collect::<Vec<_>>();
    let neve = Neve::start(dir.path(), &[&upstreams[..], &["--start", "0"], arguments].concat());
    (dir, neve)
}

fn advance(devnets: &[DevnetThread], blocks: u64) {
    devnets.iter().for_each(|one| {
        one.advance(blocks);
    });
}

fn faults(neve: &Neve, devnet: &DevnetThread, reason: &str) -> u64 {
    let url = devnet.http_url();
    neve.count(&format!("neve_upstream_faults_total{{upstream=\"{url}\",reason=\"{reason}\"}}"))
}

fn heights(neve: &Neve, devnet: &DevnetThread) -> u64 {
    neve.count(&format!("neve_upstream_heights_total{{upstream=\"{}\"}}", devnet.http_url()))
}

fn state(neve: &Neve, devnet: &DevnetThread) -> String {
    let url = devnet.http_url();
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

/// With this fault of the first all the same everything comes, and the reason is counted.
fn is_lived_through(
    rule: impl Into<Rule>,
    reason: &str,
    arguments: &[&str],
) -> (Neve, [DevnetThread; 2]) {
    let devnets = two();
    let (_dir, neve) = start(&devnets, arguments);
    neve.wait_for_head(HEAD);
    neve.wait("both", |health| {
        let all = health["upstreams"].as_array()?;
        all.iter().all(|one| one["state"] == "asked").then_some(())
    });
    devnets[0].faults().inject(rule);
    advance(&devnets, 100);
    neve.wait_for_head(HEAD + 100);
    neve.wait(reason, |_| (faults(&neve, &devnets[0], reason) >= 1).then_some(()));
    serves_the_truth(&neve, &devnets[1]);
    advance(&devnets, 1);
    neve.wait_for_head(HEAD + 101);
    assert_eq!(neve.count("neve_blocks_withdrawn_total"), 0);
    (neve, devnets)
}

const BLOCK: &str = "eth_getBlockByNumber";

#[test]
fn one_that_goes_away() {
    is_lived_through(Fault::Refuse, "unreachable", &[]);
    is_lived_through(Fault::Status(500, RetryAfter::Absent), "status", &[]);
    is_lived_through(Fault::Garbage.on(BLOCK), "garbage", &[]);
}

#[test]
fn one_that_stalls() {
    let start = Instant::now();
    is_lived_through(Fault::Stall.on(BLOCK), "stalled", &[]);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn one_that_throttles_is_left_alone_for_as_long_as_it_says() {
    let rule = Fault::Status(429, RetryAfter::Seconds(3600));
    let (neve, devnets) = is_lived_through(rule, "throttled", &[]);
    neve.wait("the rest", |_| (state(&neve, &devnets[0]) == "resting").then_some(()));
    let requests = devnets[0].counters().http_requests();
    advance(&devnets, 20);
    neve.wait_for_head(HEAD + 121);
    assert_eq!(devnets[0].counters().http_requests(), requests);
    let window = format!("neve_upstream_window_heights{{upstream=\"{}\"}}", devnets[0].http_url());
    assert!(neve.metric(&window).unwrap() >= 1.0);
}

#[test]
fn one_that_is_slow_gives_less() {
    let devnets = two();
    devnets[0].faults().inject(Fault::Latency(Duration::from_millis(150)));
    let (_dir, neve) = start(&devnets, &[]);
    neve.wait_for_head(HEAD);
    let [slow, quick] = [&devnets[0], &devnets[1]].map(|one| heights(&neve, one));
    assert!(quick > 2 * slow, "slow {slow}, quick {quick}");
    serves_the_truth(&neve, &devnets[1]);
}

#[test]
fn one_of_another_chain() {
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

/// The same genesis, and other blocks where ours are proven.
#[test]
fn one_with_another_history() {
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
fn one_of_an_old_version() {
    let of = || devnet(Config::test().with_head(HEAD));
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
fn one_that_lacks_old_heights() {
    let young = Config { keep_heights: 50, older: Older::Absent, ..config() };
    let devnets = [devnet(young), devnet(config())];
    let (_dir, neve) = start(&devnets, &[]);
    neve.wait_for_head(HEAD);
    assert!(faults(&neve, &devnets[0], "lacks_height") >= 1);
    assert!(heights(&neve, &devnets[1]) >= HEAD - 60);
    serves_the_truth(&neve, &devnets[1]);
}

#[test]
fn one_that_lies_is_refused_and_both_answers_are_kept() {
    let devnets = two();
    for height in [50, 100, 150, 200, 250] {
        devnets[0].faults().inject(Fault::WrongTransaction.at(height));
    }
    for height in 1..=HEAD {
        devnets[0].faults().inject(Fault::WrongHash.at(height));
    }
    let (dir, neve) = start(&devnets, &[]);
    neve.wait_for_head(HEAD);
    serves_the_truth(&neve, &devnets[1]);
    let refused = faults(&neve, &devnets[0], "header_hash");
    assert!((1..100).contains(&refused), "{refused}: who lies is asked last");
    assert!(heights(&neve, &devnets[0]) <= 1, "it is right about the genesis block alone");
    let kept = evidence(dir.path());
    let told = kept.iter().find(|name| name.ends_with("-header_hash")).expect("a lie was kept");
    let height = told.split('-').nth(2).unwrap();
    assert!(kept.iter().any(|name| name.ends_with(&format!("-{height}-accepted"))), "{kept:?}");
    let text = std::fs::read_to_string(dir.path().join("store/evidence").join(told)).unwrap();
    assert!(text.contains(&devnets[0].http_url()), "{text}");
    assert!(neve.count("neve_evidence_files_total") >= 2);
}

/// Two of three must have the same block.
#[test]
fn upstreams_that_must_agree() {
    let devnets = [devnet(config()), devnet(config()), devnet(config())];
    let (_dir, neve) = start(&devnets, &["--agree", "2"]);
    neve.wait_for_head(HEAD);
    devnets[0].branch(HEAD + 1, 7);
    advance(&devnets, 20);
    neve.wait_for_head(HEAD + 20);
    serves_the_truth(&neve, &devnets[1]);
    assert_eq!(neve.count("neve_blocks_withdrawn_total"), 0);
    drop(neve);
    // With one against one nothing is served.
    let (_dir, neve) = start(&devnets[..2], &["--agree", "2"]);
    neve.wait("a disagreement", |_| {
        (neve.count("neve_upstream_disagreements_total") >= 1).then_some(())
    });
    neve.wait_for_head(HEAD);
    assert_eq!(neve.health()["blocks"]["head"], HEAD);
}

#[test]
fn requests_are_paced() {
    let devnet = devnet(config());
    let start_at = Instant::now();
    let (_dir, neve) = start(std::slice::from_ref(&devnet), &["--requests-per-second", "50"]);
    neve.wait_for_head(150);
    let requests = devnet.counters().http_requests();
    let allowed = 50.0 * start_at.elapsed().as_secs_f64() + 50.0 + 10.0;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let made = requests as f64;
    assert!(made <= allowed, "{made} requests, allowed {allowed}");
}
