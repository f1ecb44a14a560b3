//! A WebSocket to the server, and recorded ones.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocket};
use tokio_tungstenite::tungstenite::{ClientRequestBuilder, Error, Message, client};

use super::corpus::Set;
use super::neve::Neve;

/// Longest time of any act on a busy machine.
const LIMIT: Duration = Duration::from_mins(3);

/// An open WebSocket.
pub(crate) struct Ws {
    socket: WebSocket<TcpStream>,
    /// Pings that came, which were answered.
    pub(crate) pings: usize,
}

/// End of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With a close frame: its code and reason, if it had any.
    Frame(Option<(u16, String)>),
    /// The connection was closed without one.
    Bare,
}

impl Ws {
    pub(crate) fn open(neve: &Neve) -> Self {
        Self::open_at(neve.address, "/ws").0
    }

    pub(crate) fn open_at(address: SocketAddr, path: &str) -> (Self, Response) {
        let stream = TcpStream::connect(address).expect("neve listens");
        Self::over(stream, address, path)
    }

    /// Opens a connection whose client takes few bytes that it does not read.
    pub(crate) fn open_narrow(neve: &Neve) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be made");
        socket.set_recv_buffer_size(4096).expect("a buffer's size can be set");
        socket.connect(&neve.address.into()).expect("neve listens");
        Self::over(socket.into(), neve.address, "/ws").0
    }

    /// Opens a connection from another address of loopback.
    pub(crate) fn open_from(neve: &Neve, from: [u8; 4]) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be made");
        socket.bind(&SocketAddr::from((from, 0)).into()).expect("loopback has it");
        socket.connect(&neve.address.into()).expect("neve listens");
        Self::over(socket.into(), neve.address, "/ws").0
    }

    /// Opens a connection whose handshake has this `Via`.
    pub(crate) fn open_through(neve: &Neve, via: &str) -> Self {
        let stream = TcpStream::connect(neve.address).expect("neve listens");
        let uri = format!("ws://{}/ws", neve.address).parse().expect("a URI");
        let request = ClientRequestBuilder::new(uri).with_header("Via", via);
        Self::shaken(stream, request).0
    }

    fn over(stream: TcpStream, address: SocketAddr, path: &str) -> (Self, Response) {
        Self::shaken(stream, format!("ws://{address}{path}"))
    }

    fn shaken(stream: TcpStream, request: impl IntoClientRequest) -> (Self, Response) {
        stream.set_read_timeout(Some(LIMIT)).expect("not zero");
        stream.set_write_timeout(Some(LIMIT)).expect("not zero");
        let (socket, response) = client(request, stream).expect("the handshake succeeds");
        (Self { socket, pings: 0 }, response)
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.send_message(Message::text(text));
    }

    pub(crate) fn send_message(&mut self, message: Message) {
        self.socket.send(message).expect("it can be sent");
    }

    /// Pings; the answer comes before anything else.
    pub(crate) fn ping(&mut self) {
        self.send_message(Message::Ping("x".into()));
        match self.next(LIMIT) {
            Some(Ok(Message::Pong(text))) => assert_eq!(&text[..], b"x"),
            other => panic!("no pong but {other:?}"),
        }
    }

    /// The next text; pings are answered meanwhile.
    pub(crate) fn text(&mut self) -> String {
        match self.next(LIMIT) {
            Some(Ok(Message::Text(text))) => text.to_string(),
            other => panic!("no text but {other:?}"),
        }
    }

    /// The next text; none if the connection ends before.
    pub(crate) fn text_or_end(&mut self) -> Option<String> {
        match self.next(LIMIT).expect("a text or the end") {
            Ok(Message::Text(text)) => Some(text.to_string()),
            _ => None,
        }
    }

    /// Waits so long for a frame that is no ping.
    fn next(&mut self, limit: Duration) -> Option<Result<Message, Error>> {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.socket.get_ref().set_read_timeout(Some(left)).expect("not zero");
            match self.socket.read() {
                Ok(Message::Ping(_)) => {
                    self.pings += 1;
                    self.socket.flush().expect("the pong can be sent");
                }
                Err(Error::Io(error))
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                other => return Some(other),
            }
        }
    }

    /// Nothing but pings comes for so long.
    pub(crate) fn is_quiet_for(&mut self, time: Duration) {
        if let Some(other) = self.next(time) {
            panic!("{other:?} instead of silence");
        }
    }

    /// Reads to the end: texts, and how it ended.
    pub(crate) fn rest(&mut self) -> (Vec<String>, End) {
        let mut texts = Vec::new();
        loop {
            match self.next(LIMIT).expect("the connection ends") {
                Ok(Message::Text(text)) => texts.push(text.to_string()),
                Ok(Message::Close(frame)) => {
                    let told = |CloseFrame { code, reason }| (code.into(), reason.to_string());
                    return (texts, End::Frame(frame.map(told)));
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => return (texts, End::Bare),
            }
        }
    }

    /// Returns the end, with nothing before it.
    pub(crate) fn end(&mut self) -> End {
        let (texts, end) = self.rest();
        assert!(texts.is_empty(), "{texts:?} before {end:?}");
        end
    }

    /// Calls, and returns the next text.
    pub(crate) fn call(&mut self, method: &str, params: &str) -> String {
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#));
        self.text()
    }

    /// Subscribes, and returns the id.
    pub(crate) fn subscribe(&mut self, params: &str) -> String {
        let answer = self.call("eth_subscribe", params);
        let id = result(&answer).and_then(|id| Some(id.as_str()?.to_owned()));
        id.unwrap_or_else(|| panic!("eth_subscribe{params}: {answer}"))
    }

    /// The next notification.
    pub(crate) fn notification(&mut self) -> Notification {
        let text = self.text();
        Notification::read(&text).unwrap_or_else(|| panic!("{text}"))
    }

    /// The heights of the next notifications, which are heads of this subscription.
    pub(crate) fn heads(&mut self, id: &str, count: usize) -> Vec<u64> {
        let head = || {
            let notification = self.notification();
            assert_eq!(notification.id, id);
            notification.height("number")
        };
        std::iter::repeat_with(head).take(count).collect()
    }
}

/// The result of an answer.
pub(crate) fn result(answer: &str) -> Option<Value> {
    let mut answer: Value = serde_json::from_str(answer).ok()?;
    answer.get_mut("result").map(Value::take)
}

/// A notification of a subscription of eth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) id: String,
    /// The text of the result, to the byte.
    pub(crate) result: String,
}

impl Notification {
    /// Reads one that has the node's form to the byte.
    pub(crate) fn read(text: &str) -> Option<Self> {
        const LEAD: &str =
            r#"{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":""#;
        let (id, result) = text.strip_prefix(LEAD)?.split_once(r#"","result":"#)?;
        let result = result.strip_suffix("}}\n")?;
        Some(Self { id: id.to_owned(), result: result.to_owned() })
    }

    pub(crate) fn height(&self, key: &str) -> u64 {
        let result: Value = serde_json::from_str(&self.result).expect("a result is JSON");
        let height = result[key].as_str().and_then(|text| text.strip_prefix("0x"));
        height.and_then(|digits| u64::from_str_radix(digits, 16).ok()).expect("a height")
    }
}

/// A recorded frame, or the end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    pub(crate) connection: String,
    /// `open`, `send`, `recv` or `close`.
    pub(crate) direction: String,
    pub(crate) text: String,
    /// Bytes of a binary frame.
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Set {
    /// A recorded transcript, connection by connection in the order of their opening.
    pub(crate) fn transcript(self, file: &str) -> Vec<Recording> {
        self.lines(file).map(|line| recording(&line)).collect()
    }
}

fn recording(line: &str) -> Recording {
    let row: Value = serde_json::from_str(line).expect("a row is JSON");
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let bytes = row["hex"].as_str().map(|hex| {
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
        (0..hex.len()).step_by(2).map(byte).collect()
    });
    Recording { connection: text("conn"), direction: text("dir"), text: text("text"), bytes }
}

/// Waits for the answers of a batch over HTTP, then over a WebSocket. Neither may say that neve is busy.
pub(crate) fn wait_for_answers(neve: &Neve, batch: &str, has_all: impl Fn(&str) -> bool) {
    neve.wait("all answers over HTTP", |_| {
        let answer = neve.client().post(batch);
        assert_ne!(answer.status, 503, "{batch}: {}", answer.text());
        (answer.status == 200).then(|| assert!(has_all(&answer.text())))
    });
    neve.wait("all answers over WebSocket", |_| {
        let mut ws = Ws::open(neve);
        ws.send(batch);
        let answer = ws.text_or_end().expect("the connection stays open");
        has_all(&answer).then_some(())
    });
}
