//! Errors of neve as ready-made routers read them. The rules are those of eRPC (commit 2f9ecef,
//! `architecture/evm`) and of nodecore (commit 0e75ced), as far as they look at a miss: in order, by words of the
//! message and its data.

use serde_json::Value;

use crate::support::client::Response;
use crate::support::served::recorded_from_100;

/// Meaning of an error for a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Another upstream may have it: the call goes on.
    MissingData,
    /// The upstream does not have this method, for ever.
    Unsupported,
    /// The client is to blame: no other upstream is asked.
    Client,
    /// Another limit, or a failure of the upstream.
    Other,
}

/// Words by which eRPC tells that a call asks for too much, or too often. It looks for them first.
const LIMITS: [&str; 13] = [
    "range too large",
    "exceeds the range",
    "max block range",
    "limited to",
    "returned more than",
    "exceeds max results",
    "response too large",
    "query exceeds limit",
    "has exceeded",
    "Too many requests",
    "Too Many Requests",
    "rate limited",
    "reached the quota",
];

/// Words by which eRPC tells that an upstream lacks data.
const MISSING: [&str; 12] = [
    "missing trie node",
    "header not found",
    "could not find block",
    "unknown block",
    "Unknown block",
    "block not found",
    "Block not found",
    "cannot query unfinalized",
    "height is not available",
    "transaction not found",
    "after last accepted block",
    "requested data is not available",
];

/// Words by which nodecore asks another upstream.
const NODECORE: [&str; 3] = ["header not found", "pruned", "history has been pruned"];

fn has(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// The order of eRPC's normalizer.
fn erpc(status: u16, error: &Value) -> Meaning {
    let words = error["message"].as_str().unwrap_or_default();
    let text = format!("{words} Data: {}", error["data"]);
    if status == 429 || has(&text, &LIMITS) {
        return Meaning::Other;
    }
    if has(words, &MISSING) {
        return Meaning::MissingData;
    }
    if has(&text, &["Unsupported method", "not supported", "method is not whitelisted"]) {
        return Meaning::Unsupported;
    }
    if has(&text, &["not found", "does not exist", "not available", "is disabled"]) {
        let about_method = has(&text, &["Method", "method", "Module", "module"]);
        return if about_method { Meaning::Unsupported } else { Meaning::Client };
    }
    match error["code"].as_i64() {
        Some(-32602 | -32600) => Meaning::Client,
        Some(-32004 | -32001) => Meaning::Unsupported,
        _ => Meaning::Other,
    }
}

fn errors(answer: &Response) -> Vec<Value> {
    match answer.json() {
        Value::Array(all) => all.iter().filter_map(|one| one.get("error").cloned()).collect(),
        one => one.get("error").cloned().into_iter().collect(),
    }
}

#[test]
fn miss_of_a_served_method_and_of_another_one_send_a_router_to_another_upstream() {
    let hash = "ab".repeat(32);
    let calls = [
        // Served methods whose data neve does not have.
        ("eth_getBlockByNumber", r#"["0x63",false]"#.to_owned()),
        ("eth_getHeaderByNumber", r#"["0x154"]"#.to_owned()),
        ("eth_getTransactionReceipt", format!(r#"["0x{hash}"]"#)),
        ("eth_getLogs", r#"[{"fromBlock":"0x1","toBlock":"0x2"}]"#.to_owned()),
        ("eth_getFilterChanges", r#"["0x1"]"#.to_owned()),
        // Methods of a node that neve does not serve.
        ("eth_getBalance", r#"["0x0000000000000000000000000000000000000001","latest"]"#.to_owned()),
        ("eth_call", r#"[{},"latest"]"#.to_owned()),
        ("eth_sendRawTransaction", format!(r#"["0x02{}"]"#, "00".repeat(31))),
        ("debug_traceTransaction", format!(r#"["0x{hash}"]"#)),
        ("txpool_status", "[]".to_owned()),
        ("eth_gasPrice", "[]".to_owned()),
    ];
    for status in ["421", "200", "404"] {
        let (_node, neve, _dir) = recorded_from_100(&["--miss-status", status]);
        let mut client = neve.client();
        for (method, params) in &calls {
            let answer = client.call(method, params);
            let all = errors(&answer);
            assert_eq!(all.len(), 1, "{method}: {}", answer.text());
            assert_eq!(erpc(answer.status, &all[0]), Meaning::MissingData, "{method}: {}", all[0]);
            let words = all[0]["message"].as_str().unwrap_or_default();
            assert!(has(words, &NODECORE), "{method}: {words}");
        }
        let call = |id: usize, (method, params): &(&str, String)| {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
        };
        let batch: Vec<_> = calls.iter().enumerate().map(|(id, one)| call(id, one)).collect();
        let answer = client.post(&format!("[{}]", batch.join(",")));
        let all = errors(&answer);
        assert_eq!(all.len(), calls.len());
        for error in all {
            assert_eq!(erpc(answer.status, &error), Meaning::MissingData, "{error}");
        }
        // A method that no node has, and wrong parameters, are no misses.
        let unknown = client.call("eth_unheardOf", "[]");
        assert_eq!(erpc(unknown.status, &errors(&unknown)[0]), Meaning::Unsupported);
        let wrong = client.call("eth_getBlockByNumber", r#"["x",false]"#);
        assert_eq!(erpc(wrong.status, &errors(&wrong)[0]), Meaning::Client, "{}", wrong.text());
    }
}
