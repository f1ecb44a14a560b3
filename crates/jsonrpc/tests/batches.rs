//! Batches that are longer than is allowed.

use neve_jsonrpc::{Kind, Message, Request, parse, parse_at_most};

fn batch(body: &str, max: usize) -> Vec<Message<'_>> {
    match parse_at_most(body.as_bytes(), max) {
        Request::Batch(messages) => messages,
        other => panic!("{other:?}"),
    }
}

fn first_call<'a>(messages: &[Message<'a>]) -> Option<&'a [u8]> {
    messages.iter().find(|message| message.kind() == Kind::Call).map(Message::id)
}

#[test]
fn long_batch_keeps_one_message_more_than_allowed() {
    let call = |id: usize| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_chainId"}}"#);
    let (nothing, calls) = ("0,".repeat(100_000), (1..50).map(call).collect::<Vec<_>>().join(","));
    for (body, max, kept) in [
        ("[]".to_owned(), 10, 0),
        (format!("[{nothing}0]"), 10, 11),
        (format!("[{nothing}{calls}]"), 10, 12),
        (format!("[{calls},{nothing}0]"), 10, 11),
        (format!("[{calls}]"), 48, 49),
        (format!("[{calls}]"), 49, 49),
        (format!("[{calls}]"), 1000, 49),
        (format!("[0,{calls}]"), 0, 2),
    ] {
        let messages = batch(&body, max);
        assert_eq!(messages.len(), kept, "{} of {max}", body.len());
        // What tells whom the refusal is for is the same.
        let Request::Batch(all) = parse(body.as_bytes()) else { panic!("a batch") };
        assert_eq!(first_call(&messages), first_call(&all));
        assert_eq!(messages.len() > max, all.len() > max);
    }
    assert!(matches!(parse_at_most(b"[0,0,0,}", 1), Request::Malformed), "all of it is looked at");
}
