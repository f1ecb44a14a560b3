//! An upstream that lies in some turns: about blocks, with a head that stands still, or with one that is far above.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::read;

/// Beginnings of the texts that the liar changes.
const VALUE: &[u8] = b"\"value\":\"0x";
const KEY: &[u8] = b"{\"baseFeePerGas\"";
const FORGED: &[u8] = b"{\"Hash\":\"0x1\",\"baseFeePerGas\"";
/// Question for the head, and the beginning of its answer.
const ASKS_HEAD: &[u8] = b"\"eth_blockNumber\"";
const HEAD: &[u8] = b"\"result\":\"0x";
/// Heights by which a false head is above the true one.
const FAR: u64 = 1_000_000_000;
/// Time of each kind of lie. neve asks for a head more often.
const LIE_TIME: Duration = Duration::from_secs(4);

/// Kind of a lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// A block with another value or another key.
    Block,
    /// A head that stands still.
    Frozen,
    /// A head that is far above.
    FarHead,
}

impl Lie {
    pub(crate) const ALL: [Self; 3] = [Self::Block, Self::Frozen, Self::FarHead];
}

/// State of the liar.
pub(crate) struct Liar {
    pub(crate) address: SocketAddr,
    node: SocketAddr,
    begun: Instant,
    lies: AtomicBool,
    /// The head that stands still, while it does.
    frozen: Mutex<Option<u64>>,
    told: [AtomicU64; Lie::ALL.len()],
}

impl Liar {
    /// Starts one before a node, which says the truth at first. It ends with the process.
    pub(crate) fn start(node: SocketAddr) -> Arc<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let address = listener.local_addr().expect("it listens");
        let (begun, lies) = (Instant::now(), AtomicBool::new(false));
        let (frozen, told) = (Mutex::default(), Default::default());
        let liar = Arc::new(Self { address, node, begun, lies, frozen, told });
        let serving = Arc::clone(&liar);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let liar = Arc::clone(&serving);
                // A connection that breaks is the client's to open again.
                thread::spawn(move || drop(liar.serve(client)));
            }
        });
        liar
    }

    pub(crate) fn lie(&self, lies: bool) {
        self.lies.store(lies, Ordering::Relaxed);
    }

    /// Number of lies of a kind so far.
    pub(crate) fn told(&self, lie: Lie) -> u64 {
        self.told[lie as usize].load(Ordering::Relaxed)
    }

    /// Present lie: the kinds take turns.
    fn lie_now(&self) -> Option<Lie> {
        let turn = self.begun.elapsed().as_secs() / LIE_TIME.as_secs();
        let lies = self.lies.load(Ordering::Relaxed);
        lies.then(|| Lie::ALL[(turn % Lie::ALL.len() as u64) as usize])
    }

    fn serve(&self, client: TcpStream) -> io::Result<()> {
        let mut client = BufReader::new(client);
        let mut node = BufReader::new(TcpStream::connect(self.node)?);
        loop {
            let Some(request) = request(&mut client)? else {
                let none =
                    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                return client.get_mut().write_all(none.as_bytes());
            };
            node.get_mut().write_all(&request)?;
            let mut response = read(&mut node, false)?;
            self.answer(&request, &mut response.body);
            let head = format!(
                "HTTP/1.1 {} OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                response.status,
                response.body.len()
            );
            client.get_mut().write_all(&[head.as_bytes(), &response.body].concat())?;
        }
    }
}

/// Changes of an answer.
impl Liar {
    fn answer(&self, request: &[u8], body: &mut Vec<u8>) {
        let lie = self.lie_now();
        let of_head = find(request, ASKS_HEAD).is_some();
        let stays = self.frozen_head(body, lie == Some(Lie::Frozen), of_head);
        let changed = match lie {
            Some(Lie::Block) => falsify(body),
            Some(Lie::Frozen) => of_head && with_head(body, |head| stays.unwrap_or(head)),
            Some(Lie::FarHead) => of_head && with_head(body, |head| head + FAR),
            None => false,
        };
        if let Some(lie) = lie.filter(|_| changed) {
            self.told[lie as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The head that stands still: the first one of its turn.
    fn frozen_head(&self, body: &[u8], is_frozen: bool, of_head: bool) -> Option<u64> {
        let mut frozen = self.frozen.lock().expect("no thread panics with it");
        *frozen = frozen.filter(|_| is_frozen);
        if is_frozen && of_head && frozen.is_none() {
            *frozen = head_in(body).map(|(_, head)| head);
        }
        *frozen
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// Place and value of the head in an answer.
fn head_in(body: &[u8]) -> Option<(std::ops::Range<usize>, u64)> {
    let start = find(body, HEAD)? + HEAD.len();
    let end = start + find(&body[start..], b"\"")?;
    let digits = std::str::from_utf8(&body[start..end]).ok()?;
    Some((start..end, u64::from_str_radix(digits, 16).ok()?))
}

/// Writes another head into an answer. False if it is the same, or there is none.
fn with_head(body: &mut Vec<u8>, other: impl FnOnce(u64) -> u64) -> bool {
    let Some((place, head)) = head_in(body) else { return false };
    let other = other(head);
    body.splice(place, format!("{other:x}").into_bytes());
    other != head
}

/// The next POST, whole; nothing for another request, such as that of a WebSocket.
fn request(client: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let start = head.len();
        if client.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = head[start..].trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    client.read_exact(&mut body)?;
    Ok(head.starts_with("POST").then(|| [head.as_bytes(), &body].concat()))
}

/// Changes a transaction's value, or puts in a key that no release has. False if the text is of no block.
fn falsify(body: &mut Vec<u8>) -> bool {
    if let Some(at) = find(body, VALUE).map(|at| at + VALUE.len()) {
        body[at] = if body[at] == b'1' { b'2' } else { b'1' };
        return true;
    }
    let Some(at) = find(body, KEY) else { return false };
    body.splice(at..at + KEY.len(), FORGED.iter().copied());
    true
}
