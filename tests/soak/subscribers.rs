//! Subscribers to heads: each gets each height once, in order, over all restarts.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use neve_devnet::Version;
use tokio_tungstenite::tungstenite::protocol::WebSocket;
use tokio_tungstenite::tungstenite::{Error, Message, client};

use crate::report::Report;
use crate::stage::{Phase, Place, Stage};
use crate::support::ws::Notification;
use crate::traffic::served;

/// Between attempts to connect, and between looks at the phase.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest time for the server to accept and to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// After the last height is known, all of them must have come within this.
const LAST_WITHIN: Duration = Duration::from_mins(2);

/// Reason for the end of a connection.
enum End {
    /// All heights came.
    Done,
    /// Broken connection, or one that the server closed.
    Broken,
    /// Violation of a promise.
    Failed(String),
}

/// Listens until all heights came.
pub(crate) fn run(stage: &Stage, place: Place, report: &Report) {
    let _guard = stage.ends_when_dropped();
    let address = stage.server(place).address;
    let first = served(address).expect("it serves").1 + 1;
    let mut listener = Listener { stage, report, place, next: first, late: None };
    for attempt in 0.. {
        if attempt > 0 {
            report.resumed();
            thread::park_timeout(PAUSE);
        }
        match listener.listen() {
            End::Done => return,
            End::Broken => {}
            End::Failed(why) => return report.fail(format!("a subscriber of {place:?}: {why}")),
        }
    }
}

struct Listener<'s> {
    stage: &'s Stage,
    report: &'s Report,
    place: Place,
    /// The height that comes next.
    next: u64,
    /// Time by which all must have come, once that is known.
    late: Option<Instant>,
}

impl Listener<'_> {
    /// Subscribes from the next height on, and listens as long as the connection lasts.
    fn listen(&mut self) -> End {
        if let Some(end) = self.end() {
            return end;
        }
        let Some(mut socket) = self.connect() else { return End::Broken };
        let params = format!("[\"newHeads\",{{\"fromBlock\":\"{:#x}\"}}]", self.next);
        let call =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":{params}}}"#);
        if socket.send(Message::text(call)).is_err() {
            return End::Broken;
        }
        loop {
            if let Some(end) = self.end() {
                return end;
            }
            match socket.read() {
                Ok(Message::Text(text)) => {
                    if let Some(end) = self.take(&text) {
                        return end;
                    }
                }
                Ok(Message::Ping(_)) => drop(socket.flush()),
                Ok(Message::Close(_)) => return End::Broken,
                Ok(_) => {}
                Err(Error::Io(error))
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return End::Broken,
            }
        }
    }

    fn connect(&self) -> Option<WebSocket<TcpStream>> {
        let address = self.stage.server(self.place).address;
        let stream = TcpStream::connect_timeout(&address, HANDSHAKE).ok()?;
        stream.set_read_timeout(Some(HANDSHAKE)).ok()?;
        let (socket, _) = client(format!("ws://{address}/ws"), stream).ok()?;
        socket.get_ref().set_read_timeout(Some(PAUSE)).ok()?;
        Some(socket)
    }

    /// Takes a head, or the answer to the subscription.
    fn take(&mut self, text: &str) -> Option<End> {
        let Some(head) = Notification::read(text) else {
            let lost = text.contains("is not served");
            return match text {
                _ if lost => Some(End::Failed(format!("{} was evicted: {text}", self.next))),
                text if text.contains("\"error\"") => Some(End::Broken),
                _ => None,
            };
        };
        let height = head.height("number");
        if height != self.next {
            return Some(End::Failed(format!("height {height} came instead of {}", self.next)));
        }
        let block = self.stage.devnet.block(height).expect("the chain has it");
        if head.result.as_bytes() != block.head(Version::V1_15) {
            return Some(End::Failed(format!("another head {height}: {}", head.result)));
        }
        self.report.head();
        self.next += 1;
        None
    }

    /// Returns the end, if all came, or all is over.
    fn end(&mut self) -> Option<End> {
        if self.stage.phase() == Phase::Over || self.next > self.stage.last() {
            return Some(End::Done);
        }
        if self.stage.last() == u64::MAX {
            return None;
        }
        let late = *self.late.get_or_insert_with(|| Instant::now() + LAST_WITHIN);
        let why = || End::Failed(format!("{} did not come within {LAST_WITHIN:?}", self.next));
        (Instant::now() > late).then(why)
    }
}
