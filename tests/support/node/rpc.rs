//! JSON-RPC over one plain connection for each request.
//!
//! HTTP/1.0 on purpose: an answer then ends where the connection ends and is never chunked, so the
//! bytes after the header are the body exactly as the server wrote it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// Above the node's own limit of 29.9 s, so that a slow answer is seen and not cut.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);
/// Loopback connects at once or is refused at once.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// No answer of these tests comes near it; a runaway one must not fill the memory.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The answer's body for one call, as it came.
///
/// # Panics
/// If the server cannot be asked.
pub(crate) fn rpc(url: &str, method: &str, params: &Value) -> Vec<u8> {
    post(url, &request(0, method, params)).unwrap_or_else(|why| panic!("{method} at {url}: {why}"))
}

/// The `result` of one call.
///
/// # Panics
/// If the server cannot be asked or answers with an error.
pub(crate) fn call(url: &str, method: &str, params: &Value) -> Value {
    try_call(url, method, params).unwrap_or_else(|why| panic!("{why}"))
}

/// The `result` of one call, or in words why there is none.
pub(crate) fn try_call(url: &str, method: &str, params: &Value) -> Result<Value, String> {
    let name = |why: String| format!("{method} at {url}: {why}");
    let body = post(url, &request(1, method, params)).map_err(name)?;
    result_of(parse(&body).map_err(name)?).map_err(name)
}

/// The results of several calls of one method in one batch, in the order of `params`.
pub(crate) fn try_batch(url: &str, method: &str, params: &[Value]) -> Result<Vec<Value>, String> {
    let name = |why: String| format!("batch of {} {method} at {url}: {why}", params.len());
    let calls: Vec<Value> =
        params.iter().enumerate().map(|(id, one)| request(id, method, one)).collect();
    let body = post(url, &Value::Array(calls)).map_err(name)?;
    let Value::Array(answers) = parse(&body).map_err(name)? else {
        return Err(name(format!("not a list: {}", String::from_utf8_lossy(&body))));
    };
    if answers.len() != params.len() {
        return Err(name(format!("{} answers", answers.len())));
    }
    answers.into_iter().map(|answer| result_of(answer).map_err(name)).collect()
}

/// Makes a request object.
fn request(id: usize, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// The parsed body, or the body in the complaint.
fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body)
        .map_err(|why| format!("{why} in {:?}", String::from_utf8_lossy(body)))
}

/// Takes the result from an envelope; `result: null` is a result.
fn result_of(mut answer: Value) -> Result<Value, String> {
    match answer.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(answer.to_string()),
    }
}

/// Sends `body` and returns the body of the answer, whatever it says, if its status is 200.
pub(crate) fn post(url: &str, body: &Value) -> Result<Vec<u8>, String> {
    let (host, path) = split(url)?;
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let answer = exchange(host, &[head.as_bytes(), body.as_bytes()].concat());
    body_of(answer.map_err(|why| why.to_string())?)
}

/// Host with port, and path of an `http://` address.
fn split(url: &str) -> Result<(&str, &str), String> {
    let rest = url.strip_prefix("http://").ok_or_else(|| format!("not http: {url}"))?;
    Ok(rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash)))
}

/// Writes `request` and reads until the server closes.
fn exchange(host: &str, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let address: SocketAddr = host.parse().map_err(std::io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Cuts the header off a 200 answer.
fn body_of(mut answer: Vec<u8>) -> Result<Vec<u8>, String> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let Some(end) = end.filter(|_| answer.get(8..12) == Some(b" 200")) else {
        return Err(format!("unexpected answer {:?}", String::from_utf8_lossy(&answer)));
    };
    Ok(answer.split_off(end + 4))
}
