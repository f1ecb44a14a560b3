//! An upstream that lies in some turns: it hands on what the node says of a block, with another value or another key.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::support::client::read;

/// Beginnings of the texts that the liar changes.
const VALUE: &[u8] = b"\"value\":\"0x";
const KEY: &[u8] = b"{\"baseFeePerGas\"";
const FORGED: &[u8] = b"{\"Hash\":\"0x1\",\"baseFeePerGas\"";

/// State of the liar.
pub(crate) struct Liar {
    pub(crate) address: SocketAddr,
    node: SocketAddr,
    lies: AtomicBool,
    told: AtomicU64,
}

impl Liar {
    /// Starts one before a node, which says the truth at first. It ends with the process.
    pub(crate) fn start(node: SocketAddr) -> Arc<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let address = listener.local_addr().expect("it listens");
        let (lies, told) = (AtomicBool::new(false), AtomicU64::new(0));
        let liar = Arc::new(Self { address, node, lies, told });
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

    /// Number of lies so far.
    pub(crate) fn told(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
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
            if self.lies.load(Ordering::Relaxed) && falsify(&mut response.body) {
                self.told.fetch_add(1, Ordering::Relaxed);
            }
            let head = format!(
                "HTTP/1.1 {} OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                response.status,
                response.body.len()
            );
            client.get_mut().write_all(&[head.as_bytes(), &response.body].concat())?;
        }
    }
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
    let find = |what: &[u8]| body.windows(what.len()).position(|window| window == what);
    if let Some(at) = find(VALUE).map(|at| at + VALUE.len()) {
        body[at] = if body[at] == b'1' { b'2' } else { b'1' };
        return true;
    }
    let Some(at) = find(KEY) else { return false };
    body.splice(at..at + KEY.len(), FORGED.iter().copied());
    true
}
