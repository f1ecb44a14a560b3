//! Checks of served answers, beside the development chain itself.

use neve_devnet::{Config, DevnetThread, Part};
use tempfile::TempDir;

use super::corpus::{MAIN, Set};
use super::neve::{Neve, fresh_dir};
use super::recorded::Recorded;

/// Checks that neve serves the chain's answers about these heights.
pub(crate) fn serves(neve: &Neve, devnet: &DevnetThread, heights: impl Iterator<Item = u64>) {
    let mut client = neve.client();
    for height in heights {
        let block = devnet.block(height).expect("the chain has it");
        let result = |body: &[u8]| {
            let body = String::from_utf8_lossy(body);
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{body}}}\n")
        };
        let full = client.call("eth_getBlockByNumber", &format!("[\"{height:#x}\",true]")).text();
        assert_eq!(full, result(&block.answer(Part::Full, devnet.rules())), "{height}");
        let by_hash = format!("[\"{:#x}\"]", block.hash());
        let receipts = client.call("eth_getBlockReceipts", &by_hash).text();
        assert_eq!(receipts, result(block.receipts()), "{height}");
    }
}

/// The embedded chain up to `head`.
pub(crate) fn devnet(head: u64) -> DevnetThread {
    devnet_of(Config::test().with_head(head))
}

/// The embedded chain of a configuration.
pub(crate) fn devnet_of(config: Config) -> DevnetThread {
    DevnetThread::start(config).expect("loopback has free ports")
}

/// A neve that holds all of the embedded chain.
pub(crate) fn follow(devnet: &DevnetThread, arguments: &[&str]) -> (TempDir, Neve) {
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let fixed = ["--upstream", &url, "--start", "0"];
    let neve = Neve::start(dir.path(), &[&fixed, arguments].concat());
    neve.wait_for_head(devnet.latest());
    (dir, neve)
}

/// A neve that holds all of a recorded chain.
pub(crate) fn recorded(set: Set, arguments: &[&str]) -> (Recorded, Neve, TempDir) {
    recorded_from(set, "0", arguments)
}

/// A neve that holds heights 100 to 339 of the recorded chain.
pub(crate) fn recorded_from_100(arguments: &[&str]) -> (Recorded, Neve, TempDir) {
    recorded_from(MAIN, "100", arguments)
}

fn recorded_from(set: Set, start: &str, arguments: &[&str]) -> (Recorded, Neve, TempDir) {
    let (node, dir) = (Recorded::start(set), fresh_dir());
    let url = node.url();
    let fixed = ["--upstream", url.as_str(), "--start", start];
    let neve = Neve::start(dir.path(), &[&fixed, arguments].concat());
    neve.wait_for_head(set.head);
    (node, neve, dir)
}
