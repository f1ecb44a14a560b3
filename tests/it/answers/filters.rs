//! Filters as a node keeps them: a recorded transcript, replayed while the chain grows.

use std::collections::HashMap;

use serde_json::Value;

use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;
use crate::support::ws::Ws;

/// The heads before, between and after the rounds of the transcript.
const HEADS: [u64; 3] = [334, 336, 339];

struct Row {
    name: String,
    request: String,
    answer: String,
}

fn rows() -> Vec<Row> {
    let row = |line: String| {
        let row: Value = serde_json::from_str(&line).expect("a row is JSON");
        let text = |key: &str| row[key].as_str().expect("a text").to_owned();
        Row { name: text("name"), request: text("request"), answer: text("answer") }
    };
    MAIN.lines("filters").map(row).collect()
}

/// The round of a row: `changes/1/tok` is of the second.
fn round(name: &str) -> usize {
    let round = name.split('/').nth(1).and_then(|round| round.chars().next());
    let round = round
        .and_then(|digit| digit.to_digit(10))
        .filter(|_| name.starts_with("changes/") || name.starts_with("logs/"));
    round.unwrap_or(0) as usize
}

fn id_of(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    answer["result"].as_str().filter(|id| id.starts_with("0x")).map(str::to_owned)
}

/// neve has no pool: its filters are not there.
fn is_of_the_pool(row: &Row) -> bool {
    row.name.contains("pending") && !row.name.contains("pendingtag")
        || row.request.contains("eth_newPendingTransactionFilter") && id_of(&row.answer).is_some()
}

#[test]
fn a_recorded_transcript() {
    let (node, dir) = (Recorded::start_at(MAIN, HEADS[0], false), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "0"]);
    neve.wait_for_head(HEADS[0]);
    let (mut at, mut compared, mut refused) = (0, 0, 0);
    let mut ids: HashMap<String, String> = HashMap::new();
    let mut at_node = Vec::new();
    for row in rows() {
        if round(&row.name) > at {
            at = round(&row.name);
            node.grow(HEADS[at]);
            neve.wait_for_head(HEADS[at]);
        }
        let mut request = row.request.clone();
        for (theirs, ours) in &ids {
            request = request.replace(theirs, ours);
        }
        let found = neve.client().post(&request);
        if is_of_the_pool(&row) {
            let refused = found.status == 421 || found.text().contains("filter not found");
            assert!(refused, "{}: {}", row.name, found.text());
            continue;
        }
        if found.status == 421 {
            // Ids that no neve made may be a node's.
            let made_up = !ids.values().any(|ours| request.contains(ours.as_str()));
            let gone = row.answer.contains("filter not found") || row.answer.contains("false");
            let elsewhere = at_node.iter().any(|id: &String| row.request.contains(id.as_str()));
            let unknown_block = row.name == "new/bad/hash";
            let expected = made_up && (gone || elsewhere || unknown_block);
            assert!(expected, "{}: {} {}", row.name, row.answer, found.text());
            at_node.extend(id_of(&row.answer));
            refused += 1;
            continue;
        }
        let found = found.text();
        match (id_of(&row.answer), id_of(&found)) {
            (Some(theirs), Some(ours)) => {
                let shape = |id: &str| (3..=34).contains(&id.len()) && !id.starts_with("0x0");
                assert!(shape(&ours), "{ours}");
                assert_eq!(found, row.answer.replace(&theirs, &ours), "{}", row.name);
                ids.insert(theirs, ours);
            }
            _ => assert_eq!(found, row.answer, "{}: {}", row.name, row.request),
        }
        compared += 1;
    }
    assert!(compared >= 100 && refused > 0 && at == 2, "{compared} {refused}");
}

/// A filter hears of each height once, however many come at a time.
#[test]
fn changes_come_once_and_in_order() {
    let (node, dir) = (Recorded::start_at(MAIN, 100, false), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "90"]);
    neve.wait_for_head(100);
    let mut client = neve.client();
    let blocks = client.result("eth_newBlockFilter", "[]").to_string();
    let logs = client.result("eth_newFilter", "[{}]").to_string();
    let (mut hashes, mut all_logs) = (Vec::new(), Vec::new());
    for head in [101, 102, 150, 150, 151, 339] {
        node.grow(head);
        neve.wait_for_head(head);
        let list = |value: Value| value.as_array().unwrap().clone();
        hashes.extend(list(client.result("eth_getFilterChanges", &format!("[{blocks}]"))));
        all_logs.extend(list(client.result("eth_getFilterChanges", &format!("[{logs}]"))));
    }
    let expected: Vec<_> = (101..=339).map(|at| Value::String(node.height(at).hash)).collect();
    assert_eq!(hashes, expected);
    let range = "[{\"fromBlock\":\"0x65\",\"toBlock\":\"0x153\"}]";
    assert_eq!(Value::Array(all_logs), client.result("eth_getLogs", range));
}

/// An error for all of them would come again, with ever more logs.
#[test]
fn changes_that_are_too_long_come_in_several_responses() {
    let (node, dir) = (Recorded::start_at(MAIN, 100, false), fresh_dir());
    let bounds = ["--start", "90", "--logs-bytes-max", "200kB"];
    let neve = Neve::start(dir.path(), &[&["--upstream", &node.url()], &bounds[..]].concat());
    neve.wait_for_head(100);
    let mut client = neve.client();
    let filter = client.result("eth_newFilter", "[{}]").to_string();
    node.grow(339);
    neve.wait_for_head(339);
    let mut found = Vec::new();
    let mut responses = 0;
    loop {
        let changes = client.result("eth_getFilterChanges", &format!("[{filter}]"));
        let changes = changes.as_array().expect("a list").clone();
        if changes.is_empty() {
            break;
        }
        let height = |log: &Value| log["blockNumber"].clone();
        assert_ne!(found.last().map(height), changes.first().map(height), "whole heights");
        found.extend(changes);
        responses += 1;
    }
    assert!(responses > 5, "{responses}");
    let logs = (101..=339).flat_map(|height: u64| {
        let range = format!("[{{\"fromBlock\":\"{height:#x}\",\"toBlock\":\"{height:#x}\"}}]");
        client.result("eth_getLogs", &range).as_array().expect("a list").clone()
    });
    assert_eq!(found, logs.collect::<Vec<_>>());
}

#[test]
fn block_with_too_many_logs_for_a_response_is_named() {
    let (node, dir) = (Recorded::start_at(MAIN, 100, false), fresh_dir());
    let bounds = ["--start", "90", "--logs-bytes-max", "500B"];
    let neve = Neve::start(dir.path(), &[&["--upstream", &node.url()], &bounds[..]].concat());
    neve.wait_for_head(100);
    let filter = neve.client().result("eth_newFilter", "[{}]").to_string();
    node.grow(339);
    neve.wait_for_head(339);
    let poll = || neve.client().call("eth_getFilterChanges", &format!("[{filter}]")).text();
    let error = std::iter::repeat_with(poll).take(240).find(|text| text.contains("-32005"));
    let error = error.expect("a block has several logs");
    let advice = "are longer than 500 bytes; open a filter of fewer addresses and topics";
    assert!(error.contains("the logs of block 0x") && error.contains(advice), "{error}");
    assert_eq!(poll(), error);
}

/// The node executes a notification and drops its answer.
#[test]
fn notifications_change_filters_as_calls_do() {
    let (node, dir) = (Recorded::start_at(MAIN, 100, false), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "90"]);
    neve.wait_for_head(100);
    let mut client = neve.client();
    let filter = client.result("eth_newBlockFilter", "[]").to_string();
    node.grow(102);
    neve.wait_for_head(102);
    let notification = |method: &str, id: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":[{id}]}}"#)
    };
    let changes = notification("eth_getFilterChanges", &filter);
    let call = changes.replace('{', r#"{"id":1,"#);
    let told = client.post(&format!("[{changes},{call}]")).text();
    assert_eq!(told, "[{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[]}]\n");
    let removed = client.post(&notification("eth_uninstallFilter", &filter));
    assert_eq!((removed.status, removed.text().as_str()), (200, ""));
    assert!(client.post(&call).text().contains("filter not found"));
    // A node may know it.
    assert_eq!(client.post(&notification("eth_uninstallFilter", "\"0x1234\"")).status, 421);
}

/// A batch that is refused is asked of a full node, which does not know the filter: what it would have been
/// told comes with the next question, and what it made and removed is as before.
#[test]
fn a_refused_batch_costs_no_changes() {
    let (node, dir) = (Recorded::start_at(MAIN, 100, false), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "90"]);
    neve.wait_for_head(100);
    let mut client = neve.client();
    let [told, removed] = [(); 2].map(|()| client.result("eth_newBlockFilter", "[]").to_string());
    node.grow(103);
    neve.wait_for_head(103);
    let call = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[{params}]}}"#)
    };
    let calls = [
        call("eth_getFilterChanges", &told),
        call("eth_uninstallFilter", &removed),
        call("eth_getBlockByNumber", "\"0x1\",false"),
    ];
    let answer = client.post(&format!("[{}]", calls.join(",")));
    assert_eq!(answer.status, 421, "{}", answer.text());
    let expected: Value = (101..=103).map(|at| Value::String(node.height(at).hash)).collect();
    for id in [told, removed] {
        assert_eq!(client.result("eth_getFilterChanges", &format!("[{id}]")), expected);
        assert_eq!(client.result("eth_getFilterChanges", &format!("[{id}]")), Value::Array(vec![]));
    }
}

/// Evicted heights end a filter that has not reported them, as if it had timed out.
#[test]
fn eviction_ends_a_filter_that_has_not_told_the_height() {
    let (node, dir) = (Recorded::start_at(MAIN, 100, false), fresh_dir());
    let url = node.url();
    let bounds = ["--retain-blocks", "20", "--segment-blocks", "10"];
    let arguments = [&["--upstream", &url, "--start", "90"][..], &bounds].concat();
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(100);
    let id = neve.client().result("eth_newBlockFilter", "[]").to_string();
    node.grow(339);
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64()? > 101).then_some(())
    });
    let answer = neve.client().call("eth_getFilterChanges", &format!("[{id}]")).text();
    assert!(answer.contains("\"code\":-32000,\"message\":\"filter not found\""), "{answer}");
}

fn id_param(id: &str) -> String {
    format!("[\"{id}\"]")
}

const BY_ID: [&str; 3] = ["eth_getFilterChanges", "eth_getFilterLogs", "eth_uninstallFilter"];

/// A node may have the filter: a router asks it. An id that neve made is the node's error, and stays so
/// over a restart.
#[test]
fn filter_that_neve_never_made_is_a_miss_and_one_that_is_gone_is_not_found() {
    let (node, dir) = (Recorded::start_at(MAIN, 100, false), fresh_dir());
    let arguments = ["--upstream", &node.url(), "--start", "90"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(100);
    let id = neve.client().result("eth_newFilter", "[{}]").as_str().unwrap().to_owned();
    for method in BY_ID {
        for foreign in ["0x1", "0x6ca4b1a7ac6d3df2a3c5b5c7d3f1e9b0"] {
            let answer = neve.client().call(method, &id_param(foreign));
            assert_eq!(answer.status, 421, "{method}: {}", answer.text());
            assert!(answer.text().contains("header not found: the filter was not made here"));
        }
    }
    let closed = neve.client().result("eth_uninstallFilter", &id_param(&id));
    assert_eq!(closed, Value::Bool(true));
    let gone = |neve: &Neve| {
        for method in ["eth_getFilterChanges", "eth_getFilterLogs"] {
            let answer = neve.client().call(method, &id_param(&id));
            assert_eq!(answer.status, 200, "{method}");
            assert!(answer.text().contains("filter not found"), "{method}: {}", answer.text());
        }
        let closed = neve.client().result("eth_uninstallFilter", &id_param(&id));
        assert_eq!(closed, Value::Bool(false));
    };
    gone(&neve);
    neve.stop();
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(100);
    gone(&neve);
}

/// Opens the filter at the full node: its logs would be misses, and the node does not know neve's id.
#[test]
fn filter_below_the_served_range_is_a_miss_when_it_is_made() {
    let (node, dir) = (Recorded::start_at(MAIN, 100, false), fresh_dir());
    let bounds = ["--retain-blocks", "20", "--segment-blocks", "10"];
    let url = node.url();
    let neve =
        Neve::start(dir.path(), &[&["--upstream", &url, "--start", "90"][..], &bounds].concat());
    neve.wait_for_head(100);
    let new = |criteria: &str| neve.client().call("eth_newFilter", &format!("[{{{criteria}}}]"));
    let hash = node.height(95).hash;
    let unknown = "0x".to_owned() + &"12".repeat(32);
    for (criteria, status) in [
        (r#""fromBlock":"0x59""#.to_owned(), 421),
        (r#""fromBlock":"earliest""#.to_owned(), 421),
        (r#""fromBlock":"0x1","toBlock":"0x2""#.to_owned(), 421),
        (r#""fromBlock":"0x5a""#.to_owned(), 200),
        (r#""fromBlock":"0x5a","toBlock":"0x200""#.to_owned(), 200),
        (String::new(), 200),
        (format!("\"blockHash\":\"{hash}\""), 200),
        (format!("\"blockHash\":\"{unknown}\""), 421),
    ] {
        let answer = new(&criteria);
        assert_eq!(answer.status, status, "{criteria}: {}", answer.text());
        if let Some(id) = id_of(&answer.text()) {
            let logs = neve.client().call("eth_getFilterLogs", &id_param(&id));
            assert_eq!(logs.status, 200, "{criteria}: {}", logs.text());
        }
    }
    // After eviction the caller begins anew, which is a miss then.
    let id = id_of(&new(r#""fromBlock":"0x5a""#).text()).unwrap();
    node.grow(339);
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64()? > 0x5a).then_some(())
    });
    let logs = neve.client().call("eth_getFilterLogs", &id_param(&id));
    assert!(logs.status == 200 && logs.text().contains("filter not found"), "{}", logs.text());
    assert_eq!(new(r#""fromBlock":"0x5a""#).status, 421);
}

#[test]
fn logs_of_an_unknown_block_are_a_miss_wherever_the_store_begins() {
    let node = Recorded::start(MAIN);
    for start in ["0", "300"] {
        let dir = fresh_dir();
        let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", start]);
        neve.wait_for_head(MAIN.head);
        let unknown = format!("[{{\"blockHash\":\"0x{}\"}}]", "12".repeat(32));
        let answer = neve.client().call("eth_getLogs", &unknown);
        assert_eq!(answer.status, 421, "{start}: {}", answer.text());
    }
}

#[test]
fn address_that_has_its_share_of_filters_leaves_the_others_theirs() {
    let (node, dir) = (Recorded::start_at(MAIN, 20, false), fresh_dir());
    let arguments = ["--upstream", &node.url(), "--start", "0", "--filters-max", "8"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(20);
    let mut client = neve.client();
    let mut open = || client.call("eth_newBlockFilter", "[]").text();
    for _ in 0..2 {
        assert!(id_of(&open()).is_some());
    }
    let refused = open();
    assert!(refused.contains("too many filters"), "{refused}");
    let mut other = Ws::open_from(&neve, [127, 0, 0, 2]);
    for _ in 0..2 {
        assert!(id_of(&other.call("eth_newBlockFilter", "[]")).is_some());
    }
    let refused = other.call("eth_newBlockFilter", "[]");
    assert!(refused.contains("too many filters"), "{refused}");
}
