//! Connections of clients that mean well: kept, and opened anew when they end.

use std::io::{self, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::support::client::{Response, read};

/// Above every time-out of the server.
const LIMIT: Duration = Duration::from_secs(40);

/// Version of HTTP that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// A connection of either version.
pub(crate) enum Line {
    Http1(Http1Line),
    Http2(Box<Http2Line>),
}

impl Line {
    pub(crate) fn new(version: Version, address: SocketAddr, path: &'static str) -> Self {
        match version {
            Version::Http1 => Self::Http1(Http1Line { address, path, stream: None }),
            Version::Http2 => Self::Http2(Box::new(Http2Line::new(address, path))),
        }
    }

    pub(crate) fn post(&mut self, body: &str) -> io::Result<Response> {
        match self {
            Self::Http1(line) => line.post(body),
            Self::Http2(line) => line.post(body),
        }
    }
}

pub(crate) struct Http1Line {
    address: SocketAddr,
    path: &'static str,
    stream: Option<BufReader<TcpStream>>,
}

impl Http1Line {
    fn post(&mut self, body: &str) -> io::Result<Response> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(connect(self.address)?),
        };
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.path,
            self.address,
            body.len()
        );
        let sent =
            stream.get_mut().write_all([head.as_bytes(), body.as_bytes()].concat().as_slice());
        let response = sent.and_then(|()| read(stream, false));
        let closes = |response: &Response| response.header("connection") == Some("close");
        if response.as_ref().is_ok_and(closes) || response.is_err() {
            self.stream = None;
        }
        response
    }
}

fn connect(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

/// A connection that works while it has a request.
pub(crate) struct Http2Line {
    address: SocketAddr,
    path: &'static str,
    runtime: Runtime,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Http2Line {
    fn new(address: SocketAddr, path: &'static str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { address, path, runtime, sender: None }
    }

    fn post(&mut self, body: &str) -> io::Result<Response> {
        let request = Request::post(format!("http://{}{}", self.address, self.path))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .expect("a request");
        let (address, sender) = (self.address, self.sender.take());
        let exchange = async { timeout(LIMIT, exchange(address, sender, request)).await? };
        let (sender, response) = self.runtime.block_on(exchange)?;
        self.sender = Some(sender);
        Ok(response)
    }
}

type Sender = SendRequest<Full<Bytes>>;

async fn exchange(
    address: SocketAddr,
    sender: Option<Sender>,
    request: Request<Full<Bytes>>,
) -> io::Result<(Sender, Response)> {
    let mut sender = match sender {
        Some(sender) => sender,
        None => open(address).await?,
    };
    let response = sender.send_request(request).await.map_err(broken)?;
    let (head, body) = response.into_parts();
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let headers =
        head.headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes())));
    let headers = headers.collect();
    let body = body.collect().await.map_err(broken)?.to_bytes().to_vec();
    Ok((sender, Response { status: head.status.as_u16(), headers, body }))
}

async fn open(address: SocketAddr) -> io::Result<Sender> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(connection);
    Ok(sender)
}

fn broken(error: hyper::Error) -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, error)
}
