//! Requests that a listener takes for JSON-RPC.

use std::sync::Arc;

use hyper::Method;

use super::error_response::ErrorResponse;
use super::hosts::Hosts;
use super::media_type;
use crate::http::clients::Proxies;

/// Paths, hosts and proxies of a listener.
pub(crate) struct Policy {
    /// True if it answers JSON-RPC.
    pub(crate) rpc_here: bool,
    /// True if the fast path answers it: keys and an access log have it answered on the full path.
    pub(crate) fast_here: bool,
    pub(crate) hosts: Hosts,
    /// Proxies that name their clients.
    pub(crate) proxies: Proxies,
    /// Paths of JSON-RPC besides the node's.
    pub(crate) rpc_paths: Arc<[String]>,
}

impl Policy {
    /// Checks the host that a request names.
    pub(crate) fn check_host(&self, host: Option<&[u8]>) -> Result<(), ErrorResponse> {
        self.hosts.check(host).map_err(ErrorResponse::host)
    }
}

/// Checks method, length and media type of a request to a path of JSON-RPC, in the node's order and
/// with its exceptions (libevm, `validateRequest` in `rpc/http.go`). `body_bytes_max` bounds the
/// body, and `len` is its length if that is known.
pub(crate) fn check_json(
    method: &Method,
    len: Option<u64>,
    body_bytes_max: usize,
    content_type: &[u8],
) -> Result<(), ErrorResponse> {
    // The node answers CONNECT as POST. But a 2xx to CONNECT begins a tunnel, and has no body (RFC 9110, 9.3.6).
    if matches!(*method, Method::PUT | Method::DELETE | Method::CONNECT) {
        return Err(ErrorResponse::METHOD);
    }
    let limit = body_bytes_max as u64;
    if let Some(len) = len.filter(|len| *len > limit) {
        return Err(ErrorResponse::too_long(len, limit));
    }
    if method != Method::OPTIONS && !media_type::is_json(content_type) {
        return Err(ErrorResponse::MEDIA_TYPE);
    }
    Ok(())
}
