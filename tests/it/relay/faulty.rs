//! A proxy of a node that fails as it is told. It has filters of its own, which the node does not have.

use std::collections::HashSet;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::odd::request;
use crate::support::client::read;

/// Letters of a long result.
pub(super) const LONG: usize = 50 << 20;

/// Failure of the answers to relayed calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Pass,
    /// Each connection ends at once, those of following too.
    Dead,
    Stalls,
    /// Half of an answer comes, then the connection ends.
    Half,
    /// The result has [`LONG`] letters.
    Long,
    /// A chunk is followed by something else.
    BrokenChunk,
    /// HTTP 500 and a page.
    Page,
}

pub(super) struct Faulty {
    address: SocketAddr,
    mode: Arc<Mutex<Mode>>,
}

/// Number of filters that were opened. Each has a number of its own in all upstreams.
static FILTERS: AtomicU64 = AtomicU64::new(0);

impl Faulty {
    /// Starts it in front of a node. Its threads end with the connections of neve.
    pub(super) fn start(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let mode = Arc::new(Mutex::new(Mode::Pass));
        let faulty = Self { address: listener.local_addr().expect("bound"), mode };
        let mode = Arc::clone(&faulty.mode);
        let own = Arc::<Mutex<HashSet<String>>>::default();
        thread::spawn(move || {
            for neve in listener.incoming().map_while(Result::ok) {
                let (mode, own) = (Arc::clone(&mode), Arc::clone(&own));
                thread::spawn(move || serve(&neve, node, &mode, &own));
            }
        });
        faulty
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn fail(&self, mode: Mode) {
        *self.mode.lock().expect("no panic") = mode;
    }
}

/// Serves a connection until it ends; an error ends it too.
fn serve(
    neve: &TcpStream,
    node: SocketAddr,
    mode: &Mutex<Mode>,
    filters: &Mutex<HashSet<String>>,
) -> Option<()> {
    let now = || *mode.lock().expect("no panic");
    let mut reader = BufReader::new(neve.try_clone().ok()?);
    loop {
        let asked = (now() != Mode::Dead).then(|| request(&mut reader))?.ok()?;
        let body = asked.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let call: Value = serde_json::from_slice(&asked[body..]).ok()?;
        let head = String::from_utf8_lossy(&asked[..body]).to_lowercase();
        let is_relayed = head.contains("\r\nvia: ");
        let mode = if is_relayed || now() == Mode::Dead { now() } else { Mode::Pass };
        if mode == Mode::Stalls {
            while now() == Mode::Stalls && !is_over(neve) {
                thread::park_timeout(Duration::from_millis(5));
            }
            return None;
        }
        let mut answer = match filter(&call, filters) {
            Some(answer) => answer.to_string().into_bytes(),
            None => ask(node, &asked)?,
        };
        if mode == Mode::Long {
            let one = |id: &Value| {
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{}"}}"#, "a".repeat(LONG))
            };
            let long = match &call {
                Value::Array(calls) => format!("[{}]", one(&calls[0]["id"])),
                call => one(&call["id"]),
            };
            answer = long.into_bytes();
        }
        write(neve, mode, &answer)?;
    }
}

/// Response to a call about filters, as a node has it that opened those of `own`.
fn filter(call: &Value, own: &Mutex<HashSet<String>>) -> Option<Value> {
    let mut own = own.lock().expect("no panic");
    let id = &call["id"];
    let result = |result: Value| Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    match call["method"].as_str()? {
        "eth_newPendingTransactionFilter" => {
            let id = format!("0x{:x}", 0x1000 + FILTERS.fetch_add(1, Ordering::Relaxed));
            own.insert(id.clone());
            result(Value::from(id))
        }
        "eth_getFilterChanges" if own.contains(call["params"][0].as_str()?) => result(json!([])),
        "eth_getFilterChanges" => {
            let error = json!({ "code": -32000, "message": "filter not found" });
            Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }))
        }
        _ => None,
    }
}

fn is_over(mut neve: &TcpStream) -> bool {
    let waits = neve.set_read_timeout(Some(Duration::from_millis(1)));
    waits.is_err() || matches!(neve.read(&mut [0]), Ok(0))
}

fn ask(node: SocketAddr, request: &[u8]) -> Option<Vec<u8>> {
    let mut node = TcpStream::connect(node).ok()?;
    node.write_all(request).ok()?;
    Some(read(&mut BufReader::new(node), false).ok()?.body)
}

fn write(mut neve: &TcpStream, mode: Mode, body: &[u8]) -> Option<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let whole = format!("{head}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    let half = &body[..body.len() / 2];
    let (bytes, goes_on) = match mode {
        Mode::Pass | Mode::Long => ([&whole, body].concat(), true),
        Mode::Half => ([&whole, half].concat(), false),
        Mode::BrokenChunk => {
            let chunk = format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", half.len());
            ([chunk.as_bytes(), half, b"\r\nzz\r\n"].concat(), false)
        }
        Mode::Page => {
            let page = "HTTP/1.1 500 Oops\r\nContent-Type: text/html\r\nContent-Length: 1\r\n\r\nx";
            (page.as_bytes().to_vec(), true)
        }
        Mode::Dead | Mode::Stalls => (Vec::new(), false),
    };
    neve.write_all(&bytes).ok()?;
    goes_on.then_some(())
}
