//! New heads over WebSocket: a wake-up, never the only source.
//!
//! A frame says that the upstream has executed a height. Its keys tell the release of the upstream.
//! neve uses nothing else of it: blocks come by HTTP and are proven. If the socket is silent and does
//! not answer pings, it is dead and is opened anew. Meanwhile the follower polls.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use metrics::counter;
use neve_store::HEIGHT_MAX;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};
use tracing::{debug, info};

use crate::client::{Backoff, NotOpened, PeerText, Stream, WebSocketClient};
use crate::config::settings::FetchConfig;
use crate::config::{Address, UpstreamHeaders};
use crate::shared::Status;

/// A head's frame has a few KiB.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// Wait between two connections: the first, and the longest.
const RECONNECT_FIRST: Duration = Duration::from_secs(1);
const RECONNECT_MAX: Duration = Duration::from_mins(1);

/// A key that v1.15 writes in every head, and v1.14 in none (see [`neve_chain::HeaderForm`]).
const HELICON_KEY: &str = "\"targetExponent\":";

type HeadSocket = WebSocketStream<Box<dyn Stream>>;

/// Listens for heads.
pub(crate) struct HeadListener {
    pub(crate) uri: Address,
    pub(crate) headers: UpstreamHeaders,
    pub(crate) tls: rustls::ClientConfig,
    pub(crate) config: FetchConfig,
    pub(crate) status: Arc<Status>,
    /// Shortest time from one connect to the next. The public API allows few connects a minute, and
    /// blocks a client with more of them for a day.
    pub(crate) connect_interval: Duration,
    /// The newest height announced, and a count that changes with each connection: after a cut
    /// the upstream may answer by other rules.
    pub(crate) newest: watch::Sender<Announced>,
}

/// Announcements of the socket so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Announced {
    /// The newest height.
    pub(crate) height: Option<u64>,
    /// True if the newest head has the keys of v1.15; `None` if it came otherwise.
    pub(crate) helicon_keys: Option<bool>,
    /// Connections so far.
    pub(crate) connections: u64,
    /// True if heads come over it now.
    pub(crate) live: bool,
}

/// Reason why a socket ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("{}", PeerText::new(&.0.to_string()))]
    NotOpened(Error),
    #[error("{}", PeerText::new(&.0.to_string()))]
    Socket(#[from] Error),
    #[error("nothing came for {0:?}")]
    Silent(Duration),
    #[error("closed by the upstream")]
    Closed,
    #[error("subscribing failed: {0}")]
    Refused(PeerText),
}

#[derive(Deserialize)]
struct HeadMessage {
    params: Option<Params>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Params {
    result: HeadNumber,
}

#[derive(Deserialize)]
struct HeadNumber {
    number: String,
}

impl HeadListener {
    /// Listens for ever.
    pub(crate) async fn run(self) {
        let mut backoff = Backoff::new(RECONNECT_FIRST, RECONNECT_MAX);
        let mut live = Live { status: Arc::clone(&self.status), live: false };
        loop {
            let begun = Instant::now();
            let ended = self.listen(&mut backoff, &mut live).await;
            live.set(false);
            self.newest.send_modify(|newest| newest.live = false);
            let wait = backoff.wait().max(self.connect_interval.saturating_sub(begun.elapsed()));
            match ended {
                // No WebSocket there is normal; a dead one is worth a line.
                Err(error @ Ended::NotOpened(Error::Http(_) | Error::Io(_))) => {
                    debug!(%error, ?wait, "no WebSocket, polling");
                }
                Err(why) => info!(%why, ?wait, "WebSocket ended, polling"),
                Ok(never) => match never {},
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn listen(
        &self,
        backoff: &mut Backoff,
        live: &mut Live,
    ) -> Result<std::convert::Infallible, Ended> {
        let mut socket = self.connect().await?;
        counter!("neve_upstream_ws_connections_total").increment(1);
        let subscribe =
            r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}"#;
        socket.send(Message::text(subscribe)).await?;
        // Heads from before the subscription are not told: the monitor has to ask.
        self.newest.send_modify(|newest| newest.connections += 1);
        self.read(&mut socket, backoff, live).await
    }

    async fn connect(&self) -> Result<HeadSocket, Ended> {
        let connect_timeout = self.config.connect_timeout;
        let client = WebSocketClient {
            address: self.uri.clone(),
            headers: self.headers.clone(),
            tls: self.tls.clone(),
            connect_timeout,
            message_bytes_max: FRAME_BYTES_MAX,
            read_bytes: None,
        };
        client.open(None, |stream| stream).await.map_err(|why| match why {
            NotOpened::TimedOut => Ended::Silent(connect_timeout),
            NotOpened::Socket(error) => Ended::NotOpened(error),
        })
    }

    async fn read(
        &self,
        socket: &mut HeadSocket,
        backoff: &mut Backoff,
        live: &mut Live,
    ) -> Result<std::convert::Infallible, Ended> {
        let limit = self.config.ws_idle_timeout;
        let ping_every = ping_interval(limit);
        let mut ping = interval_at(Instant::now() + ping_every, ping_every);
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                frame = socket.next() => {
                    heard = Instant::now();
                    self.take(frame.ok_or(Ended::Closed)??, backoff, live)?;
                }
                _ = ping.tick() => keep_alive(socket, heard, limit).await?,
            }
        }
    }

    fn take(&self, message: Message, backoff: &mut Backoff, live: &mut Live) -> Result<(), Ended> {
        let Message::Text(text) = message else {
            // Pings and pongs only show that the upstream lives.
            return if message.is_close() { Err(Ended::Closed) } else { Ok(()) };
        };
        self.status.heard();
        // The answer to the subscription has a string as result, and no params: no head.
        let Ok(frame) = serde_json::from_str::<HeadMessage>(text.trim_end()) else { return Ok(()) };
        if let Some(error) = frame.error {
            return Err(Ended::Refused(error.to_string().into()));
        }
        let Some(head) = frame.params.and_then(|params| height(&params.result.number)) else {
            live.set(true);
            self.newest.send_modify(|newest| newest.live = true);
            backoff.reset();
            return Ok(());
        };
        let helicon_keys = Some(text.contains(HELICON_KEY));
        self.newest.send_modify(|newest| {
            (newest.height, newest.helicon_keys) = (Some(head), helicon_keys);
        });
        Ok(())
    }
}

fn ping_interval(limit: Duration) -> Duration {
    // Two pings may be lost before the upstream counts as silent.
    limit / 3
}

/// Sends a ping. Fails if the upstream was last heard too long ago.
async fn keep_alive(socket: &mut HeadSocket, heard: Instant, limit: Duration) -> Result<(), Ended> {
    if heard.elapsed() >= limit {
        return Err(Ended::Silent(limit));
    }
    let time_max = ping_interval(limit);
    // An upstream that reads nothing would hold up this task for ever.
    let sent = timeout(time_max, socket.send(Message::Ping(Vec::new().into())));
    Ok(sent.await.map_err(|_| Ended::Silent(time_max))??)
}

/// Guard that counts this WebSocket as a source of heads.
struct Live {
    status: Arc<Status>,
    live: bool,
}

impl Live {
    fn set(&mut self, live: bool) {
        if std::mem::replace(&mut self.live, live) != live {
            self.status.ws_changed(live);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// A hex quantity.
pub(crate) fn quantity(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// A height in hex, as an upstream names it.
pub(crate) fn height(text: &str) -> Option<u64> {
    // Beyond it are no heights: no chain gets there, and the store could not hold them.
    quantity(text).filter(|height| *height <= HEIGHT_MAX)
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::set_socket_linger;
    use tokio::net::TcpListener;
    use tokio_tungstenite::accept_async;

    use super::*;
    use crate::client::client_config;
    use crate::config::Endpoint;
    use crate::config::settings::Config;

    /// A node that was killed, or a router that forgot the connection, ends it by a reset.
    #[tokio::test]
    async fn socket_that_is_reset_is_told_apart_from_none() {
        let node = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", node.local_addr().unwrap());
        let (config, _) = Config::from_flags(&["--dev"]).unwrap();
        let listener = HeadListener {
            uri: Endpoint::parse_ws(&url).unwrap().unwrap(),
            headers: UpstreamHeaders::default(),
            tls: client_config(None).unwrap(),
            config: config.fetch,
            status: Arc::default(),
            connect_interval: Duration::ZERO,
            newest: watch::channel(Announced::default()).0,
        };
        let mut live = Live { status: Arc::default(), live: false };
        let mut backoff = Backoff::new(RECONNECT_FIRST, RECONNECT_MAX);
        let reset = async {
            let mut socket = accept_async(node.accept().await.unwrap().0).await.unwrap();
            socket.next().await.unwrap().unwrap(); // the subscription
            set_socket_linger(socket.get_ref(), Some(Duration::ZERO)).unwrap();
            drop(socket);
            drop(node);
        };
        let (ended, ()) = tokio::join!(listener.listen(&mut backoff, &mut live), reset);
        assert!(matches!(ended, Err(Ended::Socket(Error::Io(_)))), "{ended:?}");
        let ended = listener.listen(&mut backoff, &mut live).await;
        assert!(matches!(ended, Err(Ended::NotOpened(Error::Io(_)))), "{ended:?}");
    }

    #[test]
    fn head_beyond_all_heights_is_none() {
        assert_eq!(height("0x7fffffffffff"), Some(HEIGHT_MAX));
        for none in ["0x800000000000", "0xffffffffffffffff", "0x10000000000000000", "7"] {
            assert_eq!(height(none), None, "{none}");
        }
    }
}
