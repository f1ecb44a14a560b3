//! Messages of a relayed subscription, as far as they must be read.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::relay::issued::ID_LEN_MAX;

/// Message from an upstream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// Notification of the subscription of this id.
    Notification(Box<str>),
    /// Response to a call: the id, if it opened a subscription.
    Response(Option<Box<str>>),
}

impl Incoming {
    /// Reads a message; `None` if it is neither.
    pub(super) fn read(text: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Parts<'a> {
            #[serde(borrow)]
            params: Option<Params<'a>>,
            #[serde(borrow)]
            result: Option<&'a RawValue>,
            #[serde(borrow)]
            error: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            subscription: Cow<'a, str>,
        }
        let parts: Parts<'_> = serde_json::from_str(text).ok()?;
        // A message with parts of both kinds could be taken for either, so it is none.
        match (parts.params, parts.result, parts.error) {
            (Some(params), None, None) => id(&params.subscription).map(Self::Notification),
            (None, Some(result), None) => match serde_json::from_str::<&str>(result.get()) {
                Ok(text) => id(text).map(Some).map(Self::Response),
                Err(_) => Some(Self::Response(None)),
            },
            (None, None, Some(_)) => Some(Self::Response(None)),
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
        let response = |id: Option<&str>| Some(Incoming::Response(id.map(Into::into)));
        assert_eq!(Incoming::read(&result("\"0xAb\"")), response(Some("0xAb")));
        assert_eq!(Incoming::read(&result("true")), response(None));
        assert_eq!(Incoming::read(r#"{"id":1,"error":{"code":1}}"#), response(None));
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
        let both = r#"{"result":"0x1","params":{"subscription":"0x2"}}"#;
        assert_eq!(Incoming::read(both), None);
    }
}
