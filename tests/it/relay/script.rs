//! An upstream for subscriptions alone: a test reads and writes its WebSockets itself.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocket;
use tokio_tungstenite::tungstenite::{Message, accept_hdr};

/// Longest time of any act on a busy machine.
const LIMIT: Duration = Duration::from_mins(3);

pub(super) struct Script {
    address: SocketAddr,
    opened: Receiver<Scripted>,
}

/// A WebSocket that neve opened.
pub(super) struct Scripted {
    socket: WebSocket<TcpStream>,
    /// Path and headers of the handshake.
    pub(super) request: String,
}

impl Script {
    /// Starts it. Its thread ends with the process.
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("bound");
        let (open, opened) = channel();
        thread::spawn(move || {
            let opened = listener.incoming().map_while(Result::ok).filter_map(handshake);
            opened.map_while(|socket| open.send(socket).ok()).for_each(drop);
        });
        Self { address, opened }
    }

    /// A rule that sends subscriptions here.
    pub(super) fn rule(&self) -> String {
        format!("eth_subscribe+debug_subscribe=http://{}/SECRET", self.address)
    }

    /// A rule that sends subscriptions here, with a key in the address.
    pub(super) fn keyed_rule(&self, key: &str) -> String {
        format!("eth_subscribe=http://{}/v1/{key}", self.address)
    }

    /// The next WebSocket of neve.
    pub(super) fn accept(&self) -> Scripted {
        self.opened.recv_timeout(LIMIT).expect("neve opens a WebSocket")
    }

    /// True if no WebSocket of neve waits to be accepted.
    pub(super) fn is_idle(&self) -> bool {
        self.opened.try_recv().is_err()
    }
}

#[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
fn handshake(stream: TcpStream) -> Option<Scripted> {
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    stream.set_write_timeout(Some(LIMIT)).ok()?;
    let mut seen = String::new();
    let look = |request: &Request, response: Response| {
        seen = format!("{} {:?}", request.uri(), request.headers());
        Ok(response)
    };
    let socket = accept_hdr(stream, look).ok()?;
    Some(Scripted { socket, request: seen })
}

impl Scripted {
    /// The next text.
    pub(super) fn text(&mut self) -> String {
        loop {
            match self.socket.read().expect("neve sends something") {
                Message::Text(text) => return text.to_string(),
                Message::Ping(_) => {}
                other => panic!("no text but {other:?}"),
            }
        }
    }

    /// True if neve has closed it.
    pub(super) fn is_closed(&mut self) -> bool {
        loop {
            match self.socket.read() {
                Err(_) | Ok(Message::Close(_)) => return true,
                Ok(Message::Ping(_)) => {}
                Ok(other) => panic!("no end but {other:?}"),
            }
        }
    }

    /// Sends a text; false if neve has gone.
    pub(super) fn send(&mut self, text: &str) -> bool {
        self.socket.send(Message::text(text)).is_ok()
    }

    /// Sends the first `len` bytes of a text.
    #[expect(clippy::big_endian_bytes, reason = "the order of RFC 6455")]
    pub(super) fn begin(&mut self, text: &str, len: usize) {
        let mut frame = vec![0x81, 127];
        frame.extend_from_slice(&(text.len() as u64).to_be_bytes());
        frame.extend_from_slice(&text.as_bytes()[..len]);
        // neve may leave before it has read all.
        let _ = self.socket.get_mut().write_all(&frame);
    }

    /// Checks that neve answers a ping.
    pub(super) fn is_answered(&mut self) {
        self.socket.send(Message::Ping("x".into())).expect("neve is there");
        loop {
            match self.socket.read().expect("neve is there") {
                Message::Pong(text) => return assert_eq!(&text[..], b"x"),
                Message::Ping(_) => {}
                other => panic!("no pong but {other:?}"),
            }
        }
    }

    /// Takes a call, and opens a subscription of this id.
    pub(super) fn opens(&mut self, id: &str) -> String {
        let call = self.text();
        assert!(self.send(&result(&format!("\"{id}\""))));
        call
    }
}

/// A response with the id of [`super::subscriptions`]' calls.
pub(super) fn result(text: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{text}}}\n")
}

/// A notification of the subscription `id`, whose result is `text`.
pub(super) fn told(id: &str, text: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"eth_subscription\",\"params\":{{\"subscription\":\"{id}\",\"result\":{text}}}}}\n"
    )
}
