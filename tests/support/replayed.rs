//! A recorded node that also replays what it was asked: relayed calls get the recorded answer to the same
//! method and parameters. All else goes to the node itself.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::read;
use super::corpus::{Row, Set};
use super::recorded::Recorded;

/// A node that was recorded.
pub(crate) struct Replayed {
    address: SocketAddr,
}

/// Answers by method and parameters, each from behind its id on.
type Answers = HashMap<(String, String), String>;

/// Call or answer, as far as it matters here.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(default)]
    params: Value,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Message<'_> {
    fn key(&self) -> (String, String) {
        (self.method.clone().unwrap_or_default(), self.params.to_string())
    }

    /// Rest of an answer behind its id.
    fn rest(&self) -> String {
        match (self.result, self.error) {
            (_, Some(error)) => format!(",\"error\":{}}}", error.get()),
            (result, None) => {
                format!(",\"result\":{}}}", result.map_or("null", RawValue::get))
            }
        }
    }
}

/// Messages of a body: one, or those of a batch.
fn messages(body: &[u8]) -> Vec<Message<'_>> {
    match serde_json::from_slice::<Message<'_>>(body) {
        Ok(one) => vec![one],
        Err(_) => serde_json::from_slice(body).unwrap_or_default(),
    }
}

/// Adds the answers of a row; the first one to a call stays.
fn add(answers: &mut Answers, row: &Row) {
    for asked in messages(&row.request).iter().filter(|asked| asked.method.is_some()) {
        let same = |told: &&Message<'_>| told.id.map(RawValue::get) == asked.id.map(RawValue::get);
        let told = messages(&row.answer);
        if let Some(told) = told.iter().find(same) {
            answers.entry(asked.key()).or_insert_with(|| told.rest());
        }
    }
}

impl Replayed {
    /// Starts it in front of a node of the same set. Its threads end with the connections of neve.
    pub(crate) fn start(node: &Recorded, set: Set) -> Self {
        let node = node.address();
        let mut answers = Answers::new();
        let files = ["blocks", "methods", "errors", "logs"];
        files.iter().flat_map(|file| set.rows(file)).for_each(|row| add(&mut answers, &row));
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let replayed = Self { address: listener.local_addr().expect("bound") };
        let answers = Arc::new(answers);
        thread::spawn(move || {
            for neve in listener.incoming().map_while(Result::ok) {
                let answers = Arc::clone(&answers);
                thread::spawn(move || serve(&neve, node, &answers));
            }
        });
        replayed
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Serves a connection until it ends.
fn serve(neve: &TcpStream, node: SocketAddr, answers: &Answers) -> Option<()> {
    let mut reader = BufReader::new(neve.try_clone().ok()?);
    loop {
        let (is_relayed, body) = request(&mut reader).ok()?;
        let answer = if is_relayed { replay(&body, answers) } else { ask(node, &body)? };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
        let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
        let mut neve = neve;
        neve.write_all(answer.as_bytes()).ok()?;
    }
}

fn ask(node: SocketAddr, body: &[u8]) -> Option<String> {
    let head = "POST /ext/bc/C/rpc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
    let head = format!("{head}\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut node = TcpStream::connect(node).ok()?;
    node.write_all(&[head.as_bytes(), body].concat()).ok()?;
    Some(read(&mut BufReader::new(node), false).ok()?.text())
}

/// Answers calls as the node did. One that it was not asked shows in the comparison.
fn replay(body: &[u8], answers: &Answers) -> String {
    let one = |asked: &Message<'_>| {
        let id = asked.id?.get();
        let rest = answers.get(&asked.key()).cloned();
        let rest = rest.unwrap_or_else(|| ",\"error\":\"not recorded\"}".to_owned());
        Some(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id}{rest}"))
    };
    let all: Vec<_> = messages(body).iter().filter_map(one).collect();
    match (body.first(), &all[..]) {
        (Some(b'['), _) => format!("[{}]\n", all.join(",")),
        (_, [one]) => format!("{one}\n"),
        _ => String::new(),
    }
}

/// Reads a request: whether it is relayed, and its body.
fn request(reader: &mut impl BufRead) -> io::Result<(bool, Vec<u8>)> {
    let (mut is_relayed, mut length) = (false, 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.to_lowercase();
        is_relayed |= line.starts_with("via:");
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((is_relayed, body))
}
