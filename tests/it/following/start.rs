//! The head after a start: that of the last run until it is near the upstream's.

use neve_devnet::Fault;

use crate::support::closed_port::ClosedPort;
use crate::support::neve::Neve;
use crate::support::served::{devnet, follow};

const LATEST: [(&str, &str); 3] = [
    ("eth_blockNumber", "[]"),
    ("eth_getBlockByNumber", r#"["latest",false]"#),
    ("eth_newBlockFilter", "[]"),
];

#[test]
fn head_of_the_last_run_is_a_miss_until_it_is_near_the_upstream() {
    let node = devnet(5);
    let (dir, neve) = follow(&node, &[]);
    neve.stop_in_time();
    node.advance(100);
    // It cannot catch up yet.
    let stall = node.faults().inject(Fault::Stall.on("eth_getBlockReceipts"));
    let url = node.base_url();
    let neve = Neve::start(dir.path(), &["--upstream", &url, "--start", "0"]);
    for (method, params) in LATEST {
        let missed = neve.client().call(method, params);
        assert_eq!(missed.status, 421, "{method}: {}", missed.text());
        assert!(missed.text().contains("neve is catching up"), "{}", missed.text());
    }
    let caught = "neve_rpc_misses_total{method=\"eth_blockNumber\",reason=\"catching_up\"}";
    neve.wait_for_count(caught, 1);
    let old = neve.client().call("eth_getBlockByNumber", r#"["0x5",false]"#);
    assert_eq!(old.status, 200, "{}", old.text());
    stall.clear();
    neve.wait_for_head(105);
    neve.wait("the head", |_| {
        let served = |(method, params)| neve.client().call(method, params).status == 200;
        LATEST.into_iter().all(served).then_some(())
    });
    // Once is enough: a chain that runs ahead later is a matter of /ready.
    let stall = node.faults().inject(Fault::Stall.on("eth_getBlockReceipts"));
    node.advance(50);
    neve.wait("lag", |health| (health["blocks"]["lag"].as_u64()? >= 20).then_some(()));
    assert_eq!(neve.client().call("eth_blockNumber", "[]").status, 200);
    stall.clear();
}

/// Upstreams of which one has failed, and the other one is slow.
#[test]
fn head_of_the_last_run_is_a_miss_until_an_upstream_said_its_head() {
    let node = devnet(5);
    let (dir, neve) = follow(&node, &[]);
    neve.stop_in_time();
    let stall = node.faults().inject(Fault::Stall.on("eth_chainId"));
    let (closed, url) = (ClosedPort::bind(), node.base_url());
    let slow =
        ["--upstream", &closed.url(), "--upstream", &url, "--upstream-request-timeout", "10m"];
    let neve = Neve::start(dir.path(), &slow);
    for (method, params) in LATEST {
        let missed = neve.client().call(method, params);
        assert_eq!(missed.status, 421, "{method}: {}", missed.text());
        assert!(missed.text().contains("neve is catching up"), "{}", missed.text());
    }
    let old = neve.client().call("eth_getBlockByNumber", r#"["0x5",false]"#);
    assert_eq!(old.status, 200, "{}", old.text());
    stall.clear();
    neve.wait("the head", |_| {
        (neve.client().call("eth_blockNumber", "[]").status == 200).then_some(())
    });
}

#[test]
fn head_of_the_last_run_is_served_if_no_upstream_answers() {
    let node = devnet(5);
    let (dir, neve) = follow(&node, &[]);
    neve.stop_in_time();
    let url = node.base_url();
    drop(node);
    let neve = Neve::start(dir.path(), &["--upstream", &url]);
    // Nothing has said what is settled, and an alert on unsettled heights has nothing to hold for.
    let blocks = &neve.health()["blocks"];
    assert!(blocks["unsettled"].is_null() && blocks["head"] == 5, "{blocks}");
    assert_eq!(neve.metric("neve_unsettled_heights"), None);
    neve.wait("the head", |_| {
        neve.client().call("eth_blockNumber", "[]").text().contains("\"0x5\"").then_some(())
    });
}
