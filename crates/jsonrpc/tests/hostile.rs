//! Bodies from people who mean no good: nothing panics, nothing takes long.

use neve_jsonrpc::{
    Kind, LogHeads, LogQuery, LogRange, Query, Request, Rules, envelope, log_heights, parse,
};
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
        if let Err(neve_jsonrpc::NoQuery::Error(error)) = message.subscription(Rules::BeforeHelicon)
        {
            envelope::error(&mut out, message.id(), &error);
        }
        if let Ok((_, Query::Logs(LogQuery { range: LogRange::Range { from, to }, .. }))) =
            message.query(Rules::BeforeHelicon)
        {
            let heads = LogHeads { latest: 5, settled: 3 };
            for rules in [Rules::BeforeHelicon, Rules::Helicon] {
                if let Ok(Some(heights)) = log_heights(from, to, rules, heads) {
                    assert!(heights.start() <= heights.end() && *heights.end() <= 5);
                }
            }
        }
        assert!(message.kind() != Kind::Call || !message.method().is_empty());
    }
}

/// Fragments that requests are made of, in any order.
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
        "\"fromBlock\":\"0x3\"",
        "\"toBlock\":\"0x7\"",
        "\"toBlock\":\"pending\"",
        "\"topics\"",
        "\"address\"",
        "\"accessList\"",
        "\"value\"",
        "1e999",
        "0.5",
        "\"logs\"",
        "\"newHeads\"",
        "\"0xd0c5D6A0Bb0F5A09BFd4f4a6F1D9d8D2fE6dd2c6\"",
        "\"0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef\"",
    ];
    prop_oneof![
        4 => prop::sample::select(words.map(str::as_bytes).map(<[u8]>::to_vec).to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ]
}

const UNSERVED: [&str; 9] = [
    "eth_getBalance",
    "eth_getStorageAt",
    "eth_getProof",
    "eth_call",
    "eth_resend",
    "eth_sign",
    "eth_subscribe",
    "eth_unsubscribe",
    "eth_nope",
];

fn member() -> impl Strategy<Value = &'static str> {
    let names = [
        "fromBlock",
        "toBlock",
        "blockHash",
        "address",
        "topics",
        "TOPICS",
        "from",
        "value",
        "data",
        "gas",
        "accessList",
        "blockNumber",
    ];
    prop::sample::select(names.to_vec())
}

/// Valid JSON, plain or nested, with what decoders look for.
fn value() -> impl Strategy<Value = String> {
    let hash = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
    let words = [
        "null",
        "true",
        "5",
        "1e999",
        "-0",
        "{}",
        "[]",
        "\"\"",
        "\"0x\"",
        "\"0x5\"",
        "\"latest\"",
        "\"\\u0030x5\"",
    ];
    let leaf = prop_oneof![
        prop::sample::select(words.map(str::to_owned).to_vec()),
        Just(format!("{hash:?}")),
        Just(format!("{:?}", &hash[..42])),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop::collection::vec(inner, 0..4).prop_map(|values| format!("[{}]", values.join(",")))
    })
}

/// True if a zero runs into a digit. Of `00` Go's decoder takes the first; `serde_json` calls it no number.
fn zero_runs_into_a_digit(body: &str) -> bool {
    let first = body.trim_start_matches([' ', '\t', '\n', '\r']);
    let digits = first.strip_prefix('-').unwrap_or(first).as_bytes();
    digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit()
}

#[test]
fn a_zero_ends_a_number() {
    for body in ["00x", "-00", "01"] {
        assert!(
            zero_runs_into_a_digit(body) && matches!(parse(body.as_bytes()), Request::Single(_))
        );
    }
    for body in ["[00]", "[-01]"] {
        assert!(
            !zero_runs_into_a_digit(body) && matches!(parse(body.as_bytes()), Request::Malformed)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

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
        let served = neve_jsonrpc::Method::ALL.iter().map(|method| method.name());
        for name in served.chain(UNSERVED) {
            swallow(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{name}","params":[{params}]}}"#).as_bytes());
        }
    }

    /// Objects that ask for logs or for an execution, member by member.
    #[test]
    fn any_members(
        members in prop::collection::vec((member(), value()), 0..6),
        rest in prop::option::of(value()),
    ) {
        let members = members.iter().map(|(key, value)| format!("{key:?}:{value}"));
        let members: Vec<String> = members.collect();
        let object = format!("{{{}}}", members.join(","));
        let rest = rest.map(|value| format!(",{value}")).unwrap_or_default();
        for name in ["eth_getLogs", "eth_newFilter", "eth_call", "eth_feeHistory", "eth_getBlockReceipts"] {
            swallow(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{name}","params":[{object}{rest}]}}"#).as_bytes());
        }
        for subscription in ["newHeads", "logs"] {
            swallow(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["{subscription}",{object}{rest}]}}"#).as_bytes());
        }
    }

    /// Checks on the first value that this reader and serde_json call the same texts JSON.
    #[test]
    fn the_grammar_is_that_of_a_strict_parser(pieces in prop::collection::vec(piece(), 1..12)) {
        let body = String::from_utf8_lossy(&pieces.concat()).into_owned();
        let theirs = serde_json::Deserializer::from_str(&body);
        let theirs = theirs.into_iter::<serde_json::Value>().next();
        let ours = parse(body.as_bytes());
        // serde_json also refuses unpaired surrogates, what overflows a double, and a number or
        // a word that runs into something else. Go does not.
        let odd = |why: &str| {
            body.contains("\\u")
                || body.contains("1e")
                || why.starts_with("trailing characters")
                || zero_runs_into_a_digit(&body)
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
    let (open, close) = ("[".repeat(9_000), "]".repeat(9_000));
    let addresses = vec!["\"0x\""; 100_000].join(",");
    for object in [
        format!(r#"{{"topics":{open}1e999{close}}}"#),
        format!(r#"{{"address":{open}{close},"topics":[{addresses}]}}"#),
        format!(r#"{{"address":[{addresses}]}}"#),
        format!(r#"{{"topics":[[{addresses}]]}}"#),
        format!(r#"{{"accessList":{open}{close}}}"#),
    ] {
        for name in ["eth_getLogs", "eth_newFilter", "eth_call"] {
            swallow(
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{name}","params":[{object}]}}"#)
                    .as_bytes(),
            );
        }
    }
}
