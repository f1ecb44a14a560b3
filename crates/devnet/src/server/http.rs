//! HTTP as avalanchego speaks it, as far as a client that follows a chain can tell.

use std::{
    io,
    sync::Arc,
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER},
};
use neve_jsonrpc::parse;

use super::body::{HttpResponse, ReplyBody, read, text, with_headers};
use super::media_type::is_json;
use super::rpc::Reply;
use super::shared::Shared;
use super::socket::Fuse;
use super::websocket;
use crate::counters::add;
use crate::faults::{Fault, RetryAfter, Subject};

/// Longest body, as avalanchego bounds it.
const BODY_BYTES_MAX: usize = 5 << 20;
/// Longest answer whose length Go's server says before it.
const SIZED_BYTES_MAX: usize = 2_048;
const GARBAGE: &[u8] = b"<html><head><title>502 Bad Gateway</title></head>\xff\xfe</html>\n";

/// Answers a request. An error ends the connection.
pub(crate) async fn respond(
    shared: Arc<Shared>,
    fuse: Fuse,
    request: Request<Incoming>,
) -> io::Result<HttpResponse> {
    match request.uri().path() {
        "/" | "/ext/bc/C/rpc" => rpc(&shared, &fuse, request).await,
        "/ext/health" => Ok(json(StatusCode::SERVICE_UNAVAILABLE, "{\"healthy\":false}\n")),
        "/ext/info" => {
            let body = read(request.into_body(), BODY_BYTES_MAX).await.map_err(io::Error::other)?;
            Ok(json(StatusCode::OK, format!("{{\"bytes\":{}}}\n", body.len())))
        }
        "/ext/bc/C/ws" => Ok(websocket::upgrade(shared, request).await),
        _ => Ok(text(StatusCode::NOT_FOUND, "404 page not found\n")),
    }
}

/// Response of the node at a path of another API.
fn json(status: StatusCode, text: impl Into<Bytes>) -> HttpResponse {
    let headers = [(CONTENT_TYPE, "application/json")];
    let mut answer = with_headers(ReplyBody::new(text.into(), true), &headers);
    *answer.status_mut() = status;
    answer
}

async fn rpc(shared: &Shared, fuse: &Fuse, request: Request<Incoming>) -> io::Result<HttpResponse> {
    if let Some(refusal) = refuse(&request) {
        return Ok(refusal);
    }
    let body = read(request.into_body(), BODY_BYTES_MAX).await.map_err(io::Error::other)?;
    add(&shared.counters.http_requests);
    shared.node.until_answering().await;
    let request = parse(&body);
    let subjects = shared.rpc.subjects(&request);
    if shared.allowance.as_ref().is_some_and(|left| !left.take(subjects.len(), Instant::now())) {
        return Ok(refusal(StatusCode::TOO_MANY_REQUESTS, RetryAfter::Seconds(1)));
    }
    if let Some(answer) = before(shared, fuse, &subjects).await? {
        return Ok(answer);
    }
    let reply = shared.rpc.body(&request, &[]).await;
    Ok(after(shared, &subjects, reply))
}

/// Requests that the node refuses before it reads the body.
fn refuse(request: &Request<Incoming>) -> Option<HttpResponse> {
    let (method, headers) = (request.method(), request.headers());
    if [Method::PUT, Method::DELETE].contains(method) {
        return Some(text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n"));
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let no_body = length.unwrap_or(0) == 0 && !headers.contains_key("transfer-encoding");
    // libevm answers health checks of load balancers so.
    if method == Method::GET && no_body && request.uri().query().is_none() {
        return Some(with_headers(ReplyBody::new(Bytes::new(), true), &[]));
    }
    if let Some(length) = length.filter(|length| *length > BODY_BYTES_MAX as u64) {
        let message = format!("content length too large ({length}>{BODY_BYTES_MAX})\n");
        return Some(text(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    // libevm lets OPTIONS pass with any type.
    if method != Method::OPTIONS && !has_json(headers) {
        let message = "invalid content type, only application/json is supported\n";
        return Some(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    None
}

fn has_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| is_json(value.as_bytes()))
}

/// Faults instead of an answer.
async fn before(
    shared: &Shared,
    fuse: &Fuse,
    subjects: &[Subject<'_>],
) -> io::Result<Option<HttpResponse>> {
    let faults = &shared.node.faults;
    // Before any other fault: a reset connection has no response to change.
    if faults.strikes(&Fault::Reset, subjects) {
        fuse.blow();
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    let latency = |fault: &Fault| match fault {
        Fault::Latency(latency) => Some(*latency),
        _ => None,
    };
    if let Some(latency) = faults.take(subjects, latency) {
        tokio::time::sleep(latency).await;
    }
    if faults.strikes(&Fault::Stall, subjects) {
        faults.until_cleared(&Fault::Stall).await;
    }
    Ok(faults.take(subjects, instead))
}

/// Response of a fault that does not read the call.
fn instead(fault: &Fault) -> Option<HttpResponse> {
    match fault {
        Fault::Garbage => {
            let body = ReplyBody::new(Bytes::from_static(GARBAGE), true);
            Some(with_headers(body, &[(CONTENT_TYPE, "application/json")]))
        }
        Fault::Status(status, retry_after) => {
            Some(refusal(StatusCode::from_u16(*status).ok()?, *retry_after))
        }
        _ => None,
    }
}

fn refusal(status: StatusCode, retry_after: RetryAfter) -> HttpResponse {
    let mut answer = text(status, format!("{status}\n"));
    if let Some(value) = retry_after.value() {
        answer.headers_mut().insert(RETRY_AFTER, value);
    }
    answer
}

impl RetryAfter {
    fn value(self) -> Option<HeaderValue> {
        match self {
            Self::Absent => None,
            Self::Seconds(seconds) => Some(HeaderValue::from(seconds)),
            Self::Date(from_now) => {
                let date = SystemTime::now().checked_add(from_now)?;
                // Beyond the year 9999 there is no such date.
                let year_9999 =
                    SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(253_402_300_799);
                HeaderValue::from_str(&httpdate::fmt_http_date(date.min(year_9999))).ok()
            }
        }
    }
}

/// The answer, and faults in its body.
fn after(shared: &Shared, subjects: &[Subject<'_>], reply: Reply) -> HttpResponse {
    let sized = reply.plain || reply.body.len() <= SIZED_BYTES_MAX;
    let mut body = ReplyBody::new(reply.body.into(), sized);
    let faults = &shared.node.faults;
    if faults.strikes(&Fault::Truncate, subjects) {
        body.truncate();
    }
    let bandwidth = |fault: &Fault| match fault {
        Fault::Bandwidth(bytes_per_second) => Some(*bytes_per_second),
        _ => None,
    };
    if let Some(bytes_per_second) = faults.take(subjects, bandwidth) {
        body.slow_down(bytes_per_second);
    }
    with_headers(body, &[(CONTENT_TYPE, "application/json")])
}
