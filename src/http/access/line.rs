//! A line of the access log: the combined form of Apache and nginx with more fields behind it, or a
//! JSON object.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

use super::escaped::{json, list_name, quote};
use super::facts::{RequestFacts, ResponseFacts};
use super::trace_context::TraceContext;
use crate::config::settings::LogFormat;

/// Protocol and HTTP method of a message of a WebSocket, as a line shows them.
const WEBSOCKET: &str = "WebSocket";
const MESSAGE: &str = "MESSAGE";
/// Bytes of an HTTP method in a line: a client may write any token.
const METHOD_LEN_MAX: usize = 32;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Facts of a line.
pub(super) struct AccessLine<'e> {
    pub(super) time: SystemTime,
    pub(super) took: Duration,
    pub(super) request: &'e RequestFacts,
    pub(super) is_message: bool,
    pub(super) response: &'e ResponseFacts,
}

impl AccessLine<'_> {
    /// Writes the line with its newline.
    pub(super) fn written(&self, format: LogFormat) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        match format {
            LogFormat::Text => self.write_text(&mut out),
            LogFormat::Json => self.write_json(&mut out),
        }
        out.push(b'\n');
        out
    }

    fn method(&self) -> &str {
        let method = if self.is_message { MESSAGE } else { self.request.method.as_str() };
        &method[..method.len().min(METHOD_LEN_MAX)] // a token is ASCII
    }

    fn protocol(&self) -> &str {
        if self.is_message { WEBSOCKET } else { self.request.protocol }
    }

    /// Writes the combined form, and then `name=value`. Writing to a Vec cannot fail.
    fn write_text(&self, out: &mut Vec<u8>) {
        let Self { request, response, .. } = self;
        self.write_combined(out);
        let (took, len) = (self.took.as_secs_f64(), response.request_bytes);
        let _ = write!(out, " time={took:.6} request_bytes={len}");
        let _ = write!(out, " calls={} methods=", response.called.calls);
        write_list(out, &response.called.names, list_name);
        if response.called.names.is_empty() {
            out.push(b'-');
        }
        out.extend_from_slice(b" source=");
        out.extend_from_slice(
            response.source.as_ref().map_or(&b"-"[..], |source| source.as_bytes()),
        );
        if response.is_cut {
            out.extend_from_slice(b" cut=true");
        }
        request.write_text_ids(out);
    }

    /// Writes the combined form of Apache and nginx.
    fn write_combined(&self, out: &mut Vec<u8>) {
        let Self { request, response, .. } = self;
        let key = response.key.as_deref().unwrap_or("-");
        let _ = write!(out, "{} - ", request.client);
        list_name(out, key.as_bytes());
        let _ = write!(out, " [{}] ", common_time(self.time));
        quote(out, format!("{} {} {}", self.method(), request.path, self.protocol()).as_bytes());
        match response.status {
            Some(status) => _ = write!(out, " {status}"),
            None => out.extend_from_slice(b" -"),
        }
        // The `-` is the Referer, which the combined form has at this place.
        let _ = write!(out, " {} \"-\" ", response.response_bytes);
        quote(out, if request.agent.is_empty() { b"-" } else { &request.agent });
    }

    /// Writes a JSON object. Writing to a Vec cannot fail.
    fn write_json(&self, out: &mut Vec<u8>) {
        let Self { request, response, .. } = self;
        let _ = write!(out, "{{\"timestamp\":\"{}\"", precise_time(self.time));
        let _ = write!(out, ",\"client\":\"{}\"", request.client);
        member(out, "http_method", self.method().as_bytes());
        member(out, "path", request.path.as_bytes());
        member(out, "protocol", self.protocol().as_bytes());
        self.write_json_counts(out);
        if let Some(source) = &response.source {
            member(out, "source", source.as_bytes());
        }
        if response.is_cut {
            out.extend_from_slice(b",\"cut\":true");
        }
        if let Some(key) = &response.key {
            member(out, "key", key.as_bytes());
        }
        if !request.agent.is_empty() {
            member(out, "user_agent", &request.agent);
        }
        request.write_json_ids(out);
        out.push(b'}');
    }

    /// Writes members of a JSON object: the status, sizes, the time, and the calls.
    fn write_json_counts(&self, out: &mut Vec<u8>) {
        let response = self.response;
        if let Some(status) = response.status {
            let _ = write!(out, ",\"status\":{status}");
        }
        let _ = write!(out, ",\"request_bytes\":{}", response.request_bytes);
        let _ = write!(out, ",\"response_bytes\":{}", response.response_bytes);
        let _ = write!(out, ",\"duration_seconds\":{:.6}", self.took.as_secs_f64());
        let _ = write!(out, ",\"calls\":{},\"methods\":[", response.called.calls);
        write_list(out, &response.called.names, json);
        out.push(b']');
    }
}

impl RequestFacts {
    /// Writes the ids of the request and of its trace, as far as it has them.
    fn write_text_ids(&self, out: &mut Vec<u8>) {
        if let Some(id) = &self.id {
            out.extend_from_slice(b" request_id=");
            out.extend_from_slice(id.as_bytes());
        }
        if let Some(trace) = &self.trace {
            let (id, parent, span) = ids(trace);
            let _ = write!(out, " trace_id={id} parent_id={parent} span_id={span}");
        }
    }

    /// Writes the same ids as members of a JSON object.
    fn write_json_ids(&self, out: &mut Vec<u8>) {
        if let Some(id) = &self.id {
            member(out, "request_id", id.as_bytes());
        }
        if let Some(trace) = &self.trace {
            let (id, parent, span) = ids(trace);
            member(out, "trace_id", id.as_bytes());
            member(out, "parent_id", parent.as_bytes());
            member(out, "span_id", span.as_bytes());
        }
    }
}

/// Writes names with a comma between two, each by `write`.
fn write_list(out: &mut Vec<u8>, names: &[Box<str>], write: fn(&mut Vec<u8>, &[u8])) {
    for (at, name) in names.iter().enumerate() {
        out.extend_from_slice(if at > 0 { b"," } else { b"" });
        write(out, name.as_bytes());
    }
}

/// Trace, span of the client, and span of neve.
fn ids(trace: &TraceContext) -> (&str, &str, String) {
    (trace.trace(), trace.parent(), trace.span())
}

fn member(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    let _ = write!(out, ",\"{name}\":"); // a Vec takes all
    json(out, value);
}

/// Day, month, year and time of day in UTC, from a date of HTTP: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn parts(date: &str) -> Option<[&str; 4]> {
    Some([date.get(5..7)?, date.get(8..11)?, date.get(12..16)?, date.get(17..25)?])
}

/// A time as the combined form has it.
fn common_time(time: SystemTime) -> String {
    let date = HttpDate::from(time).to_string();
    let [day, month, year, clock] = parts(&date).unwrap_or_default();
    format!("{day}/{month}/{year}:{clock} +0000")
}

/// A time as neve's own log has it (RFC 3339).
fn precise_time(time: SystemTime) -> String {
    // A date of HTTP has whole seconds.
    let micros = time.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_micros();
    let date = HttpDate::from(time).to_string();
    let [day, month, year, clock] = parts(&date).unwrap_or_default();
    let month = MONTHS.iter().position(|name| *name == month).map_or(0, |at| at + 1);
    format!("{year}-{month:02}-{day}T{clock}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use hyper::Method;
    use hyper::header::HeaderValue;

    use super::*;
    use crate::http::access::called_methods::CalledMethods;

    fn request() -> RequestFacts {
        RequestFacts {
            client: "203.0.113.9".parse::<IpAddr>().expect("an address").into(),
            method: Method::POST,
            path: "/a\u{1b} \" b".to_owned(),
            protocol: "HTTP/1.1",
            agent: b"curl/8\r\n\xff\"".to_vec(),
            id: Some(HeaderValue::from_static("r-1")),
            trace: None,
        }
    }

    fn response() -> ResponseFacts {
        let names = ["eth_call", "x,\"\n 203.0.113.1 - -"].map(Box::from).to_vec();
        ResponseFacts {
            status: Some(421),
            source: Some(HeaderValue::from_static("miss")),
            request_bytes: 83,
            response_bytes: 512,
            called: CalledMethods { calls: 3, names },
            key: Some("shop \"x".into()),
            is_left: false,
            is_cut: true,
        }
    }

    fn line(format: LogFormat, request: &RequestFacts, response: &ResponseFacts) -> String {
        let time = UNIX_EPOCH + Duration::from_micros(784_111_777_000_042);
        let took = Duration::from_micros(1234);
        let line = AccessLine { time, took, request, is_message: false, response };
        String::from_utf8(line.written(format)).expect("text")
    }

    #[test]
    fn text_is_the_combined_form_with_fields_behind_it() {
        let expected = concat!(
            r#"203.0.113.9 - shop\x20\x22x [06/Nov/1994:08:49:37 +0000] "#,
            r#""POST /a\x1B \x22 b HTTP/1.1" 421 512 "-" "curl/8\x0D\x0A\xFF\x22" "#,
            r"time=0.001234 request_bytes=83 calls=3 ",
            r"methods=eth_call,x\x2C\x22\x0A\x20203.0.113.1\x20-\x20- source=miss cut=true ",
            "request_id=r-1\n",
        );
        assert_eq!(line(LogFormat::Text, &request(), &response()), expected);
        let bare = RequestFacts { agent: Vec::new(), id: None, ..request() };
        let none = ResponseFacts { status: Some(499), ..Default::default() };
        let ends = "499 0 \"-\" \"-\" time=0.001234 request_bytes=0 calls=0 methods=- source=-\n";
        let text = line(LogFormat::Text, &bare, &none);
        assert!(text.ends_with(ends), "{text}");
    }

    #[test]
    fn long_method_is_cut() {
        let method = Method::from_bytes("X".repeat(60_000).as_bytes()).expect("a token");
        let request = RequestFacts { method, ..request() };
        let shown = format!("\"{} /a", "X".repeat(METHOD_LEN_MAX));
        assert!(line(LogFormat::Text, &request, &response()).contains(&shown));
        assert!(line(LogFormat::Json, &request, &response()).len() < 1000);
    }

    #[test]
    fn json_is_one_object_in_one_line() {
        let text = line(LogFormat::Json, &request(), &response());
        assert_eq!(text.find('\n'), Some(text.len() - 1));
        let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let expected = serde_json::json!({
            "timestamp": "1994-11-06T08:49:37.000042Z",
            "client": "203.0.113.9",
            "http_method": "POST",
            "path": "/a\u{1b} \" b",
            "protocol": "HTTP/1.1",
            "status": 421,
            "request_bytes": 83,
            "response_bytes": 512,
            "duration_seconds": 0.001_234,
            "calls": 3,
            "methods": ["eth_call", "x,\"\n 203.0.113.1 - -"],
            "source": "miss",
            "cut": true,
            "key": "shop \"x",
            "user_agent": "curl/8\r\n\u{fffd}\"",
            "request_id": "r-1",
        });
        assert_eq!(read, expected);
    }
}
