//! Ids of requests: `X-Request-Id`.

use std::io::Write;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

/// The header, in requests and responses.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Bytes of an id that is taken over.
const LEN_MAX: usize = 128;

/// The id that a request names, or a new one of 32 hex digits.
pub(super) fn request_id(headers: &HeaderMap) -> HeaderValue {
    let mut named = headers.get_all(REQUEST_ID).iter();
    match (named.next(), named.next()) {
        // Two ids name no request, and other bytes could forge a line of the log.
        (Some(id), None) if is_safe(id.as_bytes()) => id.clone(),
        _ => new_id(),
    }
}

/// True if an id is short, and needs no escape in a log or a shell.
fn is_safe(id: &[u8]) -> bool {
    let is_safe = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:=+/@".contains(b);
    (1..=LEN_MAX).contains(&id.len()) && id.iter().all(is_safe)
}

fn new_id() -> HeaderValue {
    let mut digits = Vec::with_capacity(32);
    let _ = write!(digits, "{:032x}", fastrand::u128(..)); // a Vec takes all
    // Digits are a header value always: the other one satisfies the type only.
    HeaderValue::from_maybe_shared(bytes::Bytes::from(digits))
        .unwrap_or(HeaderValue::from_static("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&[u8]]) -> HeaderValue {
        let value = |value: &&[u8]| (REQUEST_ID, HeaderValue::from_bytes(value).expect("a value"));
        request_id(&values.iter().map(value).collect())
    }

    #[test]
    fn safe_id_is_taken_over() {
        let longest = [b'x'; LEN_MAX];
        for id in [&b"a"[..], b"7f-0_1.A:b=+/@", &longest] {
            assert_eq!(of(&[id]).as_bytes(), id);
        }
    }

    #[test]
    fn other_id_is_replaced_by_a_new_one() {
        let long = [b'x'; LEN_MAX + 1];
        let wrong = [&b""[..], b"a b", b"a\"b", b"a\\b", b"\xe9", b"a\tb", b"a;b", b"<a>", &long];
        let mut seen = Vec::new();
        for values in wrong.iter().map(|id| vec![*id]).chain([vec![], vec![&b"a"[..], b"b"]]) {
            let made = of(&values);
            let is_hex = made.as_bytes().iter().all(u8::is_ascii_hexdigit);
            assert!(made.len() == 32 && is_hex, "{values:?}: {made:?}");
            assert!(!seen.contains(&made), "{made:?}");
            seen.push(made);
        }
    }
}
