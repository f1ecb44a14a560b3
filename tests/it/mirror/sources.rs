//! Chains, sources and mirrors of them.

use std::net::SocketAddr;
use std::path::Path;

use neve_devnet::{Config, DevnetThread, Helicon, Profile};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::neve::{Neve, fresh_dir, run};

pub(super) const HEAD: u64 = 400;
/// Some segments are sealed.
pub(super) const SMALL: [&str; 3] = ["--serve-mirrors", "--segment-blocks", "64"];

pub(super) fn devnet(helicon: Helicon) -> DevnetThread {
    let config = Config::test().with_head(HEAD).with_helicon(helicon);
    DevnetThread::start(config).expect("loopback has free ports")
}

/// Blocks of mainnet's size.
pub(super) fn large_devnet(head: u64) -> DevnetThread {
    let mut config = Config::test().with_head(head);
    config.chain.profile = Profile::c_chain();
    DevnetThread::start(config).expect("loopback has free ports")
}

/// A neve that has all of the chain, and gives it to mirrors.
pub(super) fn source(devnet: &DevnetThread, more: &[&str]) -> (TempDir, Neve) {
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let fixed = ["--upstream", &url, "--start", "0", "--recover-senders", "never"];
    let neve = Neve::start(dir.path(), &[&fixed, &SMALL[..], more].concat());
    neve.wait_for_head(devnet.latest());
    (dir, neve)
}

pub(super) fn mirror_in(dir: &Path, of: SocketAddr, more: &[&str]) -> Neve {
    let url = format!("http://{of}");
    let fixed = ["--mirror-from", &url, "--recover-senders", "never"];
    Neve::start(dir, &[&fixed, &SMALL[..], more].concat())
}

pub(super) fn mirror(of: &Neve) -> (TempDir, Neve) {
    let dir = fresh_dir();
    let neve = mirror_in(dir.path(), of.address, &[]);
    (dir, neve)
}

pub(super) fn wait_for_first(neve: &Neve, height: u64) {
    neve.wait(&format!("first height {height}"), |health| {
        (health["blocks"]["min_height"].as_u64()? <= height).then_some(())
    });
}

/// Waits until the source sends its new records. Until then the mirror requests new heights.
pub(super) fn wait_for_stream(neve: &Neve) {
    neve.wait("the stream", |health| {
        health["mirror"]["stream"]["connected"].as_bool()?.then_some(())
    });
}

/// Verifies the store and gives the digest and the range of what it serves.
pub(super) fn digest(dir: &Path) -> (Value, Value, Value) {
    let store = dir.join("store").display().to_string();
    let output = run(&["verify", "--json", "--digest", "--data-dir", &store]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let mut summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(summary["digest"].is_string(), "{summary}");
    (summary["digest"].take(), summary["first"].take(), summary["last"].take())
}

pub(super) fn taken(neve: &Neve, outcome: &str) -> u64 {
    neve.count(&taken_series(outcome))
}

/// Waits until this number of segments was accepted. They are served before they are counted.
pub(super) fn wait_for_accepted(neve: &Neve, segments: u64) {
    neve.wait_for_count(&taken_series("accepted"), segments);
}

fn taken_series(outcome: &str) -> String {
    format!("neve_mirror_received_segments_total{{outcome=\"{outcome}\"}}")
}
