//! Messages that few clients send, to a real avalanchego and to a neve that follows it: the same bytes, and the same
//! effect on filters and subscriptions.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::support::client::Client;
use crate::support::feed::Feed;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::node::{Node, Options, rpc};
use crate::support::ws::Ws;

const LIMIT: Duration = Duration::from_mins(4);

/// A node, and a neve that has its head.
struct Pair<'a> {
    node: &'a Node,
    neve: &'a Neve,
}

impl Pair<'_> {
    fn address(&self) -> SocketAddr {
        self.node.base_url().trim_start_matches("http://").parse().expect("an address")
    }

    /// The node's connection and neve's.
    fn sockets(&self) -> [Ws; 2] {
        [Ws::open_at(self.address(), "/ext/bc/C/ws").0, Ws::open(self.neve)]
    }

    /// Texts of the responses to a body.
    fn post(&self, bodies: [&str; 2]) -> [String; 2] {
        let headers = [("Content-Type", "application/json")];
        let post = |mut client: Client, body: &str| {
            client.request("POST", "/ext/bc/C/rpc", &headers, body.as_bytes()).text()
        };
        [post(Client::new(self.address()), bodies[0]), post(self.neve.client(), bodies[1])]
    }

    /// Waits until neve has a block more than it had.
    fn advance(&self, feed: &mut Feed<'_>) {
        feed.transfers(1);
        let head = rpc::call(&self.node.http_url(), "eth_blockNumber", &Value::Array(Vec::new()));
        let head = head.as_str().and_then(|head| u64::from_str_radix(&head[2..], 16).ok());
        self.neve.wait_for_head(head.expect("a number"));
    }

    fn notifications_of_subscriptions(&self, feed: &mut Feed<'_>) {
        let mut both = self.sockets();
        for ws in &mut both {
            ws.send(r#"{"jsonrpc":"2.0","method":"eth_subscribe","params":["newHeads"]}"#);
            assert!(ws.call("eth_chainId", "[]").contains("result"));
        }
        self.advance(feed);
        let [theirs, ours] = both.each_mut().map(Ws::notification);
        assert_eq!(ours.result, theirs.result);
        for (ws, id) in both.iter_mut().zip([theirs.id, ours.id]) {
            ws.send(&format!(
                r#"{{"jsonrpc":"2.0","method":"eth_unsubscribe","params":["{id}"]}}"#
            ));
            let text = ws.call("eth_unsubscribe", &format!("[\"{id}\"]"));
            assert!(text.contains("subscription not found"), "{text}");
        }
    }

    fn notifications_of_filters(&self, feed: &mut Feed<'_>) {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_newBlockFilter","params":[]}"#;
        let ids = self.post([call, call]).map(|text| {
            let made: Value = serde_json::from_str(&text).expect("JSON");
            made["result"].to_string()
        });
        self.advance(feed);
        let of = |method: &str, id: &str| {
            let silent = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":[{id}]}}"#);
            let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getFilterChanges","params":["#;
            format!("[{silent},{call}{id}]}}]")
        };
        for (method, answer) in [
            ("eth_getFilterChanges", r#""result":[]"#),
            ("eth_uninstallFilter", r#""message":"filter not found""#),
        ] {
            let bodies = ids.each_ref().map(|id| of(method, id));
            let [theirs, ours] = self.post(bodies.each_ref().map(String::as_str));
            assert_eq!(ours, theirs, "{method}");
            assert!(ours.contains(answer), "{ours}");
        }
    }

    fn bytes(&self) {
        let number =
            |method| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":1e999}}"#);
        let call = number("eth_blockNumber");
        let [theirs, ours] = self.post([&call, &call]);
        assert_eq!(ours, theirs);
        let deep = |open: &str, count| open.repeat(count);
        for frame in [
            deep("[", 10_000) + "x",
            deep("[", 10_001),
            deep("[", 10_001) + &deep("]", 10_001),
            deep("{\"a\":", 10_001),
            number("eth_subscribe"),
            number("eth_unsubscribe"),
        ] {
            let texts = self.sockets().map(|mut ws| {
                ws.send(&frame);
                ws.text()
            });
            assert_eq!(texts[1], texts[0], "{}", &frame[..40]);
        }
    }
}

/// A WebSocket whose bytes are the test's.
fn raw(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(LIMIT)).expect("not zero");
    let head = "GET /ext/bc/C/ws HTTP/1.1\r\nHost: localhost\r\nOrigin: http://x\r\nUpgrade: websocket\r\n\
                Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \
                dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it can be sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head comes");
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && !head.contains("access-control"), "{head}");
    stream
}

/// Returns all that a WebSocket sends after these bytes.
fn sent_after(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let (mut stream, mut sent) = (raw(address), Vec::new());
    stream.write_all(bytes).expect("it can be sent");
    let _ = stream.read_to_end(&mut sent); // a reset ends it too
    sent
}

/// Frames of a client with a mask of zeros, the first byte and the payload of each.
fn frames(all: &[(u8, &[u8])]) -> Vec<u8> {
    let frame = |(first, payload): &(u8, &[u8])| {
        [&[*first, 0x80 | payload.len() as u8, 0, 0, 0, 0], *payload].concat()
    };
    all.iter().flat_map(frame).collect()
}

fn closes(pair: &Pair<'_>) {
    for bytes in [
        frames(&[(0x88, b"")]),
        frames(&[(0x88, b"\x03\xe8")]),
        frames(&[(0x88, b"\x03\xe8bye")]),
        frames(&[(0x88, b"\x0f\xa0a reason")]),
        frames(&[(0x88, b"\x03")]),
        frames(&[(0x83, b"{}")]),
        frames(&[(0x80, b"{}")]),
        frames(&[(0x01, b"{"), (0x81, b"}")]),
        frames(&[(0x09, b"")]),
        vec![0x81, 2, b'{', b'}'],
        [&[0x89, 0xfe, 0, 126, 0, 0, 0, 0], &[0; 126][..]].concat(),
    ] {
        let [theirs, ours] =
            [pair.address(), pair.neve.address].map(|address| sent_after(address, &bytes));
        assert_eq!(ours, theirs, "{}: {}", bytes.escape_ascii(), theirs.escape_ascii());
    }
}

#[test]
#[ignore = "needs avalanchego, which Go builds: ./check"]
fn notifications_depth_and_numbers_are_as_at_the_node() {
    let node = Node::start(Options::default());
    node.within(LIMIT, || {
        let dir = fresh_dir();
        let neve = Neve::start(dir.path(), &["--upstream", &node.base_url(), "--start", "0"]);
        let (pair, mut feed) = (Pair { node: &node, neve: &neve }, Feed::new(&node));
        pair.advance(&mut feed);
        pair.notifications_of_subscriptions(&mut feed);
        pair.notifications_of_filters(&mut feed);
        pair.bytes();
        closes(&pair);
    });
}
