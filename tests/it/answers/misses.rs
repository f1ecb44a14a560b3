//! Misses: 421, in words that routers know.

use serde_json::{Value, json};

use crate::support::client::Response;
use crate::support::neve::Neve;
use crate::support::served::recorded_from_100;

fn assert_miss(answer: &Response, status: u16, code: i64, message: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("x-neve-served"), Some("0x64-0x153"));
    let json = answer.json();
    assert_eq!(json["error"]["code"], code);
    assert_eq!(json["error"]["message"], message);
    assert_eq!(json["error"]["data"], json!({ "firstHeight": "0x64", "head": "0x153" }));
}

const NOT_AVAILABLE: &str = "requested data is not available here";

#[test]
fn misses_are_421_in_words_that_routers_know() {
    let (_node, neve, _dir) = recorded_from_100(&[]);
    let mut client = neve.client();
    let held = "(served: 0x64 to 0x153)";
    let below = client.call("eth_getBlockByNumber", "[\"0x63\",false]");
    assert_miss(
        &below,
        421,
        -32000,
        &format!("header not found: block 0x63 is not served {held}; {NOT_AVAILABLE}"),
    );
    let above = client.call("eth_getHeaderByNumber", "[\"0x154\"]");
    assert_miss(
        &above,
        421,
        -32000,
        &format!("header not found: block 0x154 is not served {held}; {NOT_AVAILABLE}"),
    );
    let earliest = client.call("eth_getBlockReceipts", "[\"earliest\"]");
    assert_miss(
        &earliest,
        421,
        -32000,
        &format!("header not found: block 0x0 is not served {held}; {NOT_AVAILABLE}"),
    );
    let hash = format!("0x{}", "ab".repeat(32));
    for method in ["eth_getTransactionReceipt", "eth_getTransactionByHash", "eth_getHeaderByHash"] {
        let unknown = client.call(method, &format!("[\"{hash}\"]"));
        assert_miss(
            &unknown,
            421,
            -32000,
            &format!("header not found: {hash} is not served {held}; {NOT_AVAILABLE}"),
        );
    }
    let pool = client.call("eth_newPendingTransactionFilter", "[]");
    let method = "the method eth_newPendingTransactionFilter is not served";
    assert_miss(&pool, 421, -32000, &format!("header not found: {method} {held}; {NOT_AVAILABLE}"));
    let state = client
        .call("eth_getBalance", "[\"0x0100000000000000000000000000000000000000\",\"latest\"]");
    assert_miss(
        &state,
        421,
        -32000,
        &format!(
            "header not found: the method eth_getBalance is not served {held}; {NOT_AVAILABLE}"
        ),
    );
    // -32601 says that no node has the method, so it is no miss.
    let unknown = client.call("eth_unheardOf", "[]").json();
    assert_eq!(unknown["error"]["code"], -32601);
}

/// The edges of the range are in it.
#[test]
fn the_served_range_is_whole() {
    let (node, neve, _dir) = recorded_from_100(&[]);
    let mut client = neve.client();
    for height in [100, 101, 338, 339] {
        let answer = client.call("eth_getBlockByNumber", &format!("[\"{height:#x}\",true]"));
        let expected = node.height(height).block;
        assert_eq!(
            answer.text(),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{expected}}}\n")
        );
    }
    // Inside the range the node's own null stays a 200.
    assert_eq!(
        client.result("eth_getTransactionByBlockNumberAndIndex", "[\"0x64\",\"0xffff\"]"),
        Value::Null
    );
}

#[test]
fn a_batch_with_any_miss_is_refused_whole() {
    let (_node, neve, _dir) = recorded_from_100(&[]);
    let mut client = neve.client();
    let good = r#"{"jsonrpc":"2.0","id":"a","method":"eth_chainId"}"#;
    let miss = r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBlockByNumber","params":["0x1",false]}"#;
    let note = r#"{"jsonrpc":"2.0","method":"eth_chainId"}"#;
    let answer = client.post(&format!("[{good},{note},{miss},{good}]"));
    assert_eq!(answer.status, 421);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let errors = answer.json();
    let ids: Vec<_> = errors.as_array().unwrap().iter().map(|error| error["id"].clone()).collect();
    assert_eq!(ids, [json!("a"), json!(7), json!("a")]);
    for error in errors.as_array().unwrap() {
        assert_eq!(error["jsonrpc"], "2.0");
        let message = error["error"]["message"].as_str().unwrap();
        let neutral = "header not found: a call of the batch is not served here (served: ";
        assert!(message.starts_with(neutral), "{message}");
        assert!(message.ends_with("requested data is not available here"), "{message}");
    }
    let answer = client.post(&format!("[{good},{note},{good}]"));
    let expected = r#"[{"jsonrpc":"2.0","id":"a","result":"0xa868"},{"jsonrpc":"2.0","id":"a","result":"0xa868"}]"#;
    assert_eq!((answer.status, answer.text()), (200, format!("{expected}\n")));
}

/// A router that relays the errors one by one must not tell a caller of another's method.
#[test]
fn refused_batch_counts_misses_only_and_names_no_other_call() {
    let (_node, neve, _dir) = recorded_from_100(&[]);
    let mut client = neve.client();
    let call = |id: u32, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    };
    let balance = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
    let calls = [
        call(1, "eth_chainId", "[]"),
        call(2, "eth_getBalance", balance),
        call(3, "eth_blockNumber", "[]"),
        call(4, "eth_unheardOf", "[]"),
    ];
    let answer = client.post(&format!("[{}]", calls.join(",")));
    assert_eq!(answer.status, 421);
    let errors = answer.json();
    assert_eq!(errors.as_array().unwrap().len(), 4);
    for error in errors.as_array().unwrap() {
        assert!(!error.to_string().contains("eth_"), "{error}");
    }
    let counted = |method: &str, outcome: &str| {
        let labels = format!("method=\"{method}\",outcome=\"{outcome}\"");
        neve.count(&format!("neve_rpc_calls_total{{{labels}}}"))
    };
    for method in ["eth_chainId", "eth_getBalance", "eth_blockNumber", "other"] {
        assert_eq!(counted(method, "miss"), 1, "{method}");
        assert_eq!(counted(method, "hit") + counted(method, "error"), 0, "{method}");
    }
    // Alone, a call is told of its own method.
    let alone = client.post(&calls[1]).text();
    assert!(alone.contains("header not found: the method eth_getBalance is not served"), "{alone}");
    assert_eq!(counted("eth_getBalance", "miss"), 2);
    client.post(&calls[3]);
    assert_eq!(counted("other", "error"), 1);
}

#[test]
fn redirect_never_leaves_the_host() {
    let (_node, neve, _dir) = recorded_from_100(&[]);
    for (path, location) in [
        ("//%5chost", "/%5Chost"),
        ("/a/..//%5c%5cevil", "/%5C%5Cevil"),
        ("/%2f%2fhost", "/host"),
        ("//host/?q=//x", "/host/?q=//x"),
    ] {
        let answer = neve.client().get(path);
        assert_eq!((answer.status, answer.header("location")), (301, Some(location)), "{path}");
    }
}

/// A notification of a method that may have effects goes to a full node.
#[test]
fn a_notification_that_may_do_something_is_a_miss() {
    let (_node, neve, _dir) = recorded_from_100(&[]);
    let mut client = neve.client();
    let send =
        client.post(r#"{"jsonrpc":"2.0","method":"eth_sendRawTransaction","params":["0x0201"]}"#);
    assert_eq!(send.status, 421);
    let read = client.post(r#"{"jsonrpc":"2.0","method":"eth_blockNumber"}"#);
    assert_eq!((read.status, read.text().as_str()), (200, ""));
}

/// Without the switch a node does not know these, whatever their parameters are.
#[test]
fn raw_forms_that_are_switched_off_are_misses_with_wrong_parameters_too() {
    let forms = ["Header", "Block", "Receipts", "Transaction"];
    let status_and_text = |neve: &Neve, form: &str, params| {
        let answer = neve.client().call(&format!("debug_getRaw{form}"), params);
        (answer.status, answer.text())
    };
    let (_node, neve, _dir) = recorded_from_100(&[]);
    for (form, params) in
        forms.iter().flat_map(|form| ["[]", "[null]", "[{},{}]"].map(|it| (form, it)))
    {
        assert_eq!(status_and_text(&neve, form, params).0, 421, "{form} {params}");
    }
    let (_node, neve, _dir) = recorded_from_100(&["--api", "debug-raw"]);
    for form in forms {
        let (status, text) = status_and_text(&neve, form, "[]");
        assert!(status == 200 && text.contains("missing value for required argument 0"), "{text}");
    }
}

#[test]
fn another_status_for_misses_can_be_chosen() {
    for status in ["200", "404", "599"] {
        let (_node, neve, _dir) = recorded_from_100(&["--miss-status", status]);
        let answer = neve.client().call("eth_getBlockByNumber", "[\"0x1\",false]");
        assert_eq!(answer.status.to_string(), status);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
}
