//! What a subscriber is sent.

use tokio_tungstenite::tungstenite::Message;

const LEAD: &str = r#"{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":""#;
const RESULT: &str = r#"","result":"#;
const TAIL: &str = "}}\n";

/// A result in its frame (libevm, `rpc/subscription.go`): compact, with a newline behind it. All
/// subscribers share the result; the frame around it is each one's own, because of the id.
pub(super) fn notification(id: &str, result: &str) -> Message {
    Message::text([LEAD, id, RESULT, result, TAIL].concat())
}
