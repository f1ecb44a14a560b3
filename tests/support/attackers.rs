//! Clients that mean harm: each takes as much as it may from one address, for a while.
//!
//! Whatever the server does to them, they go on: an error ends a connection and nothing else.

mod endless;
mod http2;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BufMut;
use socket2::{Domain, Socket, Type};

/// Below any time-out of the server.
const IO_LIMIT: Duration = Duration::from_secs(2);
/// Pause between looks at the clock.
const PAUSE: Duration = Duration::from_millis(20);
/// Connections that only have to be there.
const MANY: usize = 2_000;
/// Connections that hold something large.
const SOME: usize = 40;
/// Threads that open them: the server may let one wait.
const THREADS: usize = 4;
/// Receive buffer of an attacker that does not read.
const NARROW: usize = 4096;

/// Whom an attacker attacks, from where, and how long.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) target: SocketAddr,
    /// An address of loopback.
    pub(crate) from: Ipv4Addr,
    /// Heights that are served.
    pub(crate) served: (u64, u64),
    pub(crate) until: Instant,
}

/// A kind of attacker: its name, and a round of its attack, which says how many connections it made.
pub(crate) type Kind = (&'static str, fn(&Attack) -> usize);

/// All kinds, each once.
pub(crate) const KINDS: [Kind; 21] = [
    ("partial heads", partial_heads),
    ("stopped bodies", stopped_bodies),
    ("stopped fragments", stopped_fragments),
    ("unread receipts", unread_receipts),
    ("unread logs", unread_logs),
    ("unread fee histories", unread_fee_histories),
    ("unread messages", unread_messages),
    ("unread escapes", unread_escapes),
    ("dropped batches", dropped_batches),
    ("topic lists", topic_lists),
    ("idle connections", idle_connections),
    ("malformed requests", malformed_requests),
    ("filters and subscriptions", filters_and_subscriptions),
    ("long method names", endless::long_names),
    ("replays", endless::replays),
    ("mirror streams", endless::mirror_streams),
    ("unread bodies with Expect", endless::unread_bodies),
    ("unread streams of HTTP/2", http2::unread_streams),
    ("closed windows of HTTP/2", http2::closed_windows),
    ("rapid resets of HTTP/2", http2::rapid_resets),
    ("idle streams of HTTP/2", http2::idle_streams),
];

impl Attack {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Keeps connections open to the end.
    fn hold(&self, connections: &[TcpStream]) -> usize {
        while !self.is_over() {
            thread::park_timeout(PAUSE);
        }
        connections.len()
    }

    fn connect(&self, narrow: bool) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        if narrow {
            socket.set_recv_buffer_size(NARROW)?;
        }
        socket.bind(&SocketAddr::new(IpAddr::V4(self.from), 0).into())?;
        socket.connect_timeout(&self.target.into(), IO_LIMIT)?;
        socket.set_read_timeout(Some(IO_LIMIT))?;
        socket.set_write_timeout(Some(IO_LIMIT))?;
        Ok(socket.into())
    }

    /// Opens up to `count` connections, by some threads, and sends the same on each.
    fn open(&self, count: usize, narrow: bool, bytes: &[u8]) -> Vec<TcpStream> {
        let open = || {
            let mut stream = self.connect(narrow).ok()?;
            // What is refused half-way is an attack all the same.
            let _ = stream.write_all(bytes);
            Some(stream)
        };
        let share = |at| {
            let turns = (at..count).step_by(THREADS);
            turns.map_while(|_| (!self.is_over()).then(open)).flatten().collect::<Vec<_>>()
        };
        thread::scope(|scope| {
            #[allow(clippy::needless_collect, reason = "all begin before the first is waited for")]
            let threads: Vec<_> =
                (0..count.min(THREADS)).map(|at| scope.spawn(move || share(at))).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("it does not panic"))
                .collect()
        })
    }

    /// Opens, sends, and reads nothing to the end.
    fn open_unread(&self, count: usize, bytes: &[u8]) -> usize {
        self.hold(&self.open(count, true, bytes))
    }
}

fn head(len: usize) -> String {
    format!(
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len}\r\n\r\n"
    )
}

fn post(body: &str) -> Vec<u8> {
    [head(body.len()).as_bytes(), body.as_bytes()].concat()
}

fn call(id: usize, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

fn batch(calls: impl Iterator<Item = String>) -> String {
    format!("[{}]", calls.collect::<Vec<_>>().join(","))
}

/// The handshake of a WebSocket, the frames behind it.
fn upgrade(frames: &[u8]) -> Vec<u8> {
    let head = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    [head.as_bytes(), frames].concat()
}

/// A frame of text, masked with zeros, which leave it as it is.
fn frame(text: &str, is_last: bool) -> Vec<u8> {
    let mut out = vec![if is_last { 0x81 } else { 0x01 }];
    match text.len() {
        len @ 0..=125 => out.put_u8(0x80 | len as u8),
        len @ 126..=0xffff => {
            out.put_u8(0xfe);
            out.put_u16(len as u16);
        }
        len => {
            out.put_u8(0xff);
            out.put_u64(len as u64);
        }
    }
    out.put_slice(&[0; 4]);
    out.put_slice(text.as_bytes());
    out
}

fn partial_heads(attack: &Attack) -> usize {
    let filler = "x".repeat(60_000);
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nX-Filler: {filler}");
    attack.hold(&attack.open(MANY, false, head.as_bytes()))
}

fn stopped_bodies(attack: &Attack) -> usize {
    let bytes = [head(5 << 20).as_bytes(), &vec![b' '; 4 << 20]].concat();
    attack.hold(&attack.open(SOME, false, &bytes))
}

fn stopped_fragments(attack: &Attack) -> usize {
    let bytes = upgrade(&frame(&" ".repeat(4 << 20), false));
    attack.hold(&attack.open(SOME, false, &bytes))
}

/// Receipts of every height, a few times.
fn receipts_batch(attack: &Attack) -> String {
    let (first, head) = attack.served;
    let receipts = |height| call(1, "eth_getBlockReceipts", &format!("[\"{height:#x}\"]"));
    batch((first..=head).rev().take(900).map(receipts))
}

fn unread_receipts(attack: &Attack) -> usize {
    attack.open_unread(3 * SOME, &post(&receipts_batch(attack)))
}

fn logs_of_all(attack: &Attack) -> String {
    let (first, head) = attack.served;
    format!(r#"[{{"fromBlock":"{first:#x}","toBlock":"{head:#x}"}}]"#)
}

fn unread_logs(attack: &Attack) -> usize {
    attack.open_unread(SOME, &post(&call(1, "eth_getLogs", &logs_of_all(attack))))
}

fn unread_fee_histories(attack: &Attack) -> usize {
    let params = r#"["0x800","latest",[1,5,10,20,30,40,50,60,70,80,90,99]]"#;
    let body = batch((0..400).map(|id| call(id, "eth_feeHistory", params)));
    attack.open_unread(SOME, &post(&body))
}

/// Opens WebSockets with large calls, and does not read the answers.
fn unread_messages(attack: &Attack) -> usize {
    let logs = frame(&call(1, "eth_getLogs", &logs_of_all(attack)), true);
    let receipts = frame(&receipts_batch(attack), true);
    attack.open_unread(SOME, &upgrade(&[logs, receipts].concat()))
}

/// Each byte of the id is six in the answer.
fn unread_escapes(attack: &Attack) -> usize {
    let id = "<".repeat(3 << 20);
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"web3_clientVersion","params":[]}}"#);
    attack.open_unread(SOME, &post(&body))
}

/// Searches that end in an error or find nothing, asked for by clients that are gone at once.
fn dropped_batches(attack: &Attack) -> usize {
    let (first, head) = attack.served;
    let params = format!(
        r#"[{{"fromBlock":"{first:#x}","toBlock":"{head:#x}","topics":[[],[],["0x{:064x}"]]}}]"#,
        7
    );
    let body = post(&batch((0..600).map(|id| call(id, "eth_getLogs", &params))));
    let mut count = 0;
    while !attack.is_over() && count < 34 {
        drop(attack.open(1, false, &body));
        count += 1;
    }
    attack.hold(&[]);
    count
}

/// Sends bodies full of topics.
fn topic_lists(attack: &Attack) -> usize {
    let (first, head) = attack.served;
    let topics: Vec<_> = (0..70_000).map(|at| format!("\"0x{at:064x}\"")).collect();
    let params = format!(
        r#"[{{"fromBlock":"{first:#x}","toBlock":"{head:#x}","topics":[[{}]]}}]"#,
        topics.join(",")
    );
    let body = post(&call(1, "eth_getLogs", &params));
    let mut count = 0;
    while !attack.is_over() {
        for mut stream in attack.open(4, false, &body) {
            let _ = stream.read(&mut [0; 1024]);
            count += 1;
        }
    }
    count
}

fn idle_connections(attack: &Attack) -> usize {
    attack.hold(&attack.open(MANY, false, b""))
}

/// Bytes that are no request, and requests that are no JSON, each on a connection of its own.
fn malformed_requests(attack: &Attack) -> usize {
    let mut chance = fastrand::Rng::new();
    let mut count = 0;
    while !attack.is_over() {
        let mut bytes = post(&receipts_batch(attack));
        for _ in 0..chance.usize(1..20) {
            let at = chance.usize(0..bytes.len());
            bytes[at] = chance.u8(..);
        }
        bytes.truncate(chance.usize(1..bytes.len()));
        for mut stream in attack.open(8, false, &bytes) {
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read(&mut [0; 1024]);
            count += 1;
        }
        thread::park_timeout(PAUSE);
    }
    count
}

/// Opens filters and subscriptions up to their limits.
fn filters_and_subscriptions(attack: &Attack) -> usize {
    let topics: Vec<_> = (0..600).map(|at| format!("\"0x{at:064x}\"")).collect();
    let filter = format!(r#"{{"topics":[[{}]]}}"#, topics.join(","));
    let filters = batch((0..100).map(|id| call(id, "eth_newFilter", &format!("[{filter}]"))));
    let subscriptions: Vec<_> = (0..100)
        .flat_map(|id| frame(&call(id, "eth_subscribe", &format!("[\"logs\",{filter}]")), true))
        .collect();
    let mut open = attack.open(10, false, &post(&filters));
    open.extend(attack.open(SOME, true, &upgrade(&subscriptions)));
    attack.hold(&open)
}
