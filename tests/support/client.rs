//! A plain HTTP/1.1 client that keeps every byte: what a test compares must not pass through a
//! library that tidies up.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Above every time-out of the server that a test sets.
const LIMIT: Duration = Duration::from_mins(3);

/// An answer, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The first header of this name, which is lower-case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let same = |(found, _): &&(String, String)| found == name;
        self.headers.iter().find(same).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|why| panic!("{why}: {}", self.text()))
    }
}

/// A connection that is kept.
pub(crate) struct Client {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// Posts JSON to `/`.
    pub(crate) fn post(&mut self, body: &str) -> Response {
        let headers = [("Content-Type", "application/json")];
        self.request("POST", "/", &headers, body.as_bytes())
    }

    /// Calls a method and returns the whole answer.
    pub(crate) fn call(&mut self, method: &str, params: &str) -> Response {
        self.post(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#))
    }

    /// The result of a call that is answered with one.
    pub(crate) fn result(&mut self, method: &str, params: &str) -> serde_json::Value {
        let answer = self.call(method, params);
        assert_eq!(answer.status, 200, "{method}{params}: {}", answer.text());
        let mut answer = answer.json();
        assert!(answer.get("result").is_some(), "{method}{params}: {answer}");
        answer["result"].take()
    }

    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.request("GET", path, &[], b"")
    }

    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&[name, ": ", value, "\r\n"].concat());
        }
        if !body.is_empty() || matches!(method, "POST" | "PUT") {
            head.push_str(&["Content-Length: ", &body.len().to_string(), "\r\n"].concat());
        }
        let request = [head.as_bytes(), b"\r\n", body].concat();
        let head_only = method == "HEAD";
        if let Ok(response) = self.exchange(&request, head_only) {
            return response;
        }
        // The server may have closed an idle connection: once more on a new one.
        self.stream = None;
        self.exchange(&request, head_only).unwrap_or_else(|why| panic!("{method} {path}: {why}"))
    }

    /// Sends bytes as they are and reads an answer.
    pub(crate) fn raw(&mut self, request: &[u8]) -> io::Result<Response> {
        self.stream = None;
        self.exchange(request, false)
    }

    fn exchange(&mut self, request: &[u8], head_only: bool) -> io::Result<Response> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(connect(self.address)?),
        };
        stream.get_mut().write_all(request)?;
        let response = read(stream, head_only)?;
        if response.header("connection") == Some("close") {
            self.stream = None;
        }
        Ok(response)
    }
}

fn connect(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

/// Reads one answer.
pub(crate) fn read(stream: &mut impl BufRead, head_only: bool) -> io::Result<Response> {
    let status = line(stream)?;
    let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    let mut headers = Vec::new();
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut response = Response { status, headers, body: Vec::new() };
    if head_only {
        return Ok(response);
    }
    if response.header("transfer-encoding") == Some("chunked") {
        response.body = chunks(stream)?;
    } else {
        let len = response.header("content-length").map_or(Ok(0), str::parse);
        response.body = vec![0; len.map_err(io::Error::other)?];
        stream.read_exact(&mut response.body)?;
    }
    Ok(response)
}

fn chunks(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let len = usize::from_str_radix(&line(stream)?, 16).map_err(io::Error::other)?;
        let start = body.len();
        body.resize(start + len, 0);
        stream.read_exact(&mut body[start..])?;
        line(stream)?;
        if len == 0 {
            return Ok(body);
        }
    }
}
