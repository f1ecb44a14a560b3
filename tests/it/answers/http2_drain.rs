//! The end of a connection of HTTP/2 while neve stops.

#![expect(clippy::big_endian_bytes, reason = "the order of RFC 9113")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;
use socket2::{Domain, Socket, Type};

use crate::support::http2::{DATA, PING, PREFACE, SETTINGS, WINDOW_UPDATE, first, frame, head};
use crate::support::neve::Neve;
use crate::support::served::{devnet, follow};

const BLOCK: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x5",true]}"#;
const LIMIT: Duration = Duration::from_mins(3);
/// Bytes that the kernel keeps for the client: few, so that those of the server are the rest.
const UNREAD_MAX: usize = 4 << 10;

/// A client that reads one frame after the other.
struct Client {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Client {
    fn connect(neve: &Neve) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(UNREAD_MAX).expect("it is small");
        socket.connect(&neve.address.into()).expect("neve listens");
        socket.set_read_timeout(Some(LIMIT)).expect("not zero");
        Self { stream: socket.into(), bytes: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it is read");
    }

    fn gives_window(&mut self, stream: u32, bytes: usize) {
        let bytes = u32::try_from(bytes).expect("few").to_be_bytes();
        self.send(&frame(WINDOW_UPDATE, 0, stream, &bytes));
    }

    /// Kind, flags and payload of the next frame; `None` at the end.
    fn next(&mut self) -> Option<(u8, u8, Vec<u8>)> {
        let mut room = [0; 1024];
        loop {
            if let Some((kind, flags, _, len)) = first(&self.bytes) {
                return Some((kind, flags, self.bytes.drain(..len).skip(9).collect()));
            }
            match self.stream.read(&mut room).expect("no reset") {
                0 => return None,
                len => self.bytes.extend_from_slice(&room[..len]),
            }
        }
    }

    /// The next frame of this kind.
    fn until(&mut self, kind: u8) -> Vec<u8> {
        loop {
            let (came, _, payload) = self.next().expect("it goes on");
            if came == kind {
                return payload;
            }
        }
    }
}

#[test]
fn slow_client_gets_all_of_its_response_while_neve_drains() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &["--drain-timeout", "1h"]);
    let long = format!("[{}]", [BLOCK; 100].join(","));
    let expected = neve.client().post(&long).body;
    let mut client = Client::connect(&neve);
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]); // a window of a byte
    let body = frame(DATA, 1, 1, long.as_bytes());
    client.send(&[PREFACE, &settings, &head(1, &[]), &body].concat());
    let mut came = client.until(DATA);
    neve.signal(Signal::TERM);
    let ping = client.until(PING);
    client.send(&frame(PING, 1, 0, &ping));
    client.gives_window(0, 1 << 30);
    client.gives_window(1, 1 << 30);
    // neve has sent all long before the client has read it, and the client says how far it is.
    let mut has_ended = false;
    while let Some((kind, flags, payload)) = client.next() {
        if kind == DATA {
            came.extend_from_slice(&payload);
            has_ended = flags & 1 == 1;
            client.gives_window(0, payload.len().max(1));
        }
        if has_ended {
            break;
        }
    }
    assert!(has_ended && came == expected, "{} bytes of {}", came.len(), expected.len());
    assert!(client.next().is_none(), "neve says that it has sent all");
}
