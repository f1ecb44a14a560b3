//! HTTP headers that say what a body is.

use hyper::Response;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY};

use crate::body::ResponseBody;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// In Vary, of an answer that is there in several codings.
pub(crate) const BY_CODING: HeaderValue = HeaderValue::from_static("Accept-Encoding");
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Names the content coding, if there is one. Nobody may keep the answer to a POST, so it is said
/// only then that it depends on the request.
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

pub(crate) fn with_type(
    mut response: Response<ResponseBody>,
    value: HeaderValue,
) -> Response<ResponseBody> {
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}
