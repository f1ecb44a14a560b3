//! Following against a node that goes away, lags, hides behind TLS, or is another one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};

use neve_devnet::{Config, Fault, Helicon};
use serde_json::{Value, json};
use socket2::SockRef;

use crate::support::closed_port::ClosedPort;
use crate::support::corpus::{APRICOT0, FORKS, HELICON, MAIN};
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::recorded::{Recorded, by_rules};
use crate::support::served::{devnet_of, follow};

fn expected(node: &Recorded, height: u64) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}}\n", node.height(height).block)
}

/// Returns the bytes that a connection sends before the first empty line, in small letters.
fn head(stream: TcpStream) -> String {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    head.join("\n").to_lowercase()
}

#[test]
fn an_upstream_is_told_who_asks() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener).set_read_timeout(Some(LIMIT)).unwrap(); // accepting counts as reading
    let (dir, url) = (fresh_dir(), format!("http://{}", listener.local_addr().unwrap()));
    let _neve = Neve::start(dir.path(), &["--upstream", &url]);
    let agent = format!("\nuser-agent: neve/{}", env!("CARGO_PKG_VERSION"));
    // neve does not give up when its upstream does not answer.
    let mut heads = listener.incoming().take(20).map(|stream| head(stream.unwrap()));
    for asks in ["post ", "get /ext/bc/c/ws "] {
        let found = heads.by_ref().find(|head| head.starts_with(asks));
        let found = found.unwrap_or_else(|| panic!("no request begins with {asks}"));
        assert!(found.contains(&agent), "{found}");
    }
}

#[test]
fn without_an_upstream_an_empty_store_misses_and_a_full_one_serves() {
    let dir = fresh_dir();
    let closed = ClosedPort::bind();
    let upstream = closed.url();
    let neve = Neve::start(dir.path(), &["--upstream", &upstream]);
    let mut client = neve.client();
    for method in ["eth_blockNumber", "eth_chainId", "net_version"] {
        let answer = client.call(method, "[]");
        assert_eq!(answer.status, 421, "{method}: {}", answer.text());
        let message =
            "header not found: nothing is served yet; requested data is not available here";
        assert_eq!(answer.json()["error"]["message"], message);
        assert_eq!(answer.json()["error"]["data"], json!({ "firstHeight": null, "head": null }));
        assert_eq!(answer.header("x-neve-served"), None);
    }
    let ready = client.get("/ready");
    assert_eq!(
        (ready.status, ready.json()["reason"].clone()),
        (503, json!("no block is stored yet"))
    );
    let state =
        neve.wait("the error", |health| health["upstream"]["error"].as_str().map(str::to_owned));
    assert!(
        state.contains("cannot reach the upstream") && state.contains("Connection refused"),
        "{state}"
    );
    neve.stop();

    let node = Recorded::start(MAIN);
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(MAIN.head);
    drop(node); // and now it is gone
    neve.wait("the loss", |health| (health["upstream"]["state"] != "following").then_some(()));
    let node = Recorded::start(MAIN);
    let serves = |neve: &Neve| {
        let mut client = neve.client();
        let answer = client.call("eth_getBlockByNumber", "[\"latest\",true]");
        assert_eq!((answer.status, answer.text()), (200, expected(&node, MAIN.head)));
        assert_eq!(client.result("eth_chainId", "[]"), "0xa868");
    };
    serves(&neve);
    neve.stop();
    let neve = Neve::start(dir.path(), &["--upstream", &upstream]);
    serves(&neve);
    let ready = neve.client().get("/ready");
    assert_eq!(
        (ready.status, ready.json()["reason"].clone()),
        (503, json!("the upstream has not answered yet"))
    );
}

#[test]
fn an_upstream_behind_tls_is_followed_if_it_is_trusted() {
    let node = Recorded::start_at(MAIN, 320, false);
    let dir = fresh_dir();
    let authority = dir.path().join("authority.pem");
    fs::write(&authority, &node.tls().authority).unwrap();
    let authority = authority.display().to_string();
    let upstream =
        ["--upstream", &node.tls().https, "--upstream-ws", &node.tls().wss, "--start", "310"];
    let neve = Neve::start(
        &dir.path().join("trusting"),
        &[&upstream[..], &["--upstream-ca", &authority]].concat(),
    );
    neve.wait("the WebSocket", |health| health["upstream"]["websocket"].as_bool()?.then_some(()));
    node.grow(MAIN.head);
    neve.wait_for_head(MAIN.head);
    let neve = Neve::start(&dir.path().join("doubting"), &upstream);
    let error =
        neve.wait("the error", |health| health["upstream"]["error"].as_str().map(str::to_owned));
    assert!(error.contains("invalid peer certificate: UnknownIssuer"), "{error}");
    assert_eq!(neve.health()["blocks"]["head"], Value::Null);
}

#[test]
fn empty_store_begins_at_the_start_setting() {
    let node = Recorded::start(MAIN);
    for (start, first) in
        [("latest", 339), ("-9", 330), ("-100000", 0), ("0", 0), ("0x64", 100), ("339", 339)]
    {
        let dir = fresh_dir();
        let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", start]);
        neve.wait_for_head(MAIN.head);
        assert_eq!(neve.health()["blocks"]["min_height"], first, "--start {start}");
    }
    // A height that is not there yet is waited for.
    let node = Recorded::start_at(MAIN, 100, false);
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "110"]);
    neve.wait("the session", |health| (health["upstream"]["state"] == "following").then_some(()));
    node.grow(120);
    neve.wait_for_head(120);
    assert_eq!(neve.health()["blocks"]["min_height"], 110);
}

/// A Helicon store that begins in the middle proves its first heights too: it asks for the
/// receipts of the few heights before them, which it does not store.
#[test]
fn the_first_heights_of_a_store_are_proven_as_well() {
    let node = Recorded::start(HELICON);
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(HELICON.head);
    assert_eq!(neve.health()["blocks"]["min_height"], 300);
    assert_eq!(neve.count("neve_settlements_unproven_total"), 0);
}

#[test]
fn heads_are_polled_for_where_there_is_no_websocket() {
    let node = Recorded::start_at(MAIN, 300, false);
    let dir = fresh_dir();
    let arguments = [
        "--upstream",
        &node.url(),
        "--start",
        "290",
        "--upstream-ws",
        "none",
        "--upstream-poll-interval",
        "100ms",
    ];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(300);
    node.grow(MAIN.head);
    neve.wait_for_head(MAIN.head);
    assert_eq!(neve.health()["upstream"]["websocket"], false);
}

#[test]
fn a_lagging_neve_is_not_ready() {
    let node = Recorded::start_at(MAIN, 300, false);
    let succeeds = "\"status\":\"0x1\"";
    let false_from =
        (301..=MAIN.head).find(|at| node.height(*at).receipts.contains(succeeds)).unwrap();
    let head = false_from - 1;
    let lie = node.height(false_from).receipts.replacen(succeeds, "\"status\":\"0x0\"", 1);
    node.change(|state| drop(state.lies.insert(false_from, lie)));
    let dir = fresh_dir();
    let arguments = ["--upstream", &node.url(), "--start", "290", "--ready-lag-max", "5"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(300);
    assert_eq!(neve.client().get("/ready").status, 200);
    // Heads are announced, but a block among them is false: the fifth is within the bound.
    node.grow(head + 5);
    neve.wait("lag 5", |health| (health["blocks"]["lag"] == 5).then_some(()));
    assert_eq!(neve.client().get("/ready").status, 200);
    node.grow(head + 6);
    neve.wait("lag 6", |health| (health["blocks"]["lag"] == 6).then_some(()));
    let ready = neve.client().get("/ready");
    let reason = "6 blocks behind the upstream, allowed are 5";
    assert_eq!((ready.status, ready.json()["reason"].clone()), (503, json!(reason)));
    neve.wait_for_log("upstream data rejected");
    let rejected = || neve.count("neve_blocks_rejected_total{reason=\"receipts_root\"}");
    neve.wait("its count", |_| (rejected() >= 1).then_some(()));
    node.change(|state| state.lies.clear());
    neve.wait_for_head(head + 6);
    assert_eq!(neve.client().get("/ready").status, 200);
}

#[test]
fn an_upstream_of_another_chain_is_refused_and_named() {
    let node = Recorded::start(MAIN);
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "330"]);
    neve.wait_for_head(MAIN.head);
    neve.stop();
    let other = Recorded::start(APRICOT0);
    let neve = Neve::start(dir.path(), &["--upstream", &other.url()]);
    let error = neve.wait("the refusal", |health| {
        (health["upstream"]["state"] == "wrong_chain")
            .then(|| health["upstream"]["error"].to_string())
    });
    for hash in [node.height(0).hash, other.height(0).hash] {
        assert!(error.contains(&format!("chain 43112 with genesis {hash}")), "{error}");
    }
    assert_eq!(neve.health()["blocks"]["head"], MAIN.head);
    let ready = neve.client().get("/ready");
    assert_eq!(
        (ready.status, ready.json()["reason"].clone()),
        (503, json!("following has stopped: wrong_chain"))
    );
    neve.stop();
    // The same with an empty store and a network that is named: nothing is stored.
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--network", "mainnet"]);
    let error = neve.wait("the refusal", |health| {
        (health["upstream"]["state"] == "wrong_chain")
            .then(|| health["upstream"]["error"].to_string())
    });
    assert!(error.contains("but chain 43114 with genesis 0x31ced5b9beb7f878"), "{error}");
    assert_eq!(neve.client().call("eth_chainId", "[]").status, 421);
}

/// Same genesis, other blocks: what is proven is not given up for an upstream that differs.
#[test]
fn an_upstream_with_another_history_is_refused() {
    // The recordings of v1.14.2 and v1.15.0 share their genesis block and nothing else.
    let node = Recorded::start(MAIN);
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(MAIN.head);
    neve.stop();
    let other = Recorded::start(HELICON);
    assert_eq!(node.height(0).hash, other.height(0).hash);
    let neve = Neve::start(dir.path(), &["--upstream", &other.url()]);
    let error = neve.wait("the refusal", |health| {
        (health["upstream"]["state"] == "disagrees")
            .then(|| health["upstream"]["error"].to_string())
    });
    let theirs = format!("at height 339 the upstream has block {}", other.height(339).hash);
    assert!(error.contains(&theirs) && error.contains("use another data directory"), "{error}");
    assert_eq!(neve.health()["blocks"]["head"], MAIN.head);
}

/// An upstream that is behind the store is waited for.
#[test]
fn an_upstream_that_is_behind_catches_up() {
    let dir = fresh_dir();
    let node = Recorded::start_at(FORKS, 250, false);
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "200"]);
    neve.wait_for_head(250);
    neve.stop();
    let node = Recorded::start_at(FORKS, 240, false);
    let neve = Neve::start(dir.path(), &["--upstream", &node.url()]);
    neve.wait("the session", |health| (health["upstream"]["state"] == "following").then_some(()));
    assert_eq!(neve.client().result("eth_blockNumber", "[]"), "0xfa");
    node.grow(FORKS.head);
    neve.wait_for_head(FORKS.head);
}

#[test]
fn a_full_disk_stops_storing_and_not_serving() {
    let node = Recorded::start_at(MAIN, 100, false);
    let dir = fresh_dir();
    let upstream = ["--upstream", &node.url(), "--segment-blocks", "16", "--start", "0"];
    let neve = Neve::start(dir.path(), &upstream);
    neve.wait_for_head(100);
    neve.stop();
    let store = dir.path().join("store").display().to_string();
    let start = |reserve: &str| {
        let fixed = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            &store,
            "--disk-reserve-bytes",
            reserve,
        ];
        Neve::spawn(dir.path(), &[&fixed, &upstream[..]].concat())
    };
    let neve = start("1000TiB");
    // It was near the upstream once: after that a lag is a matter of /ready.
    assert_eq!(neve.client().result("eth_blockNumber", "[]"), "0x64");
    node.grow(200);
    let error =
        neve.wait("the full disk", |health| health["storage"]["error"].as_str().map(str::to_owned));
    assert!(error.starts_with(&format!("disk nearly full at {store}: ")), "{error}");
    assert!(error.ends_with("free some space or lower --retain-bytes or --retain-age"), "{error}");
    // The active segment had room for heights up to 111.
    assert_eq!(neve.client().result("eth_blockNumber", "[]"), "0x6f");
    let expected = by_rules(&node.height(0x6f).block, 0x6f, false);
    assert!(
        neve.client().call("eth_getBlockByNumber", "[\"latest\",true]").text().contains(&expected)
    );
    assert_eq!(neve.metric("neve_store_writable"), Some(0.0));
    neve.stop_in_time();
    let neve = start("1MiB");
    neve.wait_for_head(200);
}

/// The node's answers to these name its head, or its next header's base fee.
#[test]
fn calls_that_depend_on_the_newest_head_are_misses_while_the_upstream_is_ahead() {
    let before = [
        ("eth_getLogs", r#"[{"fromBlock":"0x1000"}]"#),
        ("eth_feeHistory", r#"["0x1","0x1000",[]]"#),
    ];
    let since = [("eth_feeHistory", r#"["0x1","0x14",[]]"#)];
    for (helicon, calls) in [(Helicon::Never, &before[..]), (Helicon::FromGenesis, &since)] {
        let devnet = devnet_of(Config::test().with_head(20).with_helicon(helicon));
        let (_dir, neve) = follow(&devnet, &[]);
        let statuses = || {
            let status =
                |(method, params): &(&str, &str)| neve.client().call(method, params).status;
            calls.iter().map(status).collect::<Vec<_>>()
        };
        assert!(statuses().iter().all(|status| *status == 200));
        let fault = devnet.faults().inject(Fault::NullBlock.at(21));
        devnet.advance(2);
        neve.wait("lag 2", |health| (health["blocks"]["lag"] == 2).then_some(()));
        assert!(statuses().iter().all(|status| *status == 421));
        // What the newest head does not change is served.
        assert_eq!(neve.client().call("eth_feeHistory", r#"["0x1","0x13",[]]"#).status, 200);
        fault.clear();
        neve.wait_for_head(22);
        assert!(statuses().iter().all(|status| *status == 200));
    }
}
