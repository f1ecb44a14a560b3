//! Facts of a request and its response, as lines show them.

use std::sync::Arc;

use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Method, Request, Version};

use super::called_methods::CalledMethods;
use super::request_id::request_id;
use super::trace_context::TraceContext;
use crate::http::admit::decode;
use crate::shared::ClientAddress;

/// Bytes of a path in a line.
const PATH_LEN_MAX: usize = 256;
/// Bytes of a user agent in a line.
const AGENT_LEN_MAX: usize = 128;
/// Segment of a path in front of an API key.
const KEY_SEGMENT: &str = "k";

/// Facts of a request header.
pub(super) struct RequestFacts {
    pub(super) client: ClientAddress,
    pub(super) method: Method,
    /// Path without query and API key.
    pub(super) path: String,
    pub(super) protocol: &'static str,
    pub(super) agent: Vec<u8>,
    pub(super) id: Option<HeaderValue>,
    pub(super) trace: Option<TraceContext>,
}

impl RequestFacts {
    pub(super) fn of<B>(request: &Request<B>, client: ClientAddress, has_id: bool) -> Self {
        let headers = request.headers();
        let agent = headers.get(USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
        Self {
            client,
            method: request.method().clone(),
            path: shown_path(request.uri().path()),
            protocol: match request.version() {
                Version::HTTP_10 => "HTTP/1.0",
                Version::HTTP_2 => "HTTP/2.0",
                _ => "HTTP/1.1",
            },
            // The cut may part a letter: lines escape all that is no ASCII.
            agent: agent[..agent.len().min(AGENT_LEN_MAX)].to_vec(),
            id: has_id.then(|| request_id(headers)),
            trace: if has_id { TraceContext::of(headers) } else { None },
        }
    }
}

/// A path without the API key that may be in it. A key is a secret, and more people read logs. A client may write
/// the path so that neve finds no key in it: with two slashes, dots or escapes.
fn shown_path(path: &str) -> String {
    // A key and the path behind it are longer than what is shown of them.
    let path = &path[..path.floor_char_boundary(2 * PATH_LEN_MAX)];
    let (mut shown, mut is_next) = (Vec::new(), false);
    for segment in path.split('/') {
        let decoded = segment.contains('%').then(|| decode(segment)).flatten();
        let decoded = decoded.as_deref().unwrap_or(segment);
        // A slash that is escaped may stand between the two.
        let mut parts =
            decoded.split('/').skip_while(|part| !part.eq_ignore_ascii_case(KEY_SEGMENT));
        let (announces, has_key) = (parts.next().is_some(), parts.next().is_some());
        // What does not decode, or decodes twice, may hide a slash in front of a key.
        let hides = decoded.to_ascii_lowercase().contains("%2f");
        let is_key = has_key || hides || (is_next && !matches!(decoded, "" | "."));
        is_next = (announces && !has_key) || (is_next && !is_key);
        shown.push(if is_key { "-" } else { segment });
    }
    let mut shown = shown.join("/");
    shown.truncate(shown.floor_char_boundary(PATH_LEN_MAX));
    shown
}

/// Facts of the response, as far as they are known.
#[derive(Default)]
pub(super) struct ResponseFacts {
    pub(super) status: Option<u16>,
    /// `hit`, `miss`, `relay` or `mixed`.
    pub(super) source: Option<HeaderValue>,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
    pub(super) called: CalledMethods,
    /// Name of the client's API key.
    pub(super) key: Option<Arc<str>>,
    /// True if the client left the end of a response which hyper had.
    pub(super) is_left: bool,
    /// True if the client did not take all of the response.
    pub(super) is_cut: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_has_no_key_and_is_cut() {
        for (path, shown) in [
            ("/", "/"),
            ("/ext/bc/C/rpc", "/ext/bc/C/rpc"),
            ("/k/SECRET", "/k/-"),
            ("/k/SECRET/ext/bc/C/rpc", "/k/-/ext/bc/C/rpc"),
            ("/k/", "/k/"),
            ("//k/SECRET/ws", "//k/-/ws"),
            ("/k//SECRET/ws", "/k//-/ws"),
            ("/./k/./SECRET", "/./k/./-"),
            ("/rpc/K/SECRET", "/rpc/K/-"),
            ("/%6b/SECRET", "/%6b/-"),
            ("/k/SE%2fCRET/ws", "/k/-/ws"),
            ("/k%2fSECRET/ws", "/-/ws"),
            ("/k%2fSECRET%zz", "/-"),
            ("/k/k/SECRET", "/k/-/-"),
            ("/block/%zz/x", "/block/%zz/x"),
        ] {
            assert_eq!(shown_path(path), shown);
        }
        assert_eq!(shown_path(&"/x".repeat(PATH_LEN_MAX)).len(), PATH_LEN_MAX);
        assert!(shown_path(&format!("/k/{}", "/x".repeat(PATH_LEN_MAX))).len() < PATH_LEN_MAX + 5);
    }
}
