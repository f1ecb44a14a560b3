//! WebSockets as a node speaks them: recorded connections, replayed.

use std::collections::HashMap;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::support::corpus::{APRICOT0, FORKS, HELICON, MAIN, Set};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;
use crate::support::ws::{End, Notification, Recording, Ws, result};

/// A server on a recorded chain that has come to its end.
fn whole(set: Set) -> (Recorded, tempfile::TempDir, Neve) {
    let (node, dir) = (Recorded::start(set), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "0"]);
    neve.wait_for_head(set.head);
    (node, dir, neve)
}

/// Subscriptions that a node has and neve has not.
const NOT_SERVED: [&str; 3] = ["newPendingTransactions", "newAcceptedTransactions", "traceChain"];

/// Returns neve's answer where it is meant to differ from the recorded one.
fn misses(request: &str) -> Option<(i64, &'static str)> {
    if NOT_SERVED.iter().any(|name| request.contains(name)) && !request.contains("\"x\"") {
        let name = if request.contains("debug_") { "debug_subscribe" } else { "eth_subscribe" };
        let message = match name {
            "debug_subscribe" => "header not found: the method debug_subscribe is not served",
            _ => "header not found: the method eth_subscribe is not served",
        };
        return Some((-32000, message));
    }
    request
        .contains("0xffffff")
        .then_some((-32000, "header not found: block 0xffffff is not served"))
}

/// Recorded connection, replayed frame by frame.
struct Replay {
    ws: Ws,
    /// Our id of each recorded one.
    ids: HashMap<String, String>,
    request: String,
    compared: usize,
}

impl Replay {
    fn frame(&mut self, frame: &Recording) {
        match frame.direction.as_str() {
            "send" => self.send(frame),
            "recv" if frame.text.contains("_subscription\"") => {} // a trace
            "recv" => self.receive(&frame.text),
            "close" => {
                // {"code": null} is the end without a close frame.
                let told: Value = serde_json::from_str(&frame.text).unwrap();
                let told = told["code"].as_u64().map(|code| (code as u16, String::new()));
                let mut expected = told.map_or(End::Bare, |told| End::Frame(Some(told)));
                // The node echoed an id that is not UTF-8, and the library of the recorder left for it.
                if frame.connection == "frame/badutf8bin" {
                    expected = End::Frame(Some((1007, "the response is not UTF-8".to_owned())));
                }
                assert_eq!(self.ws.end(), expected, "{}", frame.connection);
                self.compared += 1;
            }
            _ => {}
        }
    }

    fn send(&mut self, frame: &Recording) {
        if let Some(bytes) = &frame.bytes {
            return self.ws.send_message(Message::binary(bytes.clone()));
        }
        if let Some(size) = frame.text.strip_prefix('<') {
            return self.send_padded(size);
        }
        self.request.clone_from(&frame.text);
        for (theirs, ours) in &self.ids {
            self.request = self.request.replace(theirs, ours);
        }
        self.ws.send(&self.request);
    }

    /// `6 MiB frame: eth_chainId padded with spaces>`
    fn send_padded(&mut self, size: &str) {
        let mib: usize = size.split(' ').next().unwrap().parse().unwrap();
        let mut call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#.to_owned();
        call.push_str(&" ".repeat((mib << 20) - call.len()));
        self.ws.send_message(Message::text(call));
    }

    fn receive(&mut self, recorded: &str) {
        let found = self.ws.text();
        self.compared += 1;
        if let Some((code, message)) = misses(&self.request) {
            return is_miss(&self.request, &found, code, message);
        }
        let ids = (subscription_id(recorded), subscription_id(&found));
        let expected = match ids {
            (Some(theirs), Some(ours)) => {
                let expected = recorded.replace(&theirs, &ours);
                self.ids.insert(theirs, ours);
                expected
            }
            _ => recorded.to_owned(),
        };
        assert_eq!(found, expected, "{}", self.request);
    }
}

/// The id in an answer to a subscription, also within a batch.
fn subscription_id(answer: &str) -> Option<String> {
    let (_, rest) = answer.split_once(r#""result":"0x"#)?;
    let digits = rest.split('"').next()?;
    (digits.len() > 16).then(|| format!("0x{digits}"))
}

fn is_miss(request: &str, answer: &str, code: i64, message: &str) {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let all = answer.as_array().cloned().unwrap_or_else(|| vec![answer]);
    assert!(answer_count(request) == all.len(), "{request}: {all:?}");
    for answer in all {
        let error = &answer["error"];
        assert_eq!(error["code"], code, "{request}: {error}");
        assert!(error["message"].as_str().unwrap().starts_with(message), "{request}: {error}");
        assert_eq!(error["data"]["firstHeight"], "0x0", "{request}: {error}");
    }
}

fn answer_count(request: &str) -> usize {
    serde_json::from_str::<Value>(request).unwrap().as_array().map_or(1, Vec::len)
}

#[test]
fn recorded_requests_and_replies() {
    for (set, frames) in [(MAIN, 70), (HELICON, 70)] {
        let (_node, _dir, neve) = whole(set);
        let transcript = set.transcript("ws_rpc");
        let mut connections: Vec<&str> = Vec::new();
        for frame in &transcript {
            if !connections.contains(&frame.connection.as_str()) {
                connections.push(&frame.connection);
            }
        }
        assert_eq!(connections.len(), 17);
        let mut compared = 0;
        for connection in connections {
            let (ws, _) = Ws::open_at(neve.address, "/ext/bc/C/ws");
            let mut replay =
                Replay { ws, ids: HashMap::new(), request: String::new(), compared: 0 };
            let frames = transcript.iter().filter(|frame| frame.connection == connection);
            frames.for_each(|frame| replay.frame(frame));
            compared += replay.compared;
        }
        assert!(compared >= frames, "{compared}");
    }
}

/// The recorded subscriptions of one connection that neve serves: the call, and the results of the
/// notifications, whichever recorded connection they came over.
struct Stream {
    call: String,
    results: Vec<String>,
}

fn streams(set: Set, connection: &str) -> Vec<Stream> {
    let mut streams: Vec<Stream> = Vec::new();
    let mut by_id: HashMap<String, usize> = HashMap::new();
    let mut calls: HashMap<u64, usize> = HashMap::new();
    let all = set.transcript("ws_live");
    for frame in all.iter().filter(|frame| frame.connection == connection) {
        if frame.direction == "send" {
            let call: Value = serde_json::from_str(&frame.text).unwrap();
            let at = streams.iter().position(|stream| stream.call == frame.text);
            let at = at.unwrap_or_else(|| {
                streams.push(Stream { call: frame.text.clone(), results: Vec::new() });
                streams.len() - 1
            });
            calls.insert(call["id"].as_u64().unwrap(), at);
        } else if let Some(notification) = Notification::read(&frame.text) {
            streams[by_id[&notification.id]].results.push(notification.result);
        } else if let Some(Value::String(id)) = result(&frame.text) {
            let answer: Value = serde_json::from_str(&frame.text).unwrap();
            by_id.insert(id, calls[&answer["id"].as_u64().unwrap()]);
        }
    }
    streams
}

/// Subscribes as the recorded connection did, on one that lives to the end.
struct Live {
    ws: Ws,
    streams: HashMap<String, Stream>,
}

impl Live {
    fn open(neve: &Neve, set: Set, connection: &str) -> Self {
        let (mut ws, _) = Ws::open_at(neve.address, "/");
        let subscribe = |stream: Stream| {
            ws.send(&stream.call);
            let id = result(&ws.text()).unwrap();
            (id.as_str().unwrap().to_owned(), stream)
        };
        let streams = streams(set, connection).into_iter().map(subscribe).collect();
        Self { ws, streams }
    }

    /// Compares with what was recorded, of heights up to `head`. The node that was recorded was
    /// cut off twice; what it did not send then is passed over.
    fn compare(&mut self, head: u64) -> usize {
        let is_due = |result: &String| height(result) <= head;
        let mut left: HashMap<_, _> = HashMap::new();
        for (id, stream) in &mut self.streams {
            let due = stream.results.iter().take_while(|result| is_due(result)).count();
            left.insert(id.clone(), stream.results.drain(..due).collect::<Vec<_>>().into_iter());
        }
        let (mut compared, mut at) = (0, HashMap::new());
        let mut waiting: HashMap<_, _> =
            left.iter_mut().filter_map(|(id, due)| Some((id.clone(), due.next()?))).collect();
        while !waiting.is_empty() {
            let Notification { id, result } = self.ws.notification();
            let here = height(&result);
            let before = at.insert(id.clone(), here).unwrap_or(0);
            assert!(here >= before, "{here} after {before}");
            let Some(expected) = waiting.get(&id) else { continue };
            if height(expected) > here {
                continue; // lost by the recorder
            }
            assert_eq!(&result, expected);
            compared += 1;
            match left.get_mut(&id).and_then(Iterator::next) {
                Some(next) => drop(waiting.insert(id, next)),
                None => drop(waiting.remove(&id)),
            }
        }
        compared
    }
}

fn height(result: &str) -> u64 {
    let result: Value = serde_json::from_str(result).unwrap();
    let number =
        if result["number"].is_null() { &result["blockNumber"] } else { &result["number"] };
    u64::from_str_radix(number.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

const CONNECTIONS: [&str; 4] = ["heads", "logs-all", "logs-topic", "heads+logs"];

/// Every notification of heads and logs that a node was recorded to send, to the byte and in order,
/// whether blocks come one by one or many at a time.
fn recorded_live(set: Set, steps: &[u64], compared: usize) {
    let (node, dir) = (Recorded::start_at(set, 0, false), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "0"]);
    neve.wait_for_head(0);
    let mut all = CONNECTIONS.map(|connection| Live::open(&neve, set, connection));
    let mut found = 0;
    for head in steps {
        node.grow(*head);
        found += all.iter_mut().map(|live| live.compare(*head)).sum::<usize>();
    }
    assert!(found >= compared, "{found}");
}

#[test]
fn recorded_notifications() {
    recorded_live(MAIN, &[1, 2, 3, 10, 11, 60, 200, 201, 330], 4300);
    recorded_live(FORKS, &[1, 100, 101, 102, 150, 271], 1800);
    recorded_live(APRICOT0, &[48, 49, 50, 128], 600);
}

/// Replays over the switch from v1.14's answers to v1.15's, while the subscribers stay.
#[test]
fn recorded_notifications_over_the_switch() {
    let (node, dir) = (Recorded::start_at(HELICON, 0, false), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "0"]);
    neve.wait_for_head(0);
    let mut all = CONNECTIONS.map(|connection| Live::open(&neve, HELICON, connection));
    let mut found = 0;
    node.grow(201);
    found += all.iter_mut().map(|live| live.compare(201)).sum::<usize>();
    node.change(|state| state.helicon = true);
    node.cut();
    node.grow(381);
    found += all.iter_mut().map(|live| live.compare(381)).sum::<usize>();
    assert!(found >= 4300, "{found}");
}

/// The three paths, and what a handshake may bring along.
#[test]
fn paths_and_methods() {
    let (_node, _dir, neve) = whole(APRICOT0);
    for path in ["/", "/ws", "/ext/bc/C/ws"] {
        let (mut ws, response) = Ws::open_at(neve.address, path);
        assert!(response.headers().get("sec-websocket-extensions").is_none(), "{path}");
        assert_eq!(ws.call("eth_blockNumber", "[]"), answer("\"0x80\""), "{path}");
        let (over_http, over_ws) = (
            neve.client().call("eth_getBlockByNumber", "[\"latest\",true]").text(),
            ws.call("eth_getBlockByNumber", "[\"latest\",true]"),
        );
        assert_eq!(over_ws, over_http, "{path}");
    }
    assert_eq!(neve.client().get("/ws").status, 400);
    let http = neve.client().call("eth_subscribe", "[\"newHeads\"]");
    assert_eq!(http.json()["error"]["message"], json!("notifications not supported"));
}

fn answer(result: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{result}}}\n")
}
