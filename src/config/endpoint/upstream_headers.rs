//! HTTP headers that go with each request to an upstream, from a file.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::config::read_text;

/// Bytes of an `--upstream-header-file`.
const HEADER_FILE_BYTES_MAX: u64 = 64 << 10;
/// Replaced keys that responses are searched for. A key that is rotated each hour must not make them slower each time.
const EARLIER_KEYS_MAX: usize = 16;

/// HTTP headers that go with each request to an upstream. Their values are never shown.
///
/// Clones are one: a reload of the file replaces the headers of all of them.
#[derive(Clone, Default)]
pub(crate) struct UpstreamHeaders(Arc<ArcSwap<SentHeaders>>);

/// Headers in force, and what may not be shown.
#[derive(Default)]
pub(crate) struct SentHeaders {
    headers: HeaderMap,
    /// Values that may be keys, then those of headers that were replaced: a response to an earlier request may
    /// still come.
    keys: Vec<String>,
}

impl SentHeaders {
    fn new(headers: HeaderMap) -> Self {
        let named = headers.iter().filter(|(name, _)| may_hold_key(name));
        let keys = named.filter_map(|(_, value)| value.to_str().ok().map(str::to_owned)).collect();
        Self { headers, keys }
    }

    /// Values that may be keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// Adds the keys of headers that these replace, the newest first.
    fn after(mut self, earlier: &Self) -> Self {
        let kept = self.keys.len() + EARLIER_KEYS_MAX;
        for key in &earlier.keys {
            if !self.keys.contains(key) {
                self.keys.push(key.clone());
            }
        }
        self.keys.truncate(kept);
        self
    }
}

impl fmt::Debug for UpstreamHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UpstreamHeaders")
    }
}

impl PartialEq for UpstreamHeaders {
    fn eq(&self, other: &Self) -> bool {
        self.0.load().headers == other.0.load().headers
    }
}

impl Eq for UpstreamHeaders {}

impl UpstreamHeaders {
    /// Reads a file with a line `Name: value` for each header. Empty lines and lines that begin with
    /// `#` say nothing. The error names the line and no value.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        Self::parse(&read_text(path, HEADER_FILE_BYTES_MAX)?)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = header(line).map_err(|why| format!("line {number}: {why}"))?;
            headers.append(name, value);
        }
        Ok(Self(Arc::new(ArcSwap::from_pointee(SentHeaders::new(headers)))))
    }

    /// Takes the headers of another one, for all requests from now on.
    pub(crate) fn replace(&self, newer: &Self) {
        let sent = SentHeaders::new(newer.0.load().headers.clone());
        self.0.store(Arc::new(sent.after(&self.0.load())));
    }

    /// Puts them into a request.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.0.load().headers {
            headers.append(name, value.clone());
        }
    }

    /// Returns the headers in force. A reload makes others.
    pub(crate) fn sent(&self) -> Arc<SentHeaders> {
        self.0.load_full()
    }
}

fn header(line: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let (name, value) = line.split_once(':').ok_or("write `Name: value`")?;
    let name = HeaderName::from_bytes(name.trim_end().as_bytes());
    let name = name.map_err(|_| "the name is none of an HTTP header")?;
    let mut value =
        HeaderValue::from_str(value.trim()).map_err(|_| "the value is none of a header")?;
    // `Debug` then hides it: it may be a key.
    value.set_sensitive(true);
    if OWN_HEADERS.contains(&name.as_str()) || name.as_str().starts_with("sec-websocket-") {
        return Err("neve sets this header itself");
    }
    Ok((name, value))
}

/// Headers that say how a request is framed, or which neve sets.
const OWN_HEADERS: [&str; 13] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "if-range",
    "keep-alive",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Headers besides those of `Accept` whose values are no keys: nearly any response has such a text.
const KEYLESS_HEADERS: [&str; 6] =
    ["cache-control", "origin", "pragma", "referer", "user-agent", "via"];

fn may_hold_key(name: &HeaderName) -> bool {
    !name.as_str().starts_with("accept") && !KEYLESS_HEADERS.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_of_the_replaced_keys_are_kept() {
        let of = |number: u32| {
            let text = format!("Accept: text/plain\nX-Key: key-{number}\nX-Fixed: fixed");
            UpstreamHeaders::parse(&text).unwrap()
        };
        let headers = of(0);
        (1..=40).for_each(|number| headers.replace(&of(number)));
        let mut expected = vec!["key-40".to_owned(), "fixed".to_owned()];
        expected.extend((24..40).rev().map(|number| format!("key-{number}")));
        assert!(headers.sent().keys().eq(expected.iter().map(String::as_str)));
    }

    #[test]
    fn headers_are_read_from_lines_and_never_shown() {
        let text = "# a comment\n\nAuthorization: Bearer SECRET\r\nX-Key : SECRET:2\nx-key: b";
        let headers = UpstreamHeaders::parse(text).unwrap();
        let mut all = HeaderMap::new();
        headers.add_to(&mut all);
        assert_eq!(all["authorization"], "Bearer SECRET");
        let keys: Vec<_> = all.get_all("x-key").iter().collect();
        assert_eq!(keys, ["SECRET:2", "b"]);
        assert!(!format!("{headers:?}").contains("SECRET"));
        for (bad, says) in [
            ("SECRET", "line 1: write `Name: value`"),
            ("a: 1\nb c: SECRET", "line 2: the name"),
            ("a: SE\u{1}CRET", "line 1: the value"),
            ("Host: SECRET", "line 1: neve sets this header itself"),
            ("Sec-WebSocket-Key: SECRET", "line 1: neve sets"),
        ] {
            let error = UpstreamHeaders::parse(bad).unwrap_err();
            assert!(error.starts_with(says) && !error.contains("SECRET"), "{error}");
        }
    }

    #[test]
    fn values_that_were_replaced_stay_keys_and_those_of_harmless_headers_are_none() {
        let text = "Accept: application/json\nAccept-Language: en\nOrigin: http://a\nX-Key: first";
        let headers = UpstreamHeaders::parse(text).unwrap();
        let keys = |headers: &UpstreamHeaders| {
            headers.sent().keys().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(keys(&headers), ["first"]);
        for value in ["second", "third"] {
            let newer = UpstreamHeaders::parse(&format!("X-Key: {value}")).unwrap();
            headers.clone().replace(&newer);
            assert!(headers == newer);
        }
        assert_eq!(keys(&headers), ["third", "second", "first"]);
    }
}
