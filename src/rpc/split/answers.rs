//! The answers in an upstream's response to a batch.

use std::fmt;

use bytes::Bytes;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An answer of a batch.
#[derive(Deserialize)]
struct Numbered<'a> {
    id: usize,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Items of a batch's response beyond one for each call. With more it is no response to the batch.
const ITEMS_MORE_MAX: usize = 16;

/// The answers in a batch's response, by their numbers, each from behind its id on.
pub(crate) fn answers_of(bytes: &Bytes, count: usize) -> Vec<Option<Bytes>> {
    let mut found = vec![None; count];
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = json.deserialize_seq(Items { bytes, found: &mut found });
    match read.and_then(|()| json.end()) {
        Ok(()) => found,
        // Of a malformed text no answer is believed, not even one before the error.
        Err(_) => vec![None; count],
    }
}

/// Takes the items of a batch's response one by one: an upstream that sends millions of them makes
/// neve hold none.
struct Items<'b> {
    bytes: &'b Bytes,
    found: &'b mut [Option<Bytes>],
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a response for each of {} calls", self.found.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut left = self.found.len() + ITEMS_MORE_MAX;
        while let Some(item) = items.next_element::<&'de RawValue>()? {
            // An upstream decides how many items come: beyond a few more than were asked for, it
            // errs.
            left = left.checked_sub(1).ok_or_else(|| A::Error::custom("too many items"))?;
            let Some((id, rest)) = answer_of(self.bytes, item.get()) else { continue };
            if let Some(place) = self.found.get_mut(id) {
                place.get_or_insert(rest);
            }
        }
        Ok(())
    }
}

/// Number of an item, and what is passed on: its result or its error, and no other member. One behind them
/// could be a second id, and take the place of another answer of the batch.
fn answer_of(bytes: &Bytes, item: &str) -> Option<(usize, Bytes)> {
    let Numbered { id, result, error } = serde_json::from_str(item).ok()?;
    let (name, value) = match (result, error) {
        (Some(_), Some(_)) => return None,
        (None, Some(error)) => ("error", error.get()),
        (result, None) => ("result", result.map_or("null", RawValue::get)),
    };
    // Nearly always it stands there as it goes on, and need not be copied.
    let before = item.strip_suffix('}').and_then(|text| text.strip_suffix(value));
    let before = before.and_then(|text| text.strip_suffix("\":")?.strip_suffix(name));
    let before = before.and_then(|text| text.strip_suffix(",\""));
    let stands = before.map(|text| bytes.slice_ref(&item.as_bytes()[text.len()..]));
    Some((id, stands.unwrap_or_else(|| format!(",\"{name}\":{value}}}").into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(body: &str, count: usize) -> Vec<Option<String>> {
        let found = answers_of(&Bytes::copy_from_slice(body.as_bytes()), count);
        found.into_iter().map(|text| Some(String::from_utf8(text?.to_vec()).unwrap())).collect()
    }

    #[test]
    fn answers_are_found_by_their_numbers_in_any_order_and_form() {
        let body = concat!(
            r#"[{"jsonrpc":"2.0","id":2,"result":"c"},"#,
            r#" {"result": [1], "id": 0, "jsonrpc": "2.0"},"#,
            r#"{"jsonrpc":"2.0","id":2,"result":"again"},{"jsonrpc":"2.0","id":9,"result":1},"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"<"}},7]"#,
        );
        let expected = [
            Some(",\"result\":[1]}"),
            Some(",\"error\":{\"code\":1,\"message\":\"<\"}}"),
            Some(",\"result\":\"c\"}"),
            None,
        ];
        assert_eq!(texts(body, 4), expected.map(|text| text.map(str::to_owned)));
    }

    #[test]
    fn response_with_more_items_than_calls_has_no_answers() {
        let answer = r#"{"jsonrpc":"2.0","id":0,"result":1}"#;
        let with = |more: usize| format!("[{answer}{}]", ",1".repeat(more));
        assert!(texts(&with(ITEMS_MORE_MAX), 1)[0].is_some());
        assert_eq!(texts(&with(ITEMS_MORE_MAX + 1), 1), [None]);
        assert_eq!(texts(&format!("[{answer}] 1"), 1), [None], "something behind the response");
    }

    #[test]
    fn answer_has_no_member_behind_its_result_or_error() {
        for (item, expected) in [
            (r#"{"jsonrpc":"2.0","id":0,"result":1,"id":2}"#, None),
            (r#"{"jsonrpc":"2.0","id":0,"result":1,"ID":2}"#, Some(",\"result\":1}")),
            (
                r#"{"jsonrpc":"2.0","id":0,"result":{"a":1},"x":"}"}"#,
                Some(",\"result\":{\"a\":1}}"),
            ),
            (r#"{"jsonrpc":"2.0","id":0,"error":{},"x":{"error":{}}}"#, Some(",\"error\":{}}")),
            (r#"{"jsonrpc":"2.0","id":0,"result":1,"error":{"code":5}}"#, None),
            (r#"{"jsonrpc":"2.0","id":0,"result":1,"error":null}"#, Some(",\"result\":1}")),
            (r#"{"jsonrpc":"2.0","id":0,"result":null,"error":{}}"#, Some(",\"error\":{}}")),
        ] {
            assert_eq!(texts(&format!("[{item}]"), 1), [expected.map(str::to_owned)], "{item}");
        }
    }

    #[test]
    fn text_that_is_no_batch_has_no_parts() {
        for body in ["", "{}", "null", "[1,", r#"{"jsonrpc":"2.0","id":0,"result":1}"#, "\u{fffd}"]
        {
            assert_eq!(texts(body, 1), [None], "{body}");
        }
    }
}
