//! The pages of an admin listener, by TCP or by a socket in the file system.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use hyper::header::HeaderMap;
use hyper::http::uri::PathAndQuery;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::client::{PeerText, StreamClient, client_config, innermost};
use crate::config::{Endpoint, ListenAddress};

/// Time for an answer, and bytes of it: /metrics has tens of kilobytes.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The pages of an admin listener.
pub(super) struct AdminPages {
    client: AdminClient,
    address: String,
}

enum AdminClient {
    Tcp(StreamClient),
    Unix(PathBuf),
}

impl AdminPages {
    pub(super) fn at(address: &ListenAddress) -> Result<Self, String> {
        let client = match address {
            ListenAddress::Tcp { .. } => {
                let endpoint = Endpoint::parse(&format!("http://{address}"))?;
                AdminClient::Tcp(StreamClient::new(
                    &endpoint,
                    client_config(None)?,
                    ANSWER_TIME_MAX,
                ))
            }
            ListenAddress::Unix(path) => AdminClient::Unix(path.clone()),
        };
        Ok(Self { client, address: address.to_string() })
    }

    async fn get(&self, path: &'static str) -> Result<Bytes, String> {
        let body = async {
            match &self.client {
                AdminClient::Tcp(client) => by_tcp(client, path).await,
                AdminClient::Unix(socket) => by_socket(socket, path).await,
            }
        };
        let body = timeout(ANSWER_TIME_MAX, body).await;
        let body = body.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_TIME_MAX:?}")));
        body.map_err(|why| {
            let why = PeerText::new(&why);
            format!("cannot reach neve at {}: {why}; see --admin-listen", self.address)
        })
    }

    pub(super) async fn health(&self) -> Result<Value, String> {
        let body = self.get("/health").await?;
        let health: Option<Value> = serde_json::from_slice(&body).ok();
        health.filter(|health| health["storage"].is_object()).ok_or_else(|| {
            let address = &self.address;
            format!("{address} has no full /health; name the admin listener by --admin-listen")
        })
    }

    pub(super) async fn metrics(&self) -> Option<String> {
        let body = self.get("/metrics").await.ok()?;
        Some(String::from_utf8_lossy(&body).into_owned())
    }
}

async fn by_tcp(client: &StreamClient, path: &'static str) -> Result<Bytes, String> {
    let path = PathAndQuery::from_static(path);
    let response = client.send(Some(&path), None, HeaderMap::new()).await;
    let response = response.map_err(|error| innermost(&error))?;
    if response.status() != StatusCode::OK {
        return Err(format!("HTTP {}", response.status()));
    }
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| error.to_string())
}

/// Asks by a socket in the file system.
async fn by_socket(socket: &Path, path: &str) -> Result<Bytes, String> {
    let response = exchange(socket, path).await.map_err(|error| error.to_string())?;
    // The connection is closed behind the response, so all that follows is the body.
    let end = memchr::memmem::find(&response, b"\r\n\r\n").ok_or("no HTTP response")?;
    let line = response.split(|b| *b == b'\r').next().unwrap_or_default();
    if !line.starts_with(b"HTTP/1.1 200 ") {
        return Err(String::from_utf8_lossy(line).into_owned());
    }
    Ok(Bytes::from(response).slice(end + 4..))
}

async fn exchange(socket: &Path, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).await?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut response = Vec::new();
    stream.take(ANSWER_BYTES_MAX as u64).read_to_end(&mut response).await?;
    Ok(response)
}
