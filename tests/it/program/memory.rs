//! Memory that clients can make neve hold: attackers of each kind, and a client of another address.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use neve_devnet::{ChainConfig, Config, DevnetThread};
use socket2::{Domain, Socket, Type};

use crate::store::packed::wait_for_packed;
use crate::support::client::read;
use crate::support::neve::{LIMIT, Neve, fresh_dir};

pub(super) const MIB: u64 = 1 << 20;
/// Memory apart from that of clients (docs/operating/size.md, "Memory").
const BASE: u64 = 64 * MIB;
/// Memory that was given back less than 0.3 s ago (.cargo/config.toml): the faster the machine, the more. Measured: 9 MiB.
const GIVEN_BACK: u64 = 24 * MIB;
/// Memory of a connection that is not reserved: 25 KiB were seen for a WebSocket of a debug build, whose futures are larger.
/// A release build stays below 18.
pub(super) const CONNECTION: u64 = 28 << 10;
/// Blocks of the chain, each with some 40 kB of logs.
const HEAD: u64 = 300;
/// Memory that does not grow for so long will not.
const QUIET: Duration = Duration::from_secs(2);

/// The most memory that a process had, looked at all the time.
pub(super) struct Peak {
    bytes: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    watching: Option<JoinHandle<()>>,
}

impl Peak {
    pub(super) fn watch(neve: &Neve) -> Self {
        let (bytes, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (peak, done, pid) = (Arc::clone(&bytes), Arc::clone(&over), neve.pid());
        let watching = thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(memory(pid).unwrap_or(0), Ordering::Relaxed);
                thread::park_timeout(Duration::from_millis(5));
            }
        });
        Self { bytes, over, watching: Some(watching) }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The most, once it has not become more for a while.
    pub(super) fn settled(&self) -> u64 {
        let start = Instant::now();
        let (mut last, mut since) = (0, start);
        while since.elapsed() < QUIET && start.elapsed() < LIMIT {
            if self.bytes() > last {
                (last, since) = (self.bytes(), Instant::now());
            }
            thread::park_timeout(Duration::from_millis(50));
        }
        last
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.watching.take().map(JoinHandle::join);
    }
}

/// Memory that belongs to no file.
pub(super) fn memory(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some((kib("RssAnon:")? + kib("RssShmem:")?) << 10)
}

/// A chain with much to ask for, and a server of it.
pub(super) fn start(flags: &[&str]) -> (DevnetThread, tempfile::TempDir, Neve) {
    start_growing(0.0, flags)
}

/// Starts such a chain, which gets so many new blocks a second, and a server of it.
pub(super) fn start_growing(rate: f64, flags: &[&str]) -> (DevnetThread, tempfile::TempDir, Neve) {
    let config = Config { chain: ChainConfig::c_chain(1), rate, ..Config::test() }.with_head(HEAD);
    let devnet = DevnetThread::start(config).expect("loopback has free ports");
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let upstream = ["--upstream", &url, "--start", "0"];
    let neve = Neve::start(dir.path(), &[&upstream[..], flags].concat());
    neve.wait_for_head(HEAD);
    (devnet, dir, neve)
}

/// A connection from this address of the host, whose side takes little that is not read.
pub(super) fn connect(neve: &Neve, from: [u8; 4]) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be made");
    socket.set_recv_buffer_size(4096).expect("a buffer's size can be set");
    socket.bind(&SocketAddr::from((from, 0)).into()).expect("all of 127/8 is this host");
    socket.connect(&neve.address.into()).expect("neve listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT)).expect("not zero");
    stream.set_write_timeout(Some(LIMIT)).expect("not zero");
    stream
}

/// Attackers come from five addresses: together they can use all that clients may.
pub(super) fn attacker(at: usize) -> [u8; 4] {
    [127, 0, 1, (at % 5) as u8 + 1]
}

/// Returns one address for all clients.
pub(super) fn only(_: usize) -> [u8; 4] {
    attacker(0)
}

/// An attacker's connections, which stay open.
pub(super) struct Attack<'n> {
    neve: &'n Neve,
    from: fn(usize) -> [u8; 4],
    open: Vec<TcpStream>,
}

impl<'n> Attack<'n> {
    pub(super) fn new(neve: &'n Neve, from: fn(usize) -> [u8; 4]) -> Self {
        Self { neve, from, open: Vec::new() }
    }

    /// Opens so many connections that send these bytes and read nothing. A server that has enough closes
    /// them before it has read all.
    pub(super) fn send(&mut self, count: usize, bytes: &[u8]) {
        for at in 0..count {
            let mut stream = connect(self.neve, (self.from)(at));
            let _ = stream.write_all(bytes);
            self.open.push(stream);
        }
    }

    /// Sends these bytes so many times, and leaves each time before an answer comes.
    pub(super) fn send_and_leave(&mut self, count: usize, bytes: &[u8]) {
        for at in 0..count {
            let _ = connect(self.neve, (self.from)(at)).write_all(bytes);
        }
    }

    /// Sends frames over WebSockets.
    pub(super) fn send_frames(&mut self, count: usize, frames: &[u8]) {
        for at in 0..count {
            let mut stream = connect(self.neve, (self.from)(at));
            let head =
                "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
            let key =
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
            stream.write_all(format!("{head}{key}\r\n").as_bytes()).expect("it is read");
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).expect("an answer");
            assert_eq!(&answer, b"HTTP/1.1 101");
            let _ = stream.write_all(frames);
            self.open.push(stream);
        }
    }
}

/// A frame that is masked by nothing.
#[expect(clippy::big_endian_bytes, reason = "the order of RFC 6455")]
pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    [&[first, 0xff], &payload.len().to_be_bytes()[..], &[0; 4], payload].concat()
}

pub(super) const WHOLE: u8 = 0x81;
const FIRST: u8 = 0x01;
const MORE: u8 = 0x00;

pub(super) fn post(body: &str) -> Vec<u8> {
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

pub(super) fn call(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
}

pub(super) fn batch(call: &str, count: usize) -> String {
    format!("[{}]", vec![call; count].join(","))
}

/// Logs of all blocks.
pub(super) fn all_logs() -> String {
    call("eth_getLogs", r#"[{"fromBlock":"0x1","toBlock":"latest"}]"#)
}

/// Receipts, as many as a batch may have.
pub(super) fn receipts() -> String {
    batch(&call("eth_getBlockReceipts", r#"["0x5"]"#), 500)
}

/// Fees, as many as a batch may have.
pub(super) fn fee_histories() -> String {
    let percentiles = (0..100).map(|at| at.to_string()).collect::<Vec<_>>().join(",");
    batch(&call("eth_feeHistory", &format!(r#"["0x100","latest",[{percentiles}]]"#)), 40)
}

/// An id that an answer repeats in six times its length.
pub(super) fn long_id(bytes: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"eth_chainId"}}"#, "<".repeat(bytes))
}

/// A batch that is refused whole, by an error that repeats this long id.
pub(super) fn long_id_of_a_long_batch(bytes: usize) -> String {
    format!("[{}{}]", long_id(bytes), ",0".repeat(2000))
}

/// A head, and then nothing.
pub(super) fn part_of_a_head(bytes: usize) -> Vec<u8> {
    let head = "POST / HTTP/1.1\r\nHost: x\r\nx: ";
    [head.as_bytes(), &vec![b'a'; bytes]].concat()
}

/// A body of five megabytes, but for its end.
pub(super) fn part_of_a_body() -> Vec<u8> {
    let body = call("eth_chainId", "[]") + &" ".repeat(5_000_000);
    let mut request = post(&body);
    request.pop();
    request
}

/// A message in two frames, of which the second does not end.
pub(super) fn part_of_a_message() -> Vec<u8> {
    let mut second = frame(MORE, &vec![b' '; 4_000_000]);
    second.pop();
    [frame(FIRST, &vec![b' '; 4_000_000]), second].concat()
}

/// A client of another address is served at once, also with what takes memory if `much`.
pub(super) fn others_are_served(neve: &Neve, much: bool) {
    let mut calls = vec![call("eth_blockNumber", "[]"), call("eth_getBlockReceipts", r#"["0x7"]"#)];
    if much {
        calls.extend([all_logs(), receipts(), call("eth_chainId", "[]") + &" ".repeat(1_000_000)]);
    }
    for call in calls {
        let mut stream = connect(neve, [127, 0, 0, 2]);
        stream.write_all(&post(&call)).expect("it is read");
        let answer = read(&mut std::io::BufReader::new(stream), false).expect("an answer");
        let begin = &call[..call.len().min(80)];
        assert_eq!(answer.status, 200, "{begin}: {:.200}", answer.text());
    }
}

/// The budget of these tests. A slow machine needs more than the default time to fill it.
const BUDGET: [&str; 4] = ["--client-bytes-total-max", "64MiB", "--request-duration-max", "10m"];
const TOTAL: u64 = 64 * MIB;

/// Attacks from one address, and then from several: memory stays below what is documented, and clients of
/// other addresses are served.
pub(super) fn withstands(attack: impl Fn(&mut Attack<'_>)) {
    for (from, total) in [(only as fn(usize) -> [u8; 4], TOTAL / 4), (attacker, TOTAL)] {
        let (_devnet, _dir, neve) = start(&BUDGET);
        let peak = Peak::watch(&neve);
        let mut open = Attack::new(&neve, from);
        attack(&mut open);
        wait_for_a_refusal(&neve);
        let most = peak.settled();
        let bound = BASE + GIVEN_BACK + total + CONNECTION * open.open.len() as u64;
        assert!(most < bound, "{} MiB, allowed are {}", most / MIB, bound / MIB);
        others_are_served(&neve, total < TOTAL);
        drop(open);
        neve.wait("the end of all reservations", |health| {
            (health["memory"]["client_reserved_bytes"] == 0).then_some(())
        });
    }
}

fn wait_for_a_refusal(neve: &Neve) {
    let count = |reason| {
        neve.count(&format!("neve_client_refused_reservations_total{{reason=\"{reason}\"}}"))
    };
    let reasons = ["header", "body", "message", "response", "unread", "filter"];
    neve.wait("a refused reservation", |_| reasons.iter().any(|of| count(of) > 0).then_some(()));
}

#[test]
fn sockets_that_do_not_read_logs_take_bounded_memory() {
    withstands(|attack| attack.send_frames(200, &frame(WHOLE, batch(&all_logs(), 2).as_bytes())));
}

#[test]
fn sockets_that_do_not_read_receipts_take_bounded_memory() {
    withstands(|attack| attack.send_frames(300, &frame(WHOLE, receipts().as_bytes()).repeat(3)));
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn batches_of_fee_histories_that_are_not_read_take_bounded_memory() {
    withstands(|attack| attack.send(30, &post(&fee_histories())));
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn answers_through_hyper_that_are_not_read_take_bounded_memory() {
    withstands(|attack| {
        let request = String::from_utf8(post(&receipts())).expect("text");
        let request = request.replacen("\r\n", "\r\nOrigin: http://a.example\r\n", 1);
        attack.send(1000, request.as_bytes());
    });
}

#[test]
fn ids_that_grow_when_they_are_repeated_take_bounded_memory() {
    withstands(|attack| {
        attack.send(20, &post(&long_id(2_000_000)));
        attack.send(20, &post(&batch(&long_id(20_000), 100)));
        attack.send_frames(20, &frame(WHOLE, long_id(2_000_000).as_bytes()));
        let missed = long_id(2_000_000).replace("eth_chainId", "eth_call");
        attack.send(20, &post(&missed));
        attack.send(20, &post(&format!("[{missed}]")));
    });
}

#[test]
fn long_batches_with_a_long_id_take_bounded_memory() {
    withstands(|attack| {
        attack.send_frames(15, &frame(WHOLE, long_id_of_a_long_batch(10_000_000).as_bytes()));
        attack.send(20, &post(&long_id_of_a_long_batch(4_000_000)));
    });
}

#[test]
fn heads_that_do_not_end_take_bounded_memory() {
    withstands(|attack| {
        attack.send(1500, &part_of_a_head(60_000));
        attack.send(900, &part_of_a_head(15_000));
    });
}

/// A connection with a head in part, which is off the fast path: less than a WebSocket. A debug build takes more
/// than is documented.
#[test]
fn connection_takes_bounded_memory_beside_the_budget() {
    const COUNT: usize = 1500;
    const BOUND: u64 = 24 << 10;
    let (_devnet, _dir, neve) = start(&[]);
    let before = memory(neve.pid()).expect("it runs");
    let peak = Peak::watch(&neve);
    let mut open = Attack::new(&neve, attacker);
    open.send(COUNT, &part_of_a_head(5000));
    let all_heads = 5000 * COUNT as u64;
    let reserved = || neve.count("neve_client_reserved_bytes");
    neve.wait("memory for each head", |_| (reserved() > all_heads).then_some(()));
    let most = peak.settled();
    let reserved = reserved();
    let each = most.saturating_sub(before + reserved) / COUNT as u64;
    assert!(each < BOUND, "{each} bytes, allowed are {BOUND}");
}

#[test]
fn bodies_and_messages_that_do_not_end_take_bounded_memory() {
    withstands(|attack| {
        attack.send(30, &part_of_a_body());
        attack.send_frames(30, &part_of_a_message());
    });
}

/// Texts of packed heights are in memory, and a few logs may be long: each height is looked at.
#[test]
fn search_of_packed_heights_ends_where_memory_does() {
    let packing = ["--segment-blocks", "64", "--unpacked-bytes", "0B"];
    let bounds = ["--client-bytes-address-max", "200KiB", "--threads", "1"];
    // The scrubber unpacks what it reads, and begins five seconds after the start.
    let quiet = ["--scrub-bytes-per-second", "none"];
    let (_node, _dir, neve) = start(&[&packing[..], &bounds, &quiet].concat());
    wait_for_packed(&neve, 256); // the newest range is the first
    let mut client = neve.client();
    let mut search = |from: u64, to: u64| {
        let before = neve.count("neve_store_unpacked_bytes_total");
        let range = format!(r#"[{{"fromBlock":"{from:#x}","toBlock":"{to:#x}"}}]"#);
        let response = client.call("eth_getLogs", &range);
        (neve.count("neve_store_unpacked_bytes_total") - before, response)
    };
    let (mut each, mut logs, mut last) = (0, 0, 0);
    for height in 1..64 {
        let (unpacked, response) = search(height, height);
        let count = || response.json()["result"].as_array().map_or(0, Vec::len);
        let found = if response.status == 200 { count() } else { 512 };
        if logs + found >= 512 {
            break; // from so many on all logs were looked at before
        }
        (each, logs, last) = (each + unpacked, logs + found, height);
    }
    assert!(logs > 300, "{logs} logs up to {last}");
    let (unpacked, response) = search(1, last);
    assert_eq!(response.status, 503);
    assert!(unpacked < each, "{unpacked} bytes of {each} were unpacked in vain");
    neve.stop_in_time();
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn subscribers_that_do_not_read_take_bounded_memory() {
    withstands(|attack| {
        let logs = call("eth_subscribe", r#"["logs",{"fromBlock":"0x1"}]"#);
        let heads = call("eth_subscribe", r#"["newHeads",{"fromBlock":"0x1"}]"#);
        let both = [frame(WHOLE, logs.as_bytes()), frame(WHOLE, heads.as_bytes())].concat();
        attack.send_frames(1500, &both);
        let addresses = vec![format!("\"0x{:040x}\"", 7); 20_000].join(",");
        let long = call("eth_subscribe", &format!(r#"["logs",{{"address":[{addresses}]}}]"#));
        attack.send_frames(50, &frame(WHOLE, long.as_bytes()));
    });
}

/// A list of them would take eight times their text, and more while it grows.
#[test]
fn parameters_of_a_relayed_call_take_no_more_memory_than_their_text() {
    const BOUND: u64 = 48 * MIB;
    let (_devnet, _dir, neve) = start(&["--on-miss", "relay"]);
    // neve judges nothing behind an access list.
    let params = format!("[{{\"accessList\":[]}}{}]", ",0".repeat(2_500_000));
    let before = memory(neve.pid()).expect("it runs");
    let peak = Peak::watch(&neve);
    let answer = neve.client().post(&call("eth_call", &params));
    assert_eq!(answer.header("x-neve"), Some("relay"), "{:.200}", answer.text());
    let most = peak.settled() - before;
    assert!(most < BOUND, "{} MiB, allowed are {}", most / MIB, BOUND / MIB);
}
