//! The only upstream names a head that no header proves, or is away: `/ready` says so, and neve goes on serving.

use neve_devnet::{Config, DevnetThread, Fault};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::devnet_of;

const HEAD: u64 = 40;
const FAR: u64 = 1_000_000_000;

fn node() -> DevnetThread {
    devnet_of(Config::test().with_head(HEAD))
}

fn start(dir: &std::path::Path, node: &DevnetThread, more: &[&str]) -> Neve {
    let url = node.base_url();
    Neve::start(dir, &[&["--upstream", &url, "--start", "0"][..], more].concat())
}

/// Waits until `/ready` is 503 for a reason with these words.
fn wait_until_not_ready(neve: &Neve, words: &str) -> String {
    neve.wait(words, |_| {
        let ready = neve.client().get("/ready");
        let reason = ready.json()["reason"].as_str().unwrap_or_default().to_owned();
        (ready.status == 503 && reason.contains(words)).then_some(reason)
    })
}

/// A neve that is ready, and has a short limit of silence.
fn ready() -> (DevnetThread, TempDir, Neve) {
    let (node, dir) = (node(), fresh_dir());
    let neve = start(dir.path(), &node, &["--ready-silence-max", "2s"]);
    neve.wait_for_head(HEAD);
    neve.wait_until_ready();
    (node, dir, neve)
}

fn serves(neve: &Neve, height: u64) {
    let params = format!("[\"{height:#x}\",false]");
    assert_eq!(neve.client().call("eth_getBlockByNumber", &params).status, 200);
}

#[test]
fn start_with_a_false_head_of_the_only_upstream_is_not_ready() {
    let (node, dir) = (node(), fresh_dir());
    let neve = start(dir.path(), &node, &[]);
    neve.wait_for_head(HEAD);
    neve.stop();
    let lie = node.faults().inject(Fault::FalseHead(FAR));
    let neve = start(dir.path(), &node, &[]);
    neve.wait("the fault", |health| {
        health["upstreams"][0]["error"].as_str()?.contains("has no header").then_some(())
    });
    let expected = format!("no upstream is in use: head {} has no header", HEAD + FAR);
    wait_until_not_ready(&neve, &expected);
    let health = neve.client().get("/health").json();
    assert_eq!(health["status"], "not_ready");
    assert!(health["reason"].as_str().unwrap().starts_with(&expected), "{health}");
    assert_eq!(neve.health()["upstream"]["silence_seconds"], Value::Null);
    assert_eq!(neve.metric("neve_upstream_silence_seconds"), Some(f64::INFINITY));
    serves(&neve, HEAD);
    lie.clear();
    neve.wait_until_ready();
}

#[test]
fn false_head_of_the_only_upstream_ends_readiness_after_the_allowed_silence() {
    let (node, _dir, neve) = ready();
    let lie = node.faults().inject(Fault::FalseHead(FAR));
    node.advance(5);
    let reason = wait_until_not_ready(&neve, "no upstream has been in use for ");
    assert!(reason.contains(", allowed is 2s: head "), "{reason}");
    assert!(reason.ends_with(" has no header that proves it"), "{reason}");
    serves(&neve, HEAD);
    lie.clear();
    node.advance(1);
    neve.wait_for_head(HEAD + 6);
    neve.wait_until_ready();
}

#[test]
fn upstream_that_is_away_ends_readiness_after_the_allowed_silence() {
    let (node, _dir, neve) = ready();
    let away = node.faults().inject(Fault::Refuse);
    wait_until_not_ready(&neve, "the upstream has been silent for ");
    serves(&neve, HEAD);
    away.clear();
    neve.wait_until_ready();
}
