//! Requests of heads as `latest`: another block that comes for that is no fault of the upstream.

use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;

use super::backfill::evidence;

const HEAD: u64 = 300;
/// A height without transactions, between two that have some.
const EMPTY: u64 = 91;

/// A neve that hears of the node's heads as soon as they are there, and the questions for `latest` so
/// far.
fn follow(node: &Recorded, head: u64) -> (tempfile::TempDir, Neve, u64) {
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "-10"]);
    neve.wait_for_head(head);
    neve.wait("the WebSocket", |health| health["upstream"]["websocket"].as_bool()?.then_some(()));
    let asked = node.asked_for_latest();
    (dir, neve, asked)
}

fn missed(neve: &Neve, node: &Recorded) -> u64 {
    neve.count(&format!("neve_upstream_latest_mismatches_total{{upstream=\"{}\"}}", node.url()))
}

fn serves(neve: &Neve, node: &Recorded, height: u64) {
    let expected = node.height(height);
    for (method, params, result) in [
        ("eth_getBlockByNumber", format!("[\"{height:#x}\",true]"), expected.block),
        ("eth_getBlockReceipts", format!("[\"{height:#x}\"]"), expected.receipts),
    ] {
        let answer = neve.client().call(method, &params).text();
        assert_eq!(answer, format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{result}}}\n"));
    }
}

#[test]
fn a_head_is_asked_for_as_latest() {
    let node = Recorded::start_at(MAIN, HEAD, false);
    let (_dir, neve, asked) = follow(&node, HEAD);
    for height in HEAD + 1..=HEAD + 5 {
        node.grow(height);
        neve.wait_for_head(height);
        serves(&neve, &node, height);
    }
    assert_eq!(node.asked_for_latest() - asked, 10, "five heads, block and receipts");
    assert_eq!(missed(&neve, &node), 0);
}

#[test]
fn older_block_is_asked_for_by_its_number() {
    let head = HEAD + 1;
    for (head, of) in [
        (head, [HEAD, HEAD]),
        (head, [head + 4, head + 4]),
        (head, [head, head + 1]),
        (head, [HEAD, head]),
        (head, [head, EMPTY]),
        (EMPTY, [EMPTY, EMPTY + 1]),
    ] {
        let node = Recorded::start_at(MAIN, head - 1, false);
        let (dir, neve, asked) = follow(&node, head - 1);
        node.change(|state| state.latest = Some(of));
        node.grow(head);
        neve.wait_for_head(head);
        serves(&neve, &node, head);
        assert_eq!(missed(&neve, &node), 1, "{of:?}");
        let metrics = neve.admin().get("/metrics").text();
        assert!(!metrics.contains("neve_blocks_rejected_total{"), "{of:?}");
        assert!(evidence(dir.path()).is_empty(), "{of:?}");
        // For a while it is not tried again.
        node.grow(head + 1);
        neve.wait_for_head(head + 1);
        serves(&neve, &node, head + 1);
        assert_eq!(node.asked_for_latest() - asked, 2, "{of:?}");
    }
}
