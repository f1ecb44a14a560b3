//! Messages that few clients send, to a real avalanchego and to a neve that follows it: the same bytes, and the same
//! effect on filters and subscriptions.

use std::net::SocketAddr;
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
    });
}
