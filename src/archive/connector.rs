//! neve's HTTP client as the one of the object store's crate.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::header::{IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, StatusCode};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use tokio::time::timeout;

use crate::client::{RawClient, whole_story};

/// Time that any request may take, and the slowest transfer that adds to it.
const TIME_MAX: Duration = Duration::from_mins(1);
const BYTES_PER_SECOND_MIN: u64 = 100_000;

/// Time that the transfer of so many bytes may take.
pub(super) fn time_max(bytes: u64) -> Duration {
    TIME_MAX + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

/// Answer 501 to a PUT with a condition. The crate has no kind of errors for it, and would try it ten times.
#[derive(Debug, thiserror::Error)]
#[error("HTTP 501: the store does not implement the condition of a PUT")]
pub(super) struct ConditionsUnsupported;

/// Connects by a client of neve.
pub(super) struct Connector(pub(super) RawClient<HttpRequestBody>);

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Self(self.0.clone())))
    }
}

type HttpFuture<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Connector {
    fn call<'c, 'a>(&'c self, request: HttpRequest) -> HttpFuture<'a>
    where
        'c: 'a,
        Self: 'a,
    {
        Box::pin(self.send(request))
    }
}

impl Connector {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Of the body that is sent: that of the response has a limit of its own.
        let limit = time_max(request.body().content_length() as u64);
        let is_condition = |name| request.headers().contains_key(name);
        let is_conditional = request.method() == Method::PUT
            && (is_condition(IF_MATCH) || is_condition(IF_NONE_MATCH));
        let asked = timeout(limit, self.0.request(request)).await;
        let answered = asked.map_err(|slow| HttpError::new(HttpErrorKind::Timeout, slow))?;
        let response = answered.map_err(|error| {
            let is_connect = error.is_connect();
            let kind = if is_connect { HttpErrorKind::Connect } else { HttpErrorKind::Request };
            // The crate shows the outermost error alone.
            HttpError::new(kind, io::Error::other(whole_story(&error).to_string()))
        })?;
        if is_conditional && response.status() == StatusCode::NOT_IMPLEMENTED {
            return Err(HttpError::new(HttpErrorKind::Unknown, ConditionsUnsupported));
        }
        let (mut head, body) = response.into_parts();
        if head.status == StatusCode::RANGE_NOT_SATISFIABLE {
            head.status = StatusCode::PRECONDITION_FAILED; // has a kind of its own in the crate's errors
        }
        let body = body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error));
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}
