//! Messages of a relayed subscription, as far as they must be read.

use std::borrow::Cow;

use crate::relay::issued::ID_LEN_MAX;
use crate::rpc::members_of;

/// Message from an upstream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming<'t> {
    /// Notification of the subscription of this id.
    Notification(Box<str>),
    /// Response to the call of this id, and the id of the subscription if it opened one.
    Response(&'t str, Option<Box<str>>),
}

impl<'t> Incoming<'t> {
    /// Reads a message; `None` if it is neither.
    pub(super) fn read(text: &'t str) -> Option<Self> {
        let names = ["id", "method", "params", "result", "error"];
        let [own, method, params, result, error] = members_of(text.as_bytes(), names)?;
        let error = error.filter(|error| error.get() != "null");
        // A message with parts of both kinds could be taken for either, so it is none.
        match (own, method, params, result, error) {
            (None, _, Some(params), None, None) => {
                let [subscription] = members_of(params.get().as_bytes(), ["subscription"])?;
                let subscription: Cow<'_, str> = serde_json::from_str(subscription?.get()).ok()?;
                id(&subscription).map(Self::Notification)
            }
            (Some(own), None, None, Some(result), None) => {
                match serde_json::from_str::<&str>(result.get()) {
                    Ok(text) => id(text).map(|opened| Self::Response(own.get(), Some(opened))),
                    Err(_) => Some(Self::Response(own.get(), None)),
                }
            }
            (Some(own), None, None, None, Some(_)) => Some(Self::Response(own.get(), None)),
            _ => None,
        }
    }
}

/// An id that can be written into a call as it is.
fn id(text: &str) -> Option<Box<str>> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_plain && (1..=ID_LEN_MAX).contains(&text.len())).then(|| text.into())
}

/// Call that opens no more notifications of `id`.
pub(super) fn unsubscribe(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":0,"method":"eth_unsubscribe","params":["{id}"]}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_is_told_from_a_response() {
        let result = |text: &str| format!(r#"{{"jsonrpc":"2.0","id":"x","result":{text}}}"#);
        let response = |own, id: Option<&str>| Some(Incoming::Response(own, id.map(Into::into)));
        assert_eq!(Incoming::read(&result("\"0xAb\"")), response("\"x\"", Some("0xAb")));
        assert_eq!(Incoming::read(&result("true")), response("\"x\"", None));
        assert_eq!(Incoming::read(r#"{"id":1,"error":{"code":1}}"#), response("1", None));
        let text = r#"{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","result":{"a":[]}}}"#;
        assert_eq!(Incoming::read(text), Some(Incoming::Notification("0x1".into())));
    }

    #[test]
    fn id_that_could_not_be_passed_on_is_no_message() {
        for id in ["", "0x1\\\"", "a b", &"1".repeat(ID_LEN_MAX + 1)] {
            let response = format!(r#"{{"id":1,"result":"{id}"}}"#);
            let told = format!(r#"{{"params":{{"subscription":"{id}"}}}}"#);
            if id != "0x1\\\"" {
                assert_eq!(Incoming::read(&response), None, "{id}");
            }
            assert_eq!(Incoming::read(&told), None, "{id}");
        }
        for other in ["", "[]", "{}", "1", r#"{"params":{}}"#, r#"{"params":[]}"#, "{\"result\":"] {
            assert_eq!(Incoming::read(other), None, "{other}");
        }
        for both in [
            r#"{"result":"0x1","params":{"subscription":"0x2"}}"#,
            r#"{"id":5,"method":"eth_subscription","params":{"subscription":"0x2"}}"#,
            r#"{"ID":5,"params":{"subscription":"0x2"}}"#,
            r#"{"RESULT":1,"params":{"subscription":"0x2"}}"#,
            r#"{"params":{"subscription":"0x2"},"Params":{"subscription":"0x3"}}"#,
            r#"{"params":{"subscription":"0x2","SUBSCRIPTION":"0x3"}}"#,
            r#"{"id":5,"result":"0x1","id":6}"#,
            r#"{"id":5,"result":"0x1","method":"eth_subscription"}"#,
            r#"{"result":"0x1"}"#,
        ] {
            assert_eq!(Incoming::read(both), None, "{both}");
        }
    }
}
