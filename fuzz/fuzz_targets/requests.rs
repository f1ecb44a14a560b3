//! JSON-RPC requests: nothing panics, the grammar is that of a strict parser, and every answer that
//! is written around a message is JSON with the message's id.

#![no_main]

use libfuzzer_sys::fuzz_target;
use neve_jsonrpc::{
    Kind, LogHeads, LogQuery, LogRange, Message, NoQuery, Query, Request, RpcError, Rules,
    envelope, log_heights, parse, parse_at_most, syntax_error,
};
use serde_json::value::RawValue;
use serde_json::{Deserializer, Value};

const RULES: [Rules; 2] = [Rules::BeforeHelicon, Rules::Helicon];
/// Deeper bodies are malformed to Go, and not to `serde_json`'s raw values.
const DEPTH_BYTES_MAX: usize = 10_000;

fuzz_target!(|body: &[u8]| {
    let request = parse(body);
    check_grammar(body, &request);
    check_bounded(body, &request);
    let _ = syntax_error(body);
    match request {
        Request::Single(message) => check_message(&message),
        Request::Batch(messages) => messages.iter().for_each(check_message),
        Request::Empty | Request::Malformed => {}
    }
});

/// The first value of a body is JSON here if and only if it is JSON to `serde_json`.
fn check_grammar(body: &[u8], ours: &Request<'_>) {
    let Ok(text) = std::str::from_utf8(body) else { return };
    if body.len() > DEPTH_BYTES_MAX || zero_runs_into_a_digit(text) {
        return;
    }
    match Deserializer::from_str(text).into_iter::<&RawValue>().next() {
        None => assert!(matches!(ours, Request::Empty)),
        Some(Ok(_)) => assert!(!matches!(ours, Request::Malformed | Request::Empty)),
        // A number or a word may run into something else in Go.
        Some(Err(error)) if error.to_string().starts_with("trailing characters") => {}
        Some(Err(error)) => assert!(matches!(ours, Request::Malformed), "{error} but {ours:?}"),
    }
}

/// Of `00` Go's decoder takes the first digit; `serde_json` calls it no number.
fn zero_runs_into_a_digit(text: &str) -> bool {
    let first = text.trim_start_matches([' ', '\t', '\n', '\r']);
    let digits = first.strip_prefix('-').unwrap_or(first).as_bytes();
    digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit()
}

/// A limit on messages changes how many are kept, and nothing else.
fn check_bounded(body: &[u8], unbounded: &Request<'_>) {
    let bounded = parse_at_most(body, 2);
    match (unbounded, bounded) {
        (Request::Batch(all), Request::Batch(some)) => {
            assert!(some.len() >= all.len().min(3) && some.len() <= 4);
            let has_call = |messages: &[Message<'_>]| {
                messages.iter().any(|message| message.kind() == Kind::Call)
            };
            assert_eq!(has_call(all), has_call(&some));
        }
        (unbounded, bounded) => {
            assert_eq!(std::mem::discriminant(unbounded), std::mem::discriminant(&bounded));
        }
    }
}

fn check_message(message: &Message<'_>) {
    assert!(message.kind() != Kind::Call || !message.method().is_empty());
    check_answer(message);
    for rules in RULES {
        match message.query(rules) {
            Ok((_, Query::Logs(LogQuery { range: LogRange::Range { from, to }, .. }))) => {
                let heads = LogHeads { latest: 5, settled: 3 };
                if let Ok(Some(heights)) = log_heights(from, to, rules, heads) {
                    assert!(heights.start() <= heights.end() && *heights.end() <= 5);
                }
            }
            Ok(_) => {}
            Err(none) => check_error(message, none),
        }
        if let Err(none) = message.subscription(rules) {
            check_error(message, none);
        }
    }
    check_error(message, RpcError::no_method(&message.method()).into());
}

/// An answer with a result.
fn check_answer(message: &Message<'_>) {
    let mut out = Vec::new();
    envelope::write_prefix(&mut out, message.id());
    out.extend_from_slice(b"null");
    out.extend_from_slice(envelope::SUFFIX);
    check_envelope(message, &out, "result");
}

/// An answer with an error, without and with data.
fn check_error(message: &Message<'_>, none: NoQuery) {
    let NoQuery::Error(error) = none else { return };
    let mut out = Vec::new();
    envelope::error(&mut out, message.id(), &error);
    check_envelope(message, &out, "error");
    // The name of a method and a message are repeated in part only: six bytes for each of at most so many.
    assert!(out.len() <= 6 * message.id().len() + 4096, "{} bytes of error", out.len());
    out.clear();
    envelope::error_with_data(&mut out, message.id(), &error, "[1]");
    check_envelope(message, &out, "error");
}

/// Go repeats an id with its bad UTF-8, and so does neve. `serde_json` is shown its replacement.
fn check_envelope(message: &Message<'_>, out: &[u8], other: &str) {
    let text = String::from_utf8_lossy(out);
    let answer: std::collections::BTreeMap<&str, &RawValue> =
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {}", out.escape_ascii()));
    let keys: Vec<_> = answer.keys().copied().collect();
    let mut expected = ["jsonrpc", "id", other];
    expected.sort_unstable();
    assert_eq!(keys, expected);
    let id = serde_json::from_slice::<Value>(message.id());
    let echoed = serde_json::from_str::<Value>(answer["id"].get());
    // Ids that `serde_json` cannot hold, as numbers beyond a double, are JSON all the same.
    if let (Ok(id), Ok(echoed)) = (id, echoed) {
        assert_eq!(id, echoed);
    }
}
