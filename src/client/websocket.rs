//! WebSockets to another server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderValue, USER_AGENT, VIA};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::http::AGENT;
use crate::config::{Address, UpstreamHeaders};

/// A connection, with TLS or without.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens WebSockets at one address.
pub(crate) struct WebSocketClient {
    pub(crate) address: Address,
    /// Sent with the handshake.
    pub(crate) headers: UpstreamHeaders,
    pub(crate) tls: rustls::ClientConfig,
    /// Time for the connection and the handshake.
    pub(crate) connect_timeout: Duration,
    pub(crate) message_bytes_max: usize,
    /// Bytes that are read at a time; `None` for tungstenite's default.
    pub(crate) read_bytes: Option<usize>,
}

/// Reason why there is no WebSocket.
#[derive(Debug)]
pub(crate) enum NotOpened {
    TimedOut,
    Socket(Error),
}

impl WebSocketClient {
    /// Opens a WebSocket over the connection that `wrap` makes of the bare one.
    pub(crate) async fn open<S: Stream>(
        &self,
        via: Option<HeaderValue>,
        wrap: impl FnOnce(Box<dyn Stream>) -> S,
    ) -> Result<WebSocketStream<S>, NotOpened> {
        let opening = timeout(self.connect_timeout, self.shake_hands(via, wrap));
        opening.await.map_err(|_| NotOpened::TimedOut)?.map_err(NotOpened::Socket)
    }

    async fn shake_hands<S: Stream>(
        &self,
        via: Option<HeaderValue>,
        wrap: impl FnOnce(Box<dyn Stream>) -> S,
    ) -> Result<WebSocketStream<S>, Error> {
        let mut request = self.address.reveal().clone().into_client_request()?;
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
        self.headers.add_to(request.headers_mut());
        request.headers_mut().extend(via.map(|via| (VIA, via)));
        let mut config = WebSocketConfig::default()
            .max_message_size(Some(self.message_bytes_max))
            .max_frame_size(Some(self.message_bytes_max));
        if let Some(bytes) = self.read_bytes {
            // 0: a message is written at once, and waits for no other one.
            config = config.read_buffer_size(bytes).write_buffer_size(0);
        }
        let stream = wrap(self.connect().await?);
        Ok(client_async_with_config(request, stream, Some(config)).await?.0)
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, Error> {
        let uri = self.address.reveal();
        // `Uri` keeps the brackets of an IPv6 address, which `connect` does not take.
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let secure = uri.scheme_str() == Some("wss");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        if !secure {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::new(self.tls.clone()));
        Ok(Box::new(connector.connect(name, stream).await?))
    }
}
