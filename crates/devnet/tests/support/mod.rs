//! A plain client, which sees everything on the wire; and the recorded data.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use flate2::read::MultiGzDecoder;
use neve_devnet::DevnetThread;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

/// Nothing here takes longer, but what never comes.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// An answer as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", self.text()))
    }
}

/// A keep-alive HTTP connection to the node.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("somebody listens")
    }

    pub(crate) fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.stream.get_ref().set_read_timeout(Some(patience)).unwrap();
    }

    pub(crate) fn post(&mut self, body: &[u8]) -> std::io::Result<Response> {
        self.request("POST", "/ext/bc/C/rpc", "Content-Type: application/json\r\n", body)
    }

    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> std::io::Result<Response> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.stream.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        self.read()
    }

    fn read(&mut self) -> std::io::Result<Response> {
        let mut response = Response::default();
        let status = self.line()?;
        let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        response.status = code.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            response.headers.push((name.to_lowercase(), value.to_owned()));
        }
        let length = response.header("content-length").and_then(|length| length.parse().ok());
        match length {
            Some(length) => response.body = self.bytes(length)?,
            None => loop {
                let size = usize::from_str_radix(&self.line()?, 16).expect("a chunk");
                response.body.extend(self.bytes(size)?);
                self.line()?;
                if size == 0 {
                    break;
                }
            },
        }
        Ok(response)
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if line.is_empty() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn bytes(&mut self, length: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Sends a call on a connection of its own.
pub(crate) fn call(devnet: &DevnetThread, method: &str, params: &Value) -> Response {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    Client::connect(devnet.address()).post(body.to_string().as_bytes()).expect("an answer")
}

/// The exact text of a call's `result`.
pub(crate) fn result(devnet: &DevnetThread, method: &str, params: &Value) -> String {
    let text = call(devnet, method, params).text();
    let result = text.strip_prefix("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":");
    let result = result.and_then(|text| text.strip_suffix("}\n"));
    result.unwrap_or_else(|| panic!("{method} {params}: {text}")).to_owned()
}

/// The message of a call's error.
pub(crate) fn error(devnet: &DevnetThread, method: &str, params: &Value) -> (i64, String) {
    let answer = call(devnet, method, params).json();
    let error = &answer["error"];
    let code = error["code"].as_i64().unwrap_or_else(|| panic!("{method} {params}: {answer}"));
    (code, error["message"].as_str().unwrap().to_owned())
}

/// A WebSocket that waits.
pub(crate) struct Socket(WebSocket<TcpStream>);

impl Socket {
    pub(crate) fn connect(devnet: &DevnetThread) -> Self {
        Self::try_connect(devnet).expect("a WebSocket")
    }

    pub(crate) fn try_connect(devnet: &DevnetThread) -> Result<Self, String> {
        let stream = TcpStream::connect(devnet.address()).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let opened = tungstenite::client(devnet.ws_url(), stream);
        opened.map(|(socket, _)| Self(socket)).map_err(|error| error.to_string())
    }

    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.0.get_ref().set_read_timeout(Some(patience)).unwrap();
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).unwrap();
    }

    /// Sends to who may be gone.
    pub(crate) fn try_send(&mut self, text: &str) -> bool {
        self.0.send(Message::text(text)).is_ok()
    }

    pub(crate) fn ping(&mut self) {
        self.0.send(Message::Ping(vec![7].into())).unwrap();
    }

    /// The next text; pings are answered on the way.
    pub(crate) fn text(&mut self) -> Result<String, tungstenite::Error> {
        loop {
            match self.0.read()? {
                Message::Text(text) => return Ok(text.to_string()),
                Message::Close(_) => return Err(tungstenite::Error::ConnectionClosed),
                _ => {}
            }
        }
    }

    /// The next message of any kind.
    pub(crate) fn any(&mut self) -> Result<Message, tungstenite::Error> {
        self.0.read()
    }

    /// Subscribes; the subscription's id.
    pub(crate) fn subscribe(&mut self) -> String {
        self.send(r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}"#);
        let answer: Value = serde_json::from_str(&self.text().unwrap()).unwrap();
        answer["result"].as_str().unwrap().to_owned()
    }

    /// The number of the next head.
    pub(crate) fn head(&mut self) -> Result<u64, tungstenite::Error> {
        let frame: Value = serde_json::from_str(&self.text()?).unwrap();
        Ok(quantity(&frame["params"]["result"]["number"]))
    }
}

pub(crate) fn quantity(value: &Value) -> u64 {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    u64::from_str_radix(digits.unwrap_or_else(|| panic!("{value}")), 16).unwrap()
}

pub(crate) fn hex(number: u64) -> String {
    format!("{number:#x}")
}

/// Waits until something holds.
pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// The rows of a recorded file of the repository.
pub(crate) fn rows(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus").join(file);
    let lines = BufReader::new(MultiGzDecoder::new(File::open(path).expect(file))).lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}
