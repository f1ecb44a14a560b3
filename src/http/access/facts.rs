//! Facts of a request and its response, as lines show them.

use std::sync::Arc;

use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Method, Request, Version};

use super::called_methods::CalledMethods;
use super::request_id::request_id;
use super::trace_context::TraceContext;
use crate::shared::ClientAddress;

/// Bytes of a path in a line.
const PATH_LEN_MAX: usize = 256;
/// Bytes of a user agent in a line.
const AGENT_LEN_MAX: usize = 128;
/// Begin of a path with an API key.
const KEY_PATH: &str = "/k/";

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
            agent: agent[..agent.len().min(AGENT_LEN_MAX)].to_vec(),
            id: has_id.then(|| request_id(headers)),
            trace: if has_id { TraceContext::of(headers) } else { None },
        }
    }
}

/// A path without the API key that may be in it.
fn shown_path(path: &str) -> String {
    let cut = |path: &str| path[..path.floor_char_boundary(PATH_LEN_MAX)].to_owned();
    match path.strip_prefix(KEY_PATH) {
        // A key is a secret, and more people read logs.
        Some(rest) => format!("{KEY_PATH}-{}", cut(rest.find('/').map_or("", |at| &rest[at..]))),
        None => cut(path),
    }
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
            ("/k/", "/k/-"),
        ] {
            assert_eq!(shown_path(path), shown);
        }
        assert_eq!(shown_path(&"/x".repeat(PATH_LEN_MAX)).len(), PATH_LEN_MAX);
        assert!(shown_path(&format!("/k/{}", "/x".repeat(PATH_LEN_MAX))).len() < PATH_LEN_MAX + 5);
    }
}
