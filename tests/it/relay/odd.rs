//! An upstream that answers one method with the bytes that a test wants, and all else as a node does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Method with odd answers.
const METHOD: &[u8] = b"eth_getBalance";

pub(super) struct Odd {
    address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
}

#[derive(Clone, Default)]
struct Answer {
    bytes: Vec<u8>,
    /// True if the connection closes behind the bytes.
    closes: bool,
}

impl Odd {
    /// Starts it in front of a node. Its threads end with the connections of neve.
    pub(super) fn start(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let odd = Self { address: listener.local_addr().expect("bound"), answer: Arc::default() };
        let answer = Arc::clone(&odd.answer);
        thread::spawn(move || {
            for neve in listener.incoming().map_while(Result::ok) {
                let answer = Arc::clone(&answer);
                thread::spawn(move || drop(serve(neve, node, &answer)));
            }
        });
        odd
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers with these bytes from now on; `closes` if the connection ends behind them.
    pub(super) fn answer(&self, bytes: &[u8], closes: bool) {
        *self.answer.lock().expect("no panic") = Answer { bytes: bytes.to_vec(), closes };
    }
}

/// Serves a connection as its first request wants: neve has connections for relayed requests alone.
fn serve(neve: TcpStream, node: SocketAddr, answer: &Mutex<Answer>) -> std::io::Result<()> {
    let mut reader = BufReader::new(neve.try_clone()?);
    let first = request(&mut reader)?;
    if !first.windows(METHOD.len()).any(|window| window == METHOD) {
        let mut node = TcpStream::connect(node)?;
        node.write_all(&first)?;
        let (to_node, from_node) = (node.try_clone()?, node);
        let to_neve = neve;
        thread::spawn(move || copy(from_node, to_neve));
        copy(reader, to_node);
        return Ok(());
    }
    let Answer { bytes, closes } = answer.lock().expect("no panic").clone();
    (&neve).write_all(&bytes)?;
    if !closes {
        let _ = reader.read(&mut [0]); // until neve ends it
    }
    neve.shutdown(Shutdown::Both)
}

fn request(reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
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
