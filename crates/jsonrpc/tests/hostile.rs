//! Bodies from people who mean no good: nothing panics, nothing takes long.

#![cfg(test)]

use neve_jsonrpc::{Kind, Request, Rules, envelope, parse};
use proptest::prelude::*;

fn swallow(body: &[u8]) {
    let messages = match parse(body) {
        Request::Single(message) => vec![message],
        Request::Batch(messages) => messages,
        Request::Empty | Request::Malformed => return,
    };
    for message in messages {
        let mut out = Vec::new();
        if let Err(neve_jsonrpc::NoQuery::Error(error)) = message.query(Rules::Helicon) {
            envelope::error(&mut out, message.id(), &error);
        }
        assert!(message.kind() != Kind::Call || !message.method().is_empty());
    }
}

/// Pieces that requests are made of, in any order.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\\u00",
        "null",
        "true",
        "1e",
        "-",
        "0x",
        "\"id\"",
        "\"method\"",
        "\"params\"",
        "\"jsonrpc\":\"2.0\"",
        "\"eth_getBlockByNumber\"",
        "\"eth_getBlockReceipts\"",
        "\"blockHash\"",
        "\"blockNumber\"",
        "\"latest\"",
        "\u{2028}",
    ];
    prop_oneof![
        4 => prop::sample::select(words.map(str::as_bytes).map(<[u8]>::to_vec).to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(body in prop::collection::vec(any::<u8>(), 0..200)) {
        swallow(&body);
    }

    #[test]
    fn any_pieces(pieces in prop::collection::vec(piece(), 0..30)) {
        swallow(&pieces.concat());
    }

    #[test]
    fn any_parameters(arguments in prop::collection::vec(piece(), 0..6)) {
        let params = String::from_utf8_lossy(&arguments.concat()).into_owned();
        for method in neve_jsonrpc::Method::ALL {
            let name = method.name();
            swallow(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{name}","params":[{params}]}}"#).as_bytes());
        }
    }

    /// What serde_json calls JSON is JSON here, and the other way round, on the first value.
    #[test]
    fn the_grammar_is_that_of_a_strict_parser(pieces in prop::collection::vec(piece(), 1..12)) {
        let body = String::from_utf8_lossy(&pieces.concat()).into_owned();
        let theirs = serde_json::Deserializer::from_str(&body).into_iter::<serde_json::Value>().next();
        let ours = parse(body.as_bytes());
        // serde_json also refuses unpaired surrogates, what overflows a double, and a number or
        // a word that runs into something else. Go does not.
        let odd = |why: &str| {
            body.contains("\\u") || body.contains("1e") || why.starts_with("trailing characters")
        };
        match theirs {
            None => prop_assert!(matches!(ours, Request::Empty)),
            Some(Ok(_)) => prop_assert!(!matches!(ours, Request::Malformed | Request::Empty)),
            Some(Err(error)) if error.is_syntax() && !odd(&error.to_string()) => {
                prop_assert!(matches!(ours, Request::Malformed), "{error} but {ours:?}");
            }
            Some(Err(_)) => {}
        }
    }
}

#[test]
fn deep_and_wide_bodies_are_bounded() {
    swallow("[".repeat(1 << 20).as_bytes());
    swallow("{\"a\":".repeat(1 << 18).as_bytes());
    swallow(format!("[{}]", vec!["{}"; 200_000].join(",")).as_bytes());
    swallow(format!("{{\"id\":\"{}\"}}", "<".repeat(1 << 20)).as_bytes());
}
