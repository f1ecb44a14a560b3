//! Heights below the first one, while the head is followed: fetched, proven, published a segment at a
//! time, as far as is asked for and as is kept.

use std::path::Path;

use neve_devnet::{Config, DevnetThread, Fault, Helicon, Older, Profile, RetryAfter};
use serde_json::Value;

use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::served::serves;

const HEAD: u64 = 400;

fn devnet(helicon: Helicon) -> DevnetThread {
    DevnetThread::start(Config::test().with_head(HEAD).with_helicon(helicon))
        .expect("loopback has free ports")
}

fn start(dir: &Path, devnet: &DevnetThread, arguments: &[&str]) -> Neve {
    let url = devnet.base_url();
    let fixed = ["--upstream", &url, "--start", "-20", "--segment-blocks", "64"];
    Neve::start(dir, &[&fixed, arguments].concat())
}

fn wait_for_first(neve: &Neve, height: u64) {
    neve.wait(&format!("first height {height}"), |health| {
        (health["blocks"]["min_height"].as_u64()? <= height).then_some(())
    });
}

fn assert_verifies(dir: &Path) {
    let store = dir.join("store").display().to_string();
    let verified = run(&["verify", "--data-dir", &store]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[test]
fn a_store_is_filled_to_the_genesis_while_it_follows() {
    for helicon in [Helicon::Never, Helicon::FromGenesis, Helicon::At(150)] {
        let (devnet, dir) = (devnet(helicon), fresh_dir());
        let neve = start(dir.path(), &devnet, &["--backfill-to", "0"]);
        neve.wait_for_head(HEAD);
        devnet.advance(30);
        wait_for_first(&neve, 0);
        neve.wait_for_head(HEAD + 30);
        devnet.advance(1);
        neve.wait_for_head(HEAD + 31);
        serves(&neve, &devnet, 0..=HEAD + 31);
        assert_eq!(neve.count("neve_blocks_backfilled_total"), HEAD - 20, "{helicon:?}");
        assert_eq!(neve.count("neve_settlements_unproven_total"), 0, "{helicon:?}");
        neve.wait("the goal", |health| (health["backfill"]["remaining"] == 0).then_some(()));
        let (status, _) = neve.stop();
        assert!(status.success());
        assert_verifies(dir.path());
    }
}

/// Providers of public endpoints leave methods out.
#[test]
fn upstream_without_headers_gives_history() {
    let (devnet, dir) = (devnet(Helicon::At(150)), fresh_dir());
    devnet.faults().inject(Fault::Error("no such method".into()).on("eth_getHeaderByNumber"));
    let neve = start(dir.path(), &devnet, &["--backfill-to", "0"]);
    neve.wait_for_head(HEAD);
    wait_for_first(&neve, 0);
    serves(&neve, &devnet, 0..=HEAD);
}

#[test]
fn failed_request_for_headers_ejects_no_upstream() {
    let (devnet, dir) = (devnet(Helicon::Never), fresh_dir());
    let fails = Fault::Status(500, RetryAfter::Absent).on("eth_getHeaderByNumber");
    let failed = devnet.faults().inject(fails.at(0..=HEAD - 21).times(1));
    let neve = start(dir.path(), &devnet, &["--backfill-to", "0"]);
    wait_for_first(&neve, 0);
    assert_eq!(failed.hits(), 1);
    assert!(!neve.log().contains("upstream failed"), "{}", neve.log());
}

/// Without batches each header is a request, and each of the others would be made again.
#[test]
fn failed_request_for_a_header_costs_no_others() {
    let (devnet, dir) = (devnet(Helicon::Never), fresh_dir());
    devnet.faults().inject(Fault::Error("no such method".into()).on("eth_getHeaderByNumber"));
    let fails = Fault::Status(500, RetryAfter::Absent).on("eth_getBlockByNumber");
    let failed: Vec<_> =
        (0..5).map(|at| devnet.faults().inject(fails.clone().at(64 * at + 2).times(1))).collect();
    let neve = start(dir.path(), &devnet, &["--backfill-to", "0"]);
    wait_for_first(&neve, 0);
    assert!(failed.iter().all(|failed| failed.hits() == 1));
    let asked = devnet.counters().calls("eth_getHeaderByNumber");
    // In a batch and one by one, and a few heights more behind each failure.
    assert!(asked < 2 * HEAD + 100, "{asked}");
}

/// Under Helicon receipts are proven by later headers: without them nothing is published.
#[test]
fn history_waits_for_what_settles_it() {
    let (devnet, dir) = (devnet(Helicon::FromGenesis), fresh_dir());
    let url = devnet.base_url();
    let arguments = ["--upstream", &url, "--backfill-to", "390"];
    let neve = Neve::start(dir.path(), &arguments); // begins at the head
    neve.wait_for_head(HEAD);
    let proven = neve.health()["blocks"]["settled_height"].clone();
    assert_eq!(proven, Value::Null, "nothing that is served is proven");
    neve.wait("the plan", |health| (health["backfill"]["remaining"] == 10).then_some(()));
    assert_eq!(neve.health()["blocks"]["min_height"], HEAD);
    devnet.advance(30);
    wait_for_first(&neve, 390);
    serves(&neve, &devnet, 390..=HEAD + 30);
}

#[test]
fn backfill_survives_a_kill_and_goes_on() {
    let (devnet, dir) = (devnet(Helicon::FromGenesis), fresh_dir());
    devnet.advance(20);
    let slow = devnet.faults().inject(Fault::Latency(std::time::Duration::from_millis(15)));
    let neve = start(dir.path(), &devnet, &["--backfill-to", "0"]);
    wait_for_first(&neve, 300);
    neve.kill();
    slow.clear();
    assert_verifies(dir.path());
    let neve = start(dir.path(), &devnet, &["--backfill-to", "0"]);
    assert!(neve.health()["blocks"]["min_height"].as_u64().unwrap() <= 300);
    wait_for_first(&neve, 0);
    serves(&neve, &devnet, (0..=HEAD).step_by(7));
    neve.stop();
    assert_verifies(dir.path());
}

/// Nothing is fetched that retention would drop at once.
#[test]
fn backfill_stops_where_retention_would_evict() {
    let (devnet, dir) = (devnet(Helicon::Never), fresh_dir());
    let arguments = ["--backfill-to", "retained", "--retain-blocks", "150"];
    let neve = start(dir.path(), &devnet, &arguments);
    wait_for_first(&neve, HEAD + 1 - 150);
    neve.wait("the goal", |health| (health["backfill"]["remaining"] == 0).then_some(()));
    assert_eq!(neve.health()["blocks"]["min_height"], HEAD + 1 - 150);
    assert_eq!(neve.count("neve_blocks_evicted_total"), 0);
    drop(neve);

    let mut config = Config::test().with_head(HEAD);
    config.chain.profile = Profile::c_chain();
    let devnet = DevnetThread::start(config).expect("loopback has free ports");
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let arguments = [
        "--upstream",
        &url,
        "--start",
        "-20",
        "--backfill-to",
        "retained",
        "--retain-bytes",
        "12MiB",
        "--segment-bytes",
        "2MiB",
        "--recover-senders",
        "never",
    ];
    let neve = Neve::start(dir.path(), &arguments);
    wait_for_first(&neve, HEAD - 40);
    let mut calls = 0;
    neve.wait("no more to do", |health| (health["backfill"]["remaining"] == 0).then_some(()));
    neve.wait("an end of fetching", |_| {
        let now = devnet.counters().calls("eth_getBlockReceipts");
        (std::mem::replace(&mut calls, now) == now && now > 50).then_some(())
    });
    assert_eq!(neve.count("neve_blocks_evicted_total"), 0);
    let bytes = neve.health()["storage"]["bytes"].as_u64().unwrap();
    assert!((6 << 20..=12 << 20).contains(&bytes), "{bytes}");
}

/// A block of this chain takes 2 s, so that 200 s are some 100 of them, of which 21 are stored.
#[test]
fn remaining_heights_are_those_that_retention_will_keep() {
    let (devnet, dir) = (devnet(Helicon::Never), fresh_dir());
    for method in ["eth_getHeaderByNumber", "eth_getBlockByNumber"] {
        let fails = Fault::Status(500, RetryAfter::Absent).on(method);
        // The heights just below the start are needed to begin; the segment of the others stays unfinished.
        devnet.faults().inject(fails.at(1..=HEAD - 40));
    }
    let neve = start(dir.path(), &devnet, &["--backfill-to", "retained", "--retain-age", "200s"]);
    let backfill = neve.wait("the plan", |health| {
        let backfill = &health["backfill"];
        backfill["remaining"].is_u64().then(|| backfill.clone())
    });
    let remaining = backfill["remaining"].as_u64().unwrap();
    assert!((60..=100).contains(&remaining), "{backfill}");
    assert_eq!(backfill["goal"], HEAD - 20 - remaining);
}

/// A height that is refused is asked for again; what is published is true.
#[test]
fn a_lie_about_history_is_refused_and_kept() {
    let (devnet, dir) = (devnet(Helicon::Never), fresh_dir());
    let lie = devnet.faults().inject(Fault::LyingReceipts.at(350).times(2));
    let neve = start(dir.path(), &devnet, &["--backfill-to", "300"]);
    neve.wait_for_log("upstream data rejected height=350");
    wait_for_first(&neve, 300);
    assert_eq!(lie.hits(), 2);
    serves(&neve, &devnet, 300..=HEAD);
    neve.wait_for_count("neve_evidence_files_total", 2);
    // Two threads write them: either may be the first.
    let kept = evidence(dir.path());
    assert!(kept.len() == 2 && kept.iter().all(|name| name.contains("-350-")), "{kept:?}");
    let accepted = kept.iter().filter(|name| name.ends_with("-350-accepted")).count();
    assert_eq!(accepted, 1, "{kept:?}");
}

/// Under Helicon only a later header tells: nothing of it was published by then.
#[test]
fn receipts_of_history_that_a_header_disproves_are_never_served() {
    let (devnet, dir) = (devnet(Helicon::FromGenesis), fresh_dir());
    devnet.advance(20);
    let lie = devnet.faults().inject(Fault::LyingReceipts.at(370));
    let neve = start(dir.path(), &devnet, &["--backfill-to", "350"]);
    neve.wait_for_log("the receipts of history do not check out");
    assert!(neve.health()["blocks"]["min_height"].as_u64().unwrap() > 370);
    assert_eq!(neve.count("neve_blocks_withdrawn_total"), 0);
    lie.clear();
    wait_for_first(&neve, 350);
    serves(&neve, &devnet, 350..=HEAD);
}

/// A node that has not got them all gives what it has, also if a segment would have room for more.
#[test]
fn upstream_without_old_heights_gives_all_newer_ones() {
    for goal in ["310", "0"] {
        let config = Config { keep_heights: 100, older: Older::Absent, ..Config::test() };
        let devnet = DevnetThread::start(config.with_head(HEAD)).expect("loopback has free ports");
        let dir = fresh_dir();
        let neve = start(dir.path(), &devnet, &["--backfill-to", goal]);
        let first = if goal == "0" { HEAD + 1 - 100 } else { 310 };
        wait_for_first(&neve, first);
        serves(&neve, &devnet, first..=HEAD);
        if goal == "0" {
            neve.wait_for_log(&format!("no upstream gives height {}", first - 1));
        }
    }
}

/// Header 302 settles the receipts of heights 298 and 299 together, and the node lacks the first of them. So 299 is not
/// served, though the node has it.
#[test]
fn heights_whose_receipts_nothing_proves_are_not_published() {
    let config = Config { keep_heights: 102, older: Older::Absent, ..Config::test() };
    let config = config.with_head(HEAD).with_helicon(Helicon::FromGenesis);
    let devnet = DevnetThread::start(config).expect("loopback has free ports");
    let dir = fresh_dir();
    let neve = start(dir.path(), &devnet, &["--backfill-to", "0"]);
    neve.wait_for_log("no upstream gives height 299");
    assert_eq!(neve.health()["blocks"]["min_height"], 300);
    serves(&neve, &devnet, 300..=HEAD);
}

/// Names under `evidence/`, oldest first.
pub(crate) fn evidence(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir.join("store/evidence")).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Names of the files that one run has kept, once they are complete: neve counts a file after its last byte.
pub(crate) fn written_evidence(neve: &Neve, dir: &Path) -> Option<Vec<String>> {
    // Listed first: a file that comes meanwhile only adds to the count.
    let names = evidence(dir);
    (neve.count("neve_evidence_files_total") >= names.len() as u64).then_some(names)
}
