//! Clients that ask for much: how much work that is, and who waits for it.

use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use neve_devnet::{ChainConfig, Config, DevnetThread, Fault, Profile};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use serde_json::{Value, json};

use crate::support::client::{Response, read};
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::served::{devnet, follow};
use crate::support::ws::{End, Ws};

/// Blocks with hundreds of logs each, of which a search of everything finds more than it may.
const HEAD: u64 = 12;
const GREEDY: u8 = 2;
/// A batch of these has no bound but time: each search ends in an error.
const UNBOUNDED: [&str; 8] = [
    "--logs-bytes-max",
    "1MB",
    "--request-examined-bytes-max",
    "none",
    "--request-duration-max",
    "10m",
    "--batch-items-max",
    "40000",
];
/// Calls that fill a body: they take longer than a client waits.
const LONGEST: usize = 40_000;
/// Looks at a queue, one after the other, in which it is as long as it stays.
const STABLE_LOOKS: u32 = 8;

fn start(arguments: &[&str]) -> (DevnetThread, tempfile::TempDir, Neve) {
    let config = Config {
        chain: ChainConfig { profile: Profile::many_logs(), ..ChainConfig::c_chain(1) },
        ..Config::test()
    };
    let devnet = DevnetThread::start(config.with_head(HEAD)).expect("loopback has free ports");
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let fixed = ["--upstream", &url, "--start", "0"];
    let neve = Neve::start(dir.path(), &[&fixed, arguments].concat());
    neve.wait_for_head(HEAD);
    (devnet, dir, neve)
}

/// A search of everything.
const EVERYTHING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"eth_getLogs","params":[{"fromBlock":"0x0","toBlock":"latest"}]}"#;

fn batch(count: usize) -> String {
    format!("[{}]", vec![EVERYTHING; count].join(","))
}

/// A connection from the address 127.0.0.`last`.
fn connect_from(last: u8, neve: &Neve) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0)).unwrap();
    let SocketAddr::V4(address) = neve.address else { panic!("neve listens on 127.0.0.1") };
    connect(&socket, &address).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Sends a request, in the form of the fast path or with a header that only hyper knows.
fn send(mut stream: &TcpStream, body: &str, hyper: bool) {
    let header = if hyper { "Origin: http://a\r\n" } else { "" };
    let head =
        format!("POST / HTTP/1.1\r\nHost: neve\r\nContent-Type: application/json\r\n{header}");
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).unwrap();
}

fn receive(stream: &TcpStream) -> Response {
    read(&mut BufReader::new(stream), false).expect("an answer comes")
}

fn code(item: &Value) -> i64 {
    item["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {item}"))
}

/// Processor time that neve has used (proc(5), `stat`: fields 14 and 15; hundredths of a second).
fn cpu_time(neve: &Neve) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", neve.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}

/// Waits until neve has used less than a fifth of a processor for a second.
fn wait_for_rest(neve: &Neve) {
    let until = Instant::now() + LIMIT;
    loop {
        let before = cpu_time(neve);
        thread::park_timeout(Duration::from_secs(1));
        let used = cpu_time(neve).saturating_sub(before);
        if used < Duration::from_millis(200) {
            return;
        }
        assert!(Instant::now() < until, "still {used:?} of CPU in a second");
    }
}

fn queued(neve: &Neve, pool: &str) -> f64 {
    neve.metric(&format!("neve_offload_queued_requests{{pool=\"{pool}\"}}")).unwrap_or(0.0)
}

fn wait_for_queue(neve: &Neve, at_least: f64) {
    // Not what passes through the queue on its way to a thread that is free.
    let looks = std::cell::Cell::new(0);
    neve.wait("searches that wait", |_| {
        let is_full = queued(neve, "search") >= at_least;
        looks.set(if is_full { looks.get() + 1 } else { 0 });
        (looks.get() >= STABLE_LOOKS).then_some(())
    });
}

/// Work for clients that have left, on all three paths, is given up. Not given up, it takes minutes.
#[test]
fn work_ends_when_its_client_has_closed_the_connection() {
    let (_devnet, _dir, neve) = start(&UNBOUNDED);
    let (short, long, longest) = (batch(100), batch(1000), batch(LONGEST));
    let mut sockets: Vec<_> = (0..3).map(|_| Ws::open(&neve)).collect();
    sockets.iter_mut().for_each(|socket| socket.send(&long));
    let streams: Vec<_> = (0..60).map(|_| connect_from(GREEDY, &neve)).collect();
    for (at, stream) in streams.iter().enumerate() {
        let body = if at % 2 == 0 {
            &short
        } else if at < 20 {
            &longest
        } else {
            &long
        };
        send(stream, body, at % 4 > 0);
    }
    wait_for_queue(&neve, 30.0);
    // One that only says that it sends nothing more counts as gone, as in Go's server.
    streams[0].shutdown(Shutdown::Write).unwrap();
    drop((streams, sockets));
    neve.wait("an empty queue", |_| (queued(&neve, "search") < 1.0).then_some(()));
    wait_for_rest(&neve);
    assert_eq!(neve.client().call("eth_newBlockFilter", "[]").status, 200);
}

#[test]
fn calls_of_other_addresses_do_not_wait_for_a_hundred_searches() {
    let (_devnet, _dir, neve) = start(&UNBOUNDED);
    let streams: Vec<_> = (0..100).map(|_| connect_from(GREEDY, &neve)).collect();
    // The first would use all threads, for longer than a client waits.
    let threads = 2 * thread::available_parallelism().unwrap().get();
    let (longest, long) = (batch(LONGEST), batch(1000));
    for (at, stream) in streams.iter().enumerate() {
        send(stream, if at < threads { &longest } else { &long }, at < threads);
    }
    wait_for_queue(&neve, 80.0);
    let mut client = neve.client();
    let filter = client.result("eth_newBlockFilter", "[]").to_string();
    let logs = client.result("eth_newFilter", "[{}]").to_string();
    let mut socket = Ws::open(&neve);
    for _ in 0..5 {
        assert_eq!(client.call("eth_getFilterChanges", &format!("[{filter}]")).status, 200);
        assert_eq!(client.call("eth_getFilterChanges", &format!("[{logs}]")).status, 200);
        assert_eq!(client.call("eth_feeHistory", "[\"0x400\",\"latest\",[]]").status, 200);
        socket.call("eth_uninstallFilter", "[\"0x1\"]");
    }
    assert!(queued(&neve, "search") >= 80.0, "the others still wait");
}

#[test]
fn requests_beyond_the_queue_are_refused() {
    let limits = ["--queued-requests-address-max", "2", "--queued-requests-total-max", "3"];
    let (_devnet, _dir, neve) = start(&[&UNBOUNDED[..], &limits].concat());
    let threads = thread::available_parallelism().unwrap().get();
    let mut streams: Vec<_> = (0..threads + 2).map(|_| connect_from(GREEDY, &neve)).collect();
    let longest = batch(LONGEST); // the queue stays full, however long the test itself waits
    streams.iter().for_each(|stream| send(stream, &longest, false));
    wait_for_queue(&neve, 2.0);
    for hyper in [false, true] {
        let stream = connect_from(GREEDY, &neve);
        send(&stream, &batch(1000), hyper);
        let refused = receive(&stream);
        let text = "too many requests wait for an answer; try again later\n";
        assert_eq!((refused.status, refused.text().as_str()), (503, text));
        assert_eq!(refused.header("retry-after"), Some("1"));
        // What needs no thread is answered on the same connection.
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;
        send(&stream, call, hyper);
        assert_eq!(receive(&stream).status, 200);
    }
    // Another address has threads of its own, and one place in the queue.
    let more = (0..=threads).map(|_| connect_from(3, &neve));
    streams.extend(more.inspect(|stream| send(stream, &longest, false)));
    wait_for_queue(&neve, 3.0);
    let mut socket = Ws::open(&neve);
    socket.send(&batch(1000));
    let reason = "too many requests wait for an answer; try again later";
    assert_eq!(socket.end(), End::Frame(Some((1013, reason.to_owned()))));
    assert_eq!(neve.count("neve_ws_closed_connections_total{reason=\"busy\"}"), 1);
    assert_eq!(neve.count("neve_offload_refused_requests_total{pool=\"search\"}"), 3);
    drop(streams);
    wait_for_rest(&neve);
}

/// A closed connection would lose its subscriptions, and the calls of others on it.
#[test]
fn long_relayed_response_beyond_the_queue_is_an_error_of_its_call_alone() {
    let limits = ["--queued-requests-address-max", "1", "--on-miss", "relay"];
    let (devnet, _dir, neve) = start(&[&UNBOUNDED[..], &limits].concat());
    let long = format!("\"{}\"", "x".repeat(100_000));
    let _fault = devnet.faults().inject(Fault::Result(long).on("eth_getBalance"));
    let number = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#;
    let params = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
    let balance =
        format!(r#"{{"jsonrpc":"2.0","id":2,"method":"eth_getBalance","params":{params}}}"#);
    let mut socket = Ws::open(&neve);
    let heads = socket.subscribe(r#"["newHeads"]"#);
    let threads = thread::available_parallelism().unwrap().get();
    let streams: Vec<_> = (0..=threads).map(|_| connect_from(1, &neve)).collect();
    streams.iter().for_each(|stream| send(stream, &batch(LONGEST), false));
    wait_for_queue(&neve, 1.0);
    socket.send(&balance);
    let alone: Value = serde_json::from_str(&socket.text()).unwrap();
    assert_eq!((&alone["id"], code(&alone)), (&json!(2), -32005), "{alone}");
    let both = format!("[{number},{balance}]");
    socket.send(&both);
    let over_http = neve.client().post(&both);
    assert_eq!((over_http.status, over_http.header("x-neve")), (200, Some("mixed")));
    for texts in [socket.text(), over_http.text()] {
        let both: Value = serde_json::from_str(&texts).unwrap();
        assert!(both[0]["result"].is_string(), "{both}");
        assert_eq!(code(&both[1]), -32005, "{both}");
    }
    devnet.advance(1);
    assert_eq!(socket.heads(&heads, 1), [HEAD + 1]);
}

/// Answers a call that takes too long as the node does, in less time.
#[test]
fn items_after_the_deadline_of_a_batch_are_timed_out() {
    let bounds = ["--logs-bytes-max", "1MB", "--request-examined-bytes-max", "none"];
    let (_devnet, _dir, neve) = start(&[&bounds[..], &["--request-duration-max", "10ms"]].concat());
    let answer = neve.client().post(&batch(1000));
    assert_eq!(answer.status, 200);
    assert!(answer.body.ends_with(b"}]"), "no newline");
    let items = answer.json();
    let codes: Vec<_> = items.as_array().unwrap().iter().map(code).collect();
    let first_late = codes.iter().position(|code| *code == -32002).expect("it was late");
    assert_eq!(codes.len(), 1000);
    assert!(codes[..first_late].iter().all(|code| *code == -32005), "{codes:?}");
    assert!(codes[first_late..].iter().all(|code| *code == -32002), "{codes:?}");
    assert_eq!(items[999]["error"]["message"], "request timed out");
    let mut socket = Ws::open(&neve);
    socket.send(&batch(1000));
    let answer = socket.text();
    assert!(answer.ends_with("{\"code\":-32002,\"message\":\"request timed out\"}}]\n"));
}

#[test]
fn searches_of_a_request_share_the_bytes_that_they_may_examine() {
    let bounds = ["--logs-bytes-max", "1MB", "--request-examined-bytes-max", "2500000"];
    let (_devnet, _dir, neve) = start(&bounds);
    let block =
        r#"{"jsonrpc":"2.0","id":8,"method":"eth_getBlockByNumber","params":["0x1",false]}"#;
    let body = format!("[{},{block}]", [EVERYTHING; 4].join(","));
    let items = neve.client().post(&body).json();
    let message = |at: usize| items[at]["error"]["message"].as_str().unwrap_or_default();
    assert!(message(0).contains("longer than 1000000 bytes"), "{}", message(0));
    for at in [2, 3] {
        let text = "the request examined more than 2500000 bytes; ask for fewer blocks at a time";
        assert_eq!((code(&items[at]), message(at)), (-32005, text));
    }
    assert_eq!(items[4]["result"]["number"], "0x1", "it examines nothing");
    let alone = neve.client().call("eth_getLogs", "[{\"fromBlock\":\"0x0\"}]");
    assert!(alone.text().contains("longer than 1000000 bytes"), "{}", alone.text());
}

#[test]
fn raw_transactions_of_a_request_share_the_bytes_that_they_may_examine() {
    let bounds = ["--api", "debug-raw", "--request-examined-bytes-max", "10000"];
    let (_devnet, _dir, neve) = start(&bounds);
    let block = neve.client().call("eth_getBlockByNumber", &format!("[\"{HEAD:#x}\",true]")).json();
    let hash = block["result"]["transactions"][0]["hash"].to_string();
    for (method, params) in [
        ("debug_getRawTransaction", &hash),
        ("eth_getRawTransactionByHash", &hash),
        ("eth_getRawTransactionByBlockNumberAndIndex", &format!("\"{HEAD:#x}\",\"0x0\"")),
    ] {
        let call = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[{params}]}}"#);
        let items = neve.client().post(&format!("[{}]", vec![call; 100].join(","))).json();
        let items = items.as_array().expect("a response to each call");
        let served = items.iter().take_while(|item| item["result"].is_string()).count();
        assert!((1..100).contains(&served) && items.len() == 100, "{method}: {served}");
        for item in &items[served..] {
            let text = "the request examined more than 10000 bytes; ask for fewer blocks at a time";
            assert_eq!((code(item), &item["error"]["message"]), (-32005, &text.into()), "{method}");
        }
    }
}

#[test]
fn errors_count_towards_the_length_of_a_batch() {
    let (_devnet, _dir, neve) = start(&["--batch-response-bytes-max", "1000"]);
    let wrong = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getLogs","params":[7]}"#;
    let items = neve.client().post(&format!("[{}]", vec![wrong; 100].join(","))).json();
    let codes: Vec<_> = items.as_array().unwrap().iter().map(code).collect();
    let cut = codes.iter().position(|code| *code == -32003).expect("it was cut");
    assert!((5..12).contains(&cut) && codes.len() == 100, "{codes:?}");
    assert!(codes[cut..].iter().all(|code| *code == -32003), "{codes:?}");
}

/// Reading them alone takes long.
#[test]
fn long_bodies_are_answered_where_they_hold_up_nobody() {
    let (_devnet, _dir, neve) = start(&[]);
    let handed_over = || neve.count("neve_http_offloaded_requests_total");
    let padded = |len: usize| {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;
        format!("{call}{}", " ".repeat(len - call.len()))
    };
    let (long, longer) = (padded(32 << 10), padded((32 << 10) + 1));
    let (mut client, mut socket) = (neve.client(), Ws::open(&neve));
    let short = client.post(&padded(100)).text();
    assert_eq!(client.post(&long).text(), short);
    socket.send(&long);
    assert_eq!(socket.text(), short);
    assert_eq!(handed_over(), 0);
    assert_eq!(client.post(&longer).text(), short);
    socket.send(&longer);
    assert_eq!(socket.text(), short);
    assert_eq!(handed_over(), 2);
}

/// Reading a long text and encoding it takes long, though it is in memory.
#[test]
fn long_raw_forms_are_encoded_where_they_hold_up_nobody() {
    let (_devnet, _dir, neve) = start(&["--api", "debug-raw"]);
    let handed_over = || neve.count("neve_http_offloaded_requests_total");
    let (mut client, mut socket) = (neve.client(), Ws::open(&neve));
    client.result("debug_getRawHeader", "[\"0x1\"]");
    assert_eq!(handed_over(), 0, "a header is short");
    for (at, method) in [(1, "debug_getRawReceipts"), (3, "debug_getRawBlock")] {
        let raw = client.result(method, "[\"0x1\"]");
        assert_eq!(handed_over(), at);
        let over_socket: Value = serde_json::from_str(&socket.call(method, "[\"0x1\"]")).unwrap();
        assert_eq!(over_socket["result"], raw);
        assert_eq!(handed_over(), at + 1);
    }
}

/// Replays that run at once, of so many heights each.
const REPLAYS: usize = 300;
const REPLAYED: u64 = 1000;
/// Rounds of replays, of which one must succeed.
const ROUNDS: usize = 4;

/// A WebSocket that wants all heads, and whose answers the test has not read yet.
fn replay(neve: &Neve) -> TcpStream {
    let mut stream = connect_from(GREEDY, neve);
    let head = "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads",{"fromBlock":"0x1"}]}"#;
    let lead = [0x81, 0x80 | call.len() as u8, 0, 0, 0, 0];
    stream.write_all(&[head.as_bytes(), &lead, call.as_bytes()].concat()).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

/// The shortest time that a call took: a busy machine makes some of them longer.
fn shortest(socket: &mut Ws) -> Duration {
    let time = |_| {
        let start = Instant::now();
        socket.call("eth_chainId", "[]");
        start.elapsed()
    };
    (0..40).map(time).min().expect("some calls")
}

/// A replay always has something to send. Hundreds of them take turns, and other work is done between two turns.
#[test]
fn calls_do_not_wait_for_hundreds_of_replays() {
    let devnet = devnet(REPLAYED);
    let bounds = ["--threads", "1", "--write-timeout", "1h", "--connections-address-max", "1000"];
    let (_dir, neve) = follow(&devnet, &bounds);
    let mut socket = Ws::open(&neve);
    let alone = shortest(&mut socket);
    // A busy machine delays calls too, or the replays end before them.
    let rounds = (0..ROUNDS).map_while(|_| calls_beside_replays(&neve, &mut socket, alone).err());
    let failed: Vec<_> = rounds.collect();
    assert!(failed.len() < ROUNDS, "{failed:?}");
}

/// Calls beside replays, which must not take much longer than they do `alone`.
fn calls_beside_replays(neve: &Neve, socket: &mut Ws, alone: Duration) -> Result<(), String> {
    let open = || neve.metric("neve_ws_subscriptions{kind=\"new_heads\"}").unwrap_or_default();
    neve.wait("the end of earlier replays", |_| (open() < 1.0).then_some(()));
    let sent = || neve.count("neve_ws_notifications_total{kind=\"new_heads\"}");
    let before = sent();
    let replays: Vec<_> = (0..REPLAYS).map(|_| replay(neve)).collect();
    let (over, start) = (AtomicBool::new(false), Instant::now());
    let (beside, count) = thread::scope(|scope| {
        scope.spawn(|| {
            let mut room = vec![0; 64 << 10];
            while !over.load(Ordering::Relaxed) && start.elapsed() < LIMIT {
                replays.iter().for_each(|mut replay| drop(replay.read(&mut room)));
            }
        });
        neve.wait("all replays", |_| (sent() - before > 100 * REPLAYS as u64).then_some(()));
        let beside = shortest(socket);
        over.store(true, Ordering::Relaxed);
        (beside, sent() - before)
    });
    if count >= REPLAYED * REPLAYS as u64 {
        return Err("the replays ended before the calls".to_owned());
    }
    let is_short = beside < 10 * alone + Duration::from_millis(2);
    if is_short { Ok(()) } else { Err(format!("{beside:?}, {alone:?} alone")) }
}
