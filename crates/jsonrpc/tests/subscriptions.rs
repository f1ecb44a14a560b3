//! Subscriptions against recordings, and neve's own: to resume.

use std::collections::HashMap;

use neve_jsonrpc::{
    LogBound, LogRange, Message, NoQuery, Request, RpcError, Rules, Subscription, envelope, parse,
};
use serde_json::Value;

use crate::recorded;

/// The calls of the connections that subscribe, each with its answer. Calls on a connection were
/// made one after the other; ids are not unique, so an answer is that to the last call.
fn exchanges(version: &str) -> Vec<(String, String)> {
    let mut last: HashMap<String, String> = HashMap::new();
    let mut exchanges = Vec::new();
    for frame in recorded::lines(&format!("tests/data/{version}/ws_rpc.jsonl.gz")) {
        let text = |key: &str| frame[key].as_str().unwrap().to_owned();
        let (connection, text) = (text("conn"), text("text"));
        if frame["dir"] == "send" {
            last.insert(connection, text);
        } else if let Some(call) = last.remove(&connection) {
            exchanges.push((call, text));
        }
    }
    exchanges
}

fn subscription(call: &str, rules: Rules) -> Result<Option<Subscription>, NoQuery> {
    let Request::Single(message) = parse(call.as_bytes()) else { panic!("{call}") };
    message.subscription(rules)
}

fn spelt(message: &Message<'_>, error: &RpcError) -> String {
    let mut out = Vec::new();
    envelope::error(&mut out, message.id(), error);
    String::from_utf8(out).unwrap() + "\n"
}

#[test]
fn recorded_subscriptions() {
    for (version, rules) in [("v1.14.2", Rules::BeforeHelicon), ("v1.15.0", Rules::Helicon)] {
        let mut errors = 0;
        for (call, answer) in exchanges(version) {
            let Request::Single(message) = parse(call.as_bytes()) else { continue };
            let Some(ours) = message.subscription(rules).transpose() else { continue };
            match ours {
                Err(NoQuery::Error(error)) => {
                    assert_eq!(spelt(&message, &error), answer, "{call}");
                    errors += 1;
                }
                Err(NoQuery::NotServed) => assert!(is_not_served(&call), "{call}"),
                Ok(Subscription::Unsubscribe(id)) => {
                    let known = answer.contains(r#""result":true"#);
                    let unknown = spelt(&message, &RpcError::SUBSCRIPTION_NOT_FOUND);
                    assert!(known || answer == unknown, "{id}: {answer}");
                }
                Ok(_) => {
                    let id = serde_json::from_str::<Value>(&answer).unwrap()["result"].clone();
                    assert!(id.as_str().is_some_and(|id| id.starts_with("0x")), "{call} {answer}");
                }
                Err(NoQuery::Null) => panic!("{call}"),
            }
        }
        assert!(errors >= 20, "{version}: {errors} errors only");
    }
}

fn is_not_served(call: &str) -> bool {
    ["newPendingTransactions", "newAcceptedTransactions", "traceChain"]
        .iter()
        .any(|name| call.contains(name))
}

fn subscribe(params: &str) -> Result<Option<Subscription>, NoQuery> {
    let call = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":{params}}}"#);
    let (before, since) =
        (subscription(&call, Rules::BeforeHelicon), subscription(&call, Rules::Helicon));
    assert_eq!(before, since, "{params}");
    since
}

#[test]
fn heads_resume_from_a_number() {
    let heads = |from_block| Ok(Some(Subscription::NewHeads { from_block }));
    assert_eq!(subscribe(r#"["newHeads"]"#), heads(None));
    assert_eq!(subscribe(r#"["newHeads",{"fromBlock":"0x10"}]"#), heads(Some(16)));
    assert_eq!(subscribe(r#"["newHeads",{"fromBlock":"0x0","x":1}]"#), heads(Some(0)));
    let refused = [
        (r#"["newHeads",null]"#, "too many arguments, want at most 1"),
        (r#"["newHeads",{"from":"0x1"}]"#, "too many arguments, want at most 1"),
        (r#"["newHeads",{"fromBlock":"0x1"},1]"#, "too many arguments, want at most 2"),
        (r#"["newHeads",{"fromBlock":1}]"#, "invalid argument 1: hex string without 0x prefix"),
        (
            r#"["newHeads",{"fromBlock":"latest"}]"#,
            "invalid argument 1: fromBlock must be a number",
        ),
    ];
    for (params, message) in refused {
        let error = RpcError { code: -32602, message: message.into() };
        assert_eq!(subscribe(params), Err(NoQuery::Error(error)), "{params}");
    }
}

/// A node looks at the text before the first `_` and behind the last. neve would repeat such a name of
/// any length, so only the whole name of a method is one.
#[test]
fn name_with_more_between_namespace_and_subscribe_is_not_served() {
    for params in [r#"["newHeads"]"#, r#"["logs",{}]"#, r#"["newPendingTransactions",7]"#] {
        let call =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_x_subscribe","params":{params}}}"#);
        for rules in [Rules::BeforeHelicon, Rules::Helicon] {
            assert_eq!(subscription(&call, rules), Err(NoQuery::NotServed), "{params}");
        }
    }
}

#[test]
fn logs_resume_from_a_number() {
    let resumed = [
        ("{}", None),
        (r#"{"fromBlock":"0x10"}"#, Some(16)),
        (r#"{"fromBlock":"0x10","toBlock":"0x20"}"#, Some(16)),
        (r#"{"fromBlock":"0x1"}"#, Some(1)),
        (r#"{"fromBlock":"0x0"}"#, None),
        (r#"{"fromBlock":"earliest"}"#, None),
        (r#"{"fromBlock":"latest","toBlock":"pending"}"#, None),
    ];
    for (object, expected) in resumed {
        match subscribe(&format!(r#"["logs",{object}]"#)) {
            Ok(Some(Subscription::Logs { query, from_block })) => {
                assert_eq!(from_block, expected, "{object}");
                let bound =
                    matches!(query.range, LogRange::Range { from: LogBound::Number(_), .. });
                assert!(bound || expected.is_none(), "{object}");
            }
            other => panic!("{object}: {other:?}"),
        }
    }
}

#[test]
fn other_methods_are_left_to_query() {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;
    assert_eq!(subscription(call, Rules::Helicon), Ok(None));
}

/// libevm opens a subscription of pending logs for it, which an SAE node never feeds; coreth takes all new logs.
#[test]
fn pending_to_pending_is_for_a_node_since_helicon() {
    let object = r#"{"fromBlock":"pending","toBlock":"pending"}"#;
    for method in ["eth_newFilter", "eth_subscribe"] {
        let name = if method == "eth_subscribe" { r#""logs","# } else { "" };
        let call =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[{name}{object}]}}"#);
        let Request::Single(message) = parse(call.as_bytes()) else { panic!("{call}") };
        let refused = |rules| match method {
            "eth_subscribe" => message.subscription(rules).err(),
            _ => message.query(rules).err(),
        };
        assert_eq!(refused(Rules::BeforeHelicon), None);
        assert_eq!(refused(Rules::Helicon), Some(NoQuery::NotServed));
    }
}

/// The node decodes the number before it looks for an array, but not for the name of a subscription.
#[test]
fn params_that_are_a_number_too_large_are_named() {
    let error = |method: &str, params: &str| {
        let call = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let Request::Single(message) = parse(call.as_bytes()) else { panic!("{call}") };
        let query = message.query(Rules::BeforeHelicon).err();
        let subscription = message.subscription(Rules::BeforeHelicon).err();
        let words = |error| match error {
            Some(NoQuery::Error(error)) => Some(error.message.into_owned()),
            _ => None,
        };
        (words(query), words(subscription))
    };
    let named = "json: cannot unmarshal number 1e999 into Go value of type float64".to_owned();
    let no_array = "non-array args".to_owned();
    assert_eq!(error("eth_blockNumber", "1e999"), (Some(named.clone()), None));
    assert_eq!(error("eth_blockNumber", "1e30"), (Some(no_array.clone()), None));
    assert_eq!(error("eth_unsubscribe", "1e999").1, Some(named));
    assert_eq!(error("eth_subscribe", "1e999").1, Some(no_array));
}
