//! Refusals of a head alone, as Go's server makes them before a handler sees the request.

use hyper::header::{EXPECT, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Version};

use crate::http::admit::{BadHost, ErrorResponse, REST, check_host_form, has_valid_escapes};

const CONTINUE: &[u8] = b"100-continue";

/// Returns the refusal of a head, in the order of Go's `net/http` (`readRequest` in `request.go`, `conn.serve` in
/// `server.go`).
pub(super) fn head_refusal<B>(request: &Request<B>) -> Option<ErrorResponse> {
    let (headers, path) = (request.headers(), request.uri().path());
    // A malformed escape in the path of a document is a wrong parameter, which has a text of its own.
    if !has_valid_escapes(path) && !path.starts_with(REST) {
        return Some(ErrorResponse::BAD_REQUEST);
    }
    let mut hosts = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
    let host = hosts.next();
    // A front may have believed the other one: a server must refuse (RFC 9112, 3.2).
    if hosts.next().is_some() {
        return Some(ErrorResponse::HOSTS);
    }
    if request.version() == Version::HTTP_11 && has_unknown_coding(headers) {
        return Some(ErrorResponse::TRANSFER_ENCODING);
    }
    if request.version() == Version::HTTP_2 {
        return None; // golang.org/x/net/http2 calls the handler without these
    }
    let refusal = bad_host(request, host).map(ErrorResponse::host);
    refusal.or_else(|| expects_the_unknown(headers).then_some(ErrorResponse::EXPECTATION))
}

/// Fault of the `Host` of a request, if it has one.
fn bad_host<B>(request: &Request<B>, host: Option<&[u8]>) -> Option<BadHost> {
    let must_name = request.version() == Version::HTTP_11 && request.method() != Method::CONNECT;
    if host.is_none() && must_name {
        return Some(BadHost::Missing);
    }
    check_host_form(host.unwrap_or_default()).err()
}

/// Host and port of an authority. Text before an `@` names a user, and no host (RFC 3986, 3.2).
pub(super) fn host_of(authority: &Authority) -> &str {
    authority.as_str().rsplit('@').next().unwrap_or_default()
}

/// True if a body has another transfer coding than `chunked` alone. hyper looks at the last one only.
fn has_unknown_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    codings.next().is_some_and(|first| !is_chunked(first) || codings.next().is_some())
}

/// True if the first `Expect` has text without `100-continue` among its words (`hasToken` in `header.go`).
fn expects_the_unknown(headers: &HeaderMap) -> bool {
    let expect = headers.get(EXPECT).map_or(&b""[..], HeaderValue::as_bytes);
    let mut words = expect.split(|byte| b" ,\t".contains(byte));
    !expect.is_empty() && !words.any(|word| word.eq_ignore_ascii_case(CONTINUE))
}
