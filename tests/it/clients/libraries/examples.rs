//! The files of `packaging/examples`: each asks neve first, and the node for what neve refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use neve_devnet::{Counters, DevnetThread};
use serde_json::Value;

use super::install;
use crate::support::neve::Neve;
use crate::support::served;

/// Blocks of the chain that neve and the node have.
const HEAD: u64 = 20;
/// Methods of the examples that neve never serves.
const MISSED: [&str; 2] = ["eth_getBalance", "eth_getCode"];

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/examples").join(name)
}

/// An example of a language, ready to be run: node finds libraries beside a script only.
fn example(name: &str) -> Command {
    if Path::new(name).extension().is_some_and(|end| end == "py") {
        let mut command = Command::new(install::of("python").join("bin/python"));
        command.arg(shipped(name));
        return command;
    }
    let script = install::of("js").join(format!("example-{name}"));
    fs::copy(shipped(name), &script).expect("a file can be copied");
    let mut command = Command::new("node");
    command.arg(script);
    command
}

/// Runs an example to its end; returns the line that it prints.
fn run(name: &str, neve: &str, node: &str) -> Value {
    let mut command = example(name);
    // A proxy of the machine is not for loopback.
    for variable in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(variable);
    }
    let done = command.args([neve, node]).output();
    let done = done.unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name}: {}\n{said}", done.status);
    serde_json::from_slice(&done.stdout).unwrap_or_else(|why| panic!("{name}: {why}\n{said}"))
}

/// Calls of the methods that a node got since `before`.
fn calls(counters: &Counters, before: &[u64]) -> Vec<u64> {
    let methods = ["eth_chainId", "eth_blockNumber", "eth_getBlockByNumber"];
    let methods = methods.into_iter().chain(MISSED);
    let now = methods.map(|method| counters.calls(method));
    now.zip(before.iter().copied().chain([0; 8])).map(|(now, before)| now - before).collect()
}

fn hits(neve: &Neve) -> u64 {
    let of = |method| format!("neve_rpc_calls_total{{method=\"{method}\",outcome=\"hit\"}}");
    ["eth_chainId", "eth_blockNumber", "eth_getBlockByNumber"]
        .map(|m| neve.count(&of(m)))
        .iter()
        .sum()
}

/// Runs an example before neve and a node of their own, and before the node alone.
fn answers_with_both(name: &str, batched: bool) {
    let (upstream, node) = (served::devnet(HEAD), served::devnet(HEAD));
    let (_dir, neve) = served::follow(&upstream, &[]);
    let url = format!("http://{}/", neve.address);
    let ours = run(name, &url, &node.http_url());
    let got = calls(node.counters(), &[]);
    let (ids, [balance, code]) = (&got[..2], [got[3], got[4]]);
    assert_eq!((ids, balance, code), (&[0, 0][..], 1, 1), "{name}: {got:?}");
    // Of the blocks the node gets the one that is in a batch with a balance.
    assert_eq!(got[2], u64::from(batched), "{name}: {got:?}");
    assert!(hits(&neve) >= 3, "{name}: {} hits", hits(&neve));
    assert_eq!(run(name, &node.http_url(), &node.http_url()), ours, "{name}");
    works_without_neve(name, neve, &url, &node, &ours);
}

/// The node answers all if neve is down.
fn works_without_neve(name: &str, neve: Neve, url: &str, node: &DevnetThread, ours: &Value) {
    neve.kill();
    assert_eq!(&run(name, url, &node.http_url()), ours, "{name}");
}

#[test]
#[ignore = "needs Node and a network: ./check"]
fn ethers_example_asks_the_node_for_misses_only() {
    answers_with_both("ethers.mjs", true);
}

#[test]
#[ignore = "needs Node and a network: ./check"]
fn viem_example_asks_the_node_for_misses_only() {
    answers_with_both("viem.mjs", false);
}

#[test]
#[ignore = "needs Python and a network: ./check"]
fn web3_py_example_asks_the_node_for_misses_only() {
    answers_with_both("web3_py.py", true);
}
