//! Ids in an upstream's text that goes to a client over WebSocket. There a client finds the call of each message
//! by its id: one with another id could take the place of an answer of neve's own.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Outbound;

/// Values of the members of some names in an object.
pub(crate) type MembersOf<'t, const N: usize> = [Option<&'t RawValue>; N];

/// Returns the members of these names. `None` if the text is no object, or has one of them twice or in another
/// case: clients differ in which one they take.
pub(crate) fn members_of<'t, const N: usize>(
    text: &'t [u8],
    names: [&'static str; N],
) -> Option<MembersOf<'t, N>> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let found = NamedMembers(names).deserialize(&mut json).ok()?;
    json.end().is_ok().then_some(found)
}

/// True if two ids are the same value. A server may write it in another way than the client.
pub(crate) fn is_same_id(one: &str, other: &str) -> bool {
    one == other || plain(one) == plain(other)
}

/// An id in one way of writing.
fn plain(id: &str) -> Cow<'_, str> {
    serde_json::from_str::<Value>(id).map_or(Cow::Borrowed(id), |value| value.to_string().into())
}

struct NamedMembers<const N: usize>([&'static str; N]);

impl<'t, const N: usize> DeserializeSeed<'t> for NamedMembers<N> {
    type Value = MembersOf<'t, N>;

    fn deserialize<D: Deserializer<'t>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'t, const N: usize> Visitor<'t> for NamedMembers<N> {
    type Value = MembersOf<'t, N>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "an object with each of {:?} at most once", self.0)
    }

    fn visit_map<A: MapAccess<'t>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(key) = members.next_key::<Key<'t>>()? {
            let Some(place) = self.0.iter().position(|name| folded(&key.0).eq(name.chars())) else {
                members.next_value::<IgnoredAny>()?;
                continue;
            };
            if key.0 != self.0[place] || found[place].is_some() {
                return Err(A::Error::custom("a member twice, or in another case"));
            }
            found[place] = Some(members.next_value()?);
        }
        Ok(found)
    }
}

#[derive(Deserialize)]
struct Key<'t>(#[serde(borrow)] Cow<'t, str>);

/// Letters as Go compares them: two beyond ASCII count as letters of it.
fn folded(key: &str) -> impl Iterator<Item = char> {
    key.chars().map(|letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    })
}

/// Id of a response; `None` if the text is none, or could be taken for a notification too.
fn response_id(text: &[u8]) -> Option<&RawValue> {
    let [id, method, params] = members_of(text, ["id", "method", "params"])?;
    id.filter(|_| method.is_none() && params.is_none())
}

/// Checks the ids of a batch's response one by one.
struct Ids(HashSet<String>);

impl<'t> Visitor<'t> for Ids {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "responses to {} calls", self.0.len())
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<&RawValue>()? {
            let id = response_id(item.get().as_bytes()).map(|id| plain(id.get()));
            // A server that cannot read an id gives null.
            if !id.is_some_and(|id| id == "null" || self.0.contains(&*id)) {
                return Err(A::Error::custom("an id of no call"));
            }
        }
        Ok(())
    }
}

impl Outbound {
    /// True if a text answers its calls, and nothing else that a client may have called.
    pub(crate) fn is_answered_by(&self, text: &[u8]) -> bool {
        let ids = || self.ids.iter().map(|id| String::from_utf8_lossy(id));
        if text.trim_ascii().is_empty() {
            return self.is_silent();
        }
        if !text.trim_ascii_start().starts_with(b"[") {
            // An error alone may speak for all of a batch, with an id that is null.
            let is_own = |id: &str| id == "null" || ids().any(|own| is_same_id(&own, id));
            return response_id(text).is_some_and(|id| is_own(id.get()));
        }
        let own = ids().map(|id| plain(&id).into_owned()).collect();
        let mut json = serde_json::Deserializer::from_slice(text);
        let read = json.deserialize_seq(Ids(own));
        self.batch && read.and_then(|()| json.end()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use neve_jsonrpc::{Request, parse};

    use super::*;

    fn made(ids: &[&str]) -> Outbound {
        let call = |id: &&str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x_y"}}"#);
        let calls: Vec<_> = ids.iter().map(call).collect();
        let text =
            if let [one] = &calls[..] { one.clone() } else { format!("[{}]", calls.join(",")) };
        match parse(text.as_bytes()) {
            Request::Single(message) => Outbound::single(&message),
            Request::Batch(messages) => Outbound::batch(&messages),
            _ => panic!("{text}"),
        }
    }

    #[test]
    fn response_has_the_id_of_its_call_and_no_other() {
        let one = made(&["\"a<\""]);
        for text in [
            "{\"jsonrpc\":\"2.0\",\"id\":\"a\\u003c\",\"result\":1}\n",
            r#" {"result":{"id":2,"method":"x"},"id":"a<","x-neve-upstream":"behind"}"#,
            r#"{"id":null,"error":{"code":1}}"#,
        ] {
            assert!(one.is_answered_by(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "{}",
            r#"{"result":1}"#,
            r#"{"id":2,"result":1}"#,
            r#"{"id":"a","result":1}"#,
            r#"{"id":"a<","result":1,"id":2}"#,
            r#"{"id":"a<","result":1,"ID":2}"#,
            r#"{"id":"a<","result":1,"method":"eth_subscription"}"#,
            r#"{"id":"a<","result":1,"param\u017f":{"subscription":"0x1"}}"#,
            r#"{"id":"a<","result":1}{"id":2,"result":1}"#,
            r#"{"id":"a<","result":1"#,
            r#"[{"id":"a<","result":1}]"#,
        ] {
            assert!(!one.is_answered_by(text.as_bytes()), "{text}");
        }
        // However deep its text is.
        let deep = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
        assert!(one.is_answered_by(format!(r#"{{"id":"a<","result":{deep}}}"#).as_bytes()));
        let hidden = format!(r#"{{"id":"a<","result":{deep},"id":2}}"#);
        assert!(!one.is_answered_by(hidden.as_bytes()));
        for (own, told) in
            [("1.50", "1.50"), ("1e2", "100.0"), ("7", "7"), ("\"\\u0061\"", "\"a\"")]
        {
            let text = format!(r#"{{"id":{told},"result":1}}"#);
            assert!(made(&[own]).is_answered_by(text.as_bytes()), "{own} {told}");
        }
    }

    #[test]
    fn response_to_a_batch_has_ids_of_its_calls_alone() {
        let two = made(&["1", "\"b\""]);
        let item = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":1}}"#);
        let batch = |ids: &[&str]| {
            format!("[{}]\n", ids.iter().map(|id| item(id)).collect::<Vec<_>>().join(","))
        };
        for text in [batch(&["1", "\"b\""]), batch(&["null"]), batch(&[]), item("null"), item("1")]
        {
            assert!(two.is_answered_by(text.as_bytes()), "{text}");
        }
        let told = r#"[{"method":"eth_subscription","params":{"subscription":"0x1"}}]"#.to_owned();
        for text in [batch(&["1", "2"]), item("2"), told, "[1]".to_owned(), "[[]]".to_owned()] {
            assert!(!two.is_answered_by(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn notification_has_no_response() {
        let Request::Single(silent) = parse(br#"{"jsonrpc":"2.0","method":"x_y"}"#) else {
            panic!()
        };
        let silent = Outbound::single(&silent);
        assert!(silent.is_answered_by(b"\n"));
        assert!(!silent.is_answered_by(br#"{"id":2,"result":1}"#));
    }
}
