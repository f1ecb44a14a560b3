//! An upstream that answers some methods with the bytes that a test wants, and all else as a node
//! does.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::neve::Neve;

/// Method with odd answers from the begin.
const METHOD: &str = "eth_getBalance";

pub(super) struct Odd {
    address: SocketAddr,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
}

#[derive(Clone, Default)]
struct Answer {
    bytes: Vec<u8>,
    /// True if the connection closes behind the bytes.
    closes: bool,
    /// Time before the bytes.
    delay: Duration,
    /// Requests that got it.
    asked: u64,
}

impl Odd {
    /// Starts it in front of a node. Its threads end with the connections of neve.
    pub(super) fn start(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let first = HashMap::from([(METHOD.to_owned(), Answer::default())]);
        let answers = Arc::new(Mutex::new(first));
        let odd = Self { address: listener.local_addr().expect("bound"), answers };
        let answers = Arc::clone(&odd.answers);
        thread::spawn(move || {
            for neve in listener.incoming().map_while(Result::ok) {
                let answers = Arc::clone(&answers);
                thread::spawn(move || drop(serve(&neve, node, &answers)));
            }
        });
        odd
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers with these bytes from now on; `closes` if the connection ends behind them.
    pub(super) fn answer(&self, bytes: &[u8], closes: bool) {
        self.set(METHOD, bytes.to_vec(), closes);
    }

    /// Answers a method with this text from now on.
    pub(super) fn answer_with(&self, method: &str, text: &str) {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
        let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        self.set(method, answer.into_bytes(), true);
    }

    /// Answers a method with these bytes from now on, and closes behind them.
    pub(super) fn answer_as(&self, method: &str, bytes: &[u8]) {
        self.set(method, bytes.to_vec(), true);
    }

    /// Answers a method after this time.
    pub(super) fn delay(&self, method: &str, time: Duration) {
        let mut answers = self.answers.lock().expect("no panic");
        answers.get_mut(method).expect("an answer").delay = time;
    }

    /// Does not answer a method from now on.
    pub(super) fn hold(&self, method: &str) {
        self.set(method, Vec::new(), false);
    }

    /// Requests for a method since its answer was set.
    pub(super) fn asked(&self, method: &str) -> u64 {
        self.answers.lock().expect("no panic")[method].asked
    }

    fn set(&self, method: &str, bytes: Vec<u8>, closes: bool) {
        let answer = Answer { bytes, closes, ..Answer::default() };
        self.answers.lock().expect("no panic").insert(method.to_owned(), answer);
    }
}

/// Makes calls of a method with an effect until each of two upstreams has had one. neve tries no
/// upstream with such a call, so the other one does not have its path.
pub(super) fn each_asked(
    neve: &Neve,
    odd: &[Odd; 2],
    method: &str,
    answers: &[String; 2],
    mut call: impl FnMut(),
) {
    let absent = b"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n";
    for (place, answer) in answers.iter().enumerate() {
        odd[place].answer_with(method, answer);
        odd[1 - place].answer_as(method, absent);
        neve.wait("a call of each upstream", |_| {
            call();
            (odd[place].asked(method) > 0).then_some(())
        });
    }
    odd[0].answer_with(method, &answers[0]);
}

/// Serves a connection up to the first request with an odd answer.
fn serve(
    neve: &TcpStream,
    node: SocketAddr,
    answers: &Mutex<HashMap<String, Answer>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(neve.try_clone()?);
    let mut to_node = None;
    loop {
        let asked = request(&mut reader)?;
        let text = String::from_utf8_lossy(&asked);
        if asked.is_empty() {
            return Ok(()); // neve has ended it
        }
        let answer = answers.lock().expect("no panic").iter_mut().find_map(|(method, answer)| {
            let is_asked = text.contains(&format!("\"{method}\""));
            answer.asked += u64::from(is_asked);
            is_asked.then(|| answer.clone())
        });
        if let Some(answer) = answer {
            return write(neve, reader, &answer);
        }
        let mut node = match to_node.take() {
            Some(node) => node,
            None => connect(node, neve)?,
        };
        node.write_all(&asked)?;
        if text.to_lowercase().contains("\r\nupgrade:") {
            copy(reader, node);
            return Ok(());
        }
        to_node = Some(node);
    }
}

/// Connects to the node, whose bytes go to neve.
fn connect(node: SocketAddr, neve: &TcpStream) -> std::io::Result<TcpStream> {
    let node = TcpStream::connect(node)?;
    let (from_node, to_neve) = (node.try_clone()?, neve.try_clone()?);
    thread::spawn(move || copy(from_node, to_neve));
    Ok(node)
}

fn write(
    neve: &TcpStream,
    mut reader: BufReader<TcpStream>,
    answer: &Answer,
) -> std::io::Result<()> {
    if !answer.delay.is_zero() {
        neve.set_read_timeout(Some(answer.delay))?;
        let _ = reader.read(&mut [0]); // or until neve ends it
    }
    let mut out = neve;
    out.write_all(&answer.bytes)?;
    if !answer.closes {
        let _ = reader.read(&mut [0]); // until neve ends it
    }
    neve.shutdown(Shutdown::Both)
}

pub(super) fn request(reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let start = head.len();
        reader.read_until(b'\n', &mut head)?;
        let line = String::from_utf8_lossy(&head[start..]).to_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let start = head.len();
    head.resize(start + length, 0);
    reader.read_exact(&mut head[start..])?;
    Ok(head)
}

fn copy(mut from: impl Read, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}
