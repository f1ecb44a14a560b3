//! HTTP headers that describe a body.

use hyper::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY};
use hyper::{Response, StatusCode};

use crate::body::ResponseBody;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain");
pub(crate) const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// Value of `Vary` of a response that exists in several codings.
pub(crate) const BY_CODING: HeaderValue = HeaderValue::from_static("Accept-Encoding");
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Names the content coding, and `Vary`, if there is one. A response to POST is not cached, so
/// uncompressed ones need no `Vary`.
pub(crate) fn coded(response: Response<ResponseBody>) -> Response<ResponseBody> {
    let mut response = name_coding(response);
    if response.body().coding().is_some() {
        response.headers_mut().append(VARY, BY_CODING);
    }
    response
}

pub(crate) fn name_coding(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    if let Some(coding) = response.body().coding() {
        let name = HeaderValue::from_static(coding.name());
        response.headers_mut().insert(CONTENT_ENCODING, name);
    }
    response
}

/// Returns a response with a body of a media type.
pub(crate) fn typed<B>(status: StatusCode, media_type: HeaderValue, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

/// Marks a response that no cache may store.
pub(crate) fn not_stored<B>(mut response: Response<B>) -> Response<B> {
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}
