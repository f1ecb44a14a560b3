use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use neve_store::Options;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use super::*;
use crate::body::ResponseBody;
use crate::config::settings::{ClientLimits, Config};
use crate::http::admit::Hosts;
use crate::http::listener::{Reloaded, Role, Shared};
use crate::http::open_connection::Arrived;
use crate::http::response::writer::tests::{LONG, cold_body};
use crate::http::response::{Persistence, ResponseWriter};
use crate::http::{ConnectionGuard, Offload, UnsentResponse, worker};
use crate::observe::{Admin, CapacityBounds, MirrorPlaces};
use crate::rpc::RpcResponse;
use crate::rpc::cursors::Filters;
use crate::shared::tests::plenty;
use crate::shared::{FREE_BYTES, Holder, IngestBudget, MemoryBudget, Serving};

const REQUEST: &str =
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]";

/// A loop over an empty store that is not running, and what it needs to be one.
struct Idle {
    event_loop: EventLoop,
    left: UnboundedReceiver<ToFull>,
    _dir: TempDir,
}

impl Idle {
    fn new() -> Self {
        Self::with(&[], plenty())
    }

    /// A loop with more flags and this memory for clients.
    fn with(flags: &[&str], memory: Arc<MemoryBudget>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let flags = [&["--dev"], flags].concat();
        let (config, _) = Config::from_flags(&flags).expect("they are allowed");
        let options = Options { segment_bytes: 1 << 20, disk_reserve_bytes: 0, ..config.store };
        let opened = neve_store::open(dir.path(), options).expect("an empty store");
        let (leaving, left) = unbounded_channel();
        let shared = shared(&config, Arc::new(Serving::new(opened.reader)), &dir, memory);
        let service = worker::fast_service(&shared, Role::Rpc { admin: true }, &Arc::default());
        let place = Arc::new(ArcSwap::from_pointee(service));
        let (event_loop, _) = EventLoop::new(place, leaving).expect("an epoll");
        Self { event_loop, left, _dir: dir }
    }

    /// A connection on which this has come, seen from the client; it is the only one.
    fn connect(&mut self, read: &str) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (stream, from) = listener.accept().expect("it was asked");
        stream.set_nonblocking(true).expect("a socket");
        client.set_read_timeout(Some(Duration::from_mins(1))).expect("a socket");
        let connections = Arc::new(AtomicUsize::new(0));
        let read = Bytes::copy_from_slice(read.as_bytes());
        let proxied = self.event_loop.service.policy.proxies.trust(from.ip());
        let (address, seat) = (from.ip().into(), None);
        let arrived = Arrived { stream, read, address, proxied, seat };
        let moved =
            OpenConnection::new(arrived, ConnectionGuard::new(&Arc::default(), &connections));
        self.event_loop.enter(moved, Instant::now());
        client
    }

    /// Number of answered requests.
    fn answered(&self) -> u64 {
        self.event_loop.service.responder.rpc.counters.plain.load(Ordering::Relaxed)
    }
}

fn shared(
    config: &Config,
    serving: Arc<Serving>,
    dir: &TempDir,
    memory: Arc<MemoryBudget>,
) -> Shared {
    let (connections, (_, drain)) = (Arc::default(), watch::channel(false));
    let live = Reloaded { limits: ClientLimits::of(config), relay: None };
    let (_, reloaded) = watch::channel(live);
    let admin = Admin {
        serving: Arc::clone(&serving),
        status: Arc::default(),
        thread_counters: Vec::new(),
        connections: Arc::clone(&connections),
        mirrors: MirrorPlaces::new(0),
        queue_bytes: Arc::default(),
        budget: IngestBudget::new(config.fetch.ingest_bytes_max),
        busy: Arc::default(),
        written: Arc::default(),
        memory,
        metrics: None,
        ready: Arc::new(ArcSwap::from_pointee(config.ready)),
        upstream: Arc::default(),
        data_dir: dir.path().to_owned(),
        bounds: CapacityBounds::default(),
    };
    Shared {
        serving,
        memory: Arc::clone(&admin.memory),
        admin: Arc::new(admin),
        filters: Arc::new(Filters::new(config.limits.filters_max, config.limits.filters_max)),
        caches: Arc::default(),
        limits: config.limits,
        offload: Offload::new(1, config.limits.queue),
        http: config.http.clone(),
        hosts: Hosts::new(&config.http.allowed_hosts),
        connections,
        reloaded,
        drain,
        mirrors: None,
        misses: config.misses.policy(),
        keys: None,
        access: None,
        lender: None,
        relay: None,
    }
}

#[test]
fn pipelined_requests_are_answered_in_turns() {
    let mut idle = Idle::new();
    let _client = idle.connect(&REQUEST.repeat(40));
    for (expected, more) in [(16, true), (32, true), (40, false)] {
        assert_eq!((idle.answered(), !idle.event_loop.again.is_empty()), (expected, more));
        // Wanted twice, as when more comes meanwhile: it is one turn all the same.
        idle.event_loop.again = vec![0, 0];
        idle.event_loop.turns(Instant::now());
    }
}

#[test]
fn deadline_is_set_again_after_an_offloaded_response() {
    let mut idle = Idle::new();
    let mut client = idle.connect("");
    let stream = idle.event_loop.open[0].wait().expect("it has one");
    let later = Instant::now() + idle.event_loop.deadlines.idle;
    idle.event_loop.close_expired(later);
    assert_eq!(
        (idle.event_loop.open.len(), idle.event_loop.look_at),
        (1, None),
        "it does not time out"
    );
    let reply = RpcResponse::Served(ResponseBody::default());
    let out = idle.event_loop.service.responder.out(reply, Persistence::Kept);
    let left = UnsentResponse { stream, out: Box::new(out) };
    idle.event_loop.answered(0, Some(Waited::Unsent(left)), later);
    let mut begin = [0; 15];
    client.read_exact(&mut begin).expect("an answer");
    assert_eq!(&begin, b"HTTP/1.1 200 OK");
    let due = later + idle.event_loop.deadlines.idle;
    assert_eq!(idle.event_loop.look_at, Some(due));
    idle.event_loop.close_expired(due);
    assert!(idle.event_loop.open.is_empty(), "it has said nothing for too long");
}

/// A look that an answer waited for is as far off as that may take; idling then may end sooner.
#[test]
fn idling_can_end_sooner_than_sending() {
    let mut idle = Idle::new();
    idle.event_loop.deadlines =
        Deadlines { idle: Duration::from_secs(1), write: Duration::from_mins(1) };
    let mut client = idle.connect("");
    let now = Instant::now();
    idle.event_loop.look_at = Some(now + idle.event_loop.deadlines.write);
    client.write_all(REQUEST.as_bytes()).expect("it goes at once");
    for _ in 0..1000 {
        idle.event_loop.turn(0, now);
        if idle.answered() > 0 {
            break;
        }
        thread::park_timeout(Duration::from_millis(10)); // it is on its way
    }
    assert_eq!(
        (idle.answered(), idle.event_loop.look_at),
        (1, Some(now + idle.event_loop.deadlines.idle))
    );
}

#[test]
fn connection_whose_offloaded_work_is_lost_is_closed() {
    let mut idle = Idle::new();
    let mut client = idle.connect("");
    drop(idle.event_loop.open[0].wait());
    idle.event_loop.answered(0, None, Instant::now());
    assert_eq!(client.read(&mut [0; 1]).ok(), Some(0));
    assert!(idle.event_loop.open.is_empty());
}

#[test]
fn more_than_a_plain_request_can_be_goes_to_hyper_at_once() {
    let mut idle = Idle::new();
    let client = idle.connect("");
    let key = idle.event_loop.open.iter().next().expect("it is there").0;
    let moved = idle.event_loop.open.remove(key).leave(Bytes::from(vec![b'x'; ROOM + 1]));
    let moved = moved.expect("it has a socket");
    idle.event_loop.enter(moved, Instant::now());
    assert!(idle.event_loop.open.is_empty());
    let Ok(ToFull::Connection(moved)) = idle.left.try_recv() else { unreachable!("it left") };
    assert_eq!(moved.read.len(), ROOM + 1);
    drop(client);
}

#[test]
fn unsent_bytes_that_went_cold_are_waited_for() {
    let mut idle = Idle::new();
    let mut client = idle.connect("");
    let (body, _, bytes) = cold_body(LONG);
    let mut out = ResponseWriter::plain(body, Persistence::Closed, None);
    out.age();
    let stream = idle.event_loop.open[0].wait().expect("it has one");
    let mut left = Some(UnsentResponse { stream, out: Box::new(out) });
    let reads = thread::spawn(move || {
        let mut read = Vec::new();
        client.read_to_end(&mut read).map(|_| read)
    });
    idle.event_loop.open[0].ends_after_this();
    let (mut waited, mut events) = (0, Events::with_capacity(EVENTS));
    let over = Instant::now() + Duration::from_mins(1);
    while !idle.event_loop.open.is_empty() && Instant::now() < over {
        if let Some(left) = left.take() {
            idle.event_loop.answered(0, Some(Waited::Unsent(left)), Instant::now());
        }
        if let Ok(ToFull::Unsent(0, unsent)) = idle.left.try_recv() {
            waited += 1;
            left = unsent.send();
            assert!(left.is_some(), "a client that reads");
            continue;
        }
        idle.event_loop.poll.poll(&mut events, Some(Duration::from_millis(10))).expect("an epoll");
        events.iter().for_each(|event| idle.event_loop.event(event, Instant::now()));
    }
    let read = reads.join().expect("it reads").expect("a socket");
    assert!(read.ends_with(&bytes), "{} bytes", read.len());
    assert!(waited > 0, "it was all in memory");
}

/// Bytes that follow a response in part wait for it, and there is no memory for them.
#[test]
fn refusal_for_memory_never_stands_amid_a_response_that_waits_for_the_disk() {
    let mut idle = Idle::with(&[], MemoryBudget::new(1, 1));
    let mut client = idle.connect("");
    let (body, _, _) = cold_body(LONG);
    let mut out = ResponseWriter::plain(body, Persistence::Kept, None);
    out.age();
    let stream = idle.event_loop.open[0].wait().expect("it has one");
    let (left, now) = (UnsentResponse { stream, out: Box::new(out) }, Instant::now());
    idle.event_loop.open[0].answered(left, now);
    idle.event_loop.open[0].comes_behind(&[b'x'; FREE_BYTES + 1]);
    idle.event_loop.turn(0, now);
    assert!(idle.event_loop.open.is_empty());
    let mut sent = Vec::new();
    client.read_to_end(&mut sent).expect("an end");
    assert!(!sent.windows(8).any(|bytes| bytes == b"HTTP/1.1"), "{} bytes", sent.len());
}

/// The share of a front is for heads of all its clients.
#[test]
fn unread_response_counts_for_the_client_that_a_front_names() {
    let memory = MemoryBudget::new(1 << 30, 64 << 20);
    let mut idle = Idle::with(&["--trusted-proxies", "127.0.0.1"], Arc::clone(&memory));
    let front = IpAddr::from([127, 0, 0, 1]).into();
    let _used_up = memory.account(front).reserve(Holder::Head, 64 << 20).expect("all of it");
    let named = REQUEST.replace("\r\n\r\n", "\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n");
    let _client = idle.connect(&named);
    assert_eq!(idle.answered(), 1);
    let body = ResponseBody::from(vec![b' '; 32 << 20]);
    let out = ResponseWriter::plain(body, Persistence::Kept, None);
    let stream = idle.event_loop.open[0].wait().expect("it has one");
    let left = UnsentResponse { stream, out: Box::new(out) };
    idle.event_loop.answered(0, Some(Waited::Unsent(left)), Instant::now());
    assert_eq!(idle.event_loop.open.len(), 1, "the client has memory");
    assert!(memory.used() > 96 << 20, "{}", memory.used());
}

#[test]
fn drained_connection_closes_behind_its_next_response_or_after_a_while() {
    let mut idle = Idle::new();
    let (mut client, silent) = (idle.connect(""), idle.connect(""));
    let now = Instant::now();
    idle.event_loop.drain(now);
    client.write_all(REQUEST.as_bytes()).expect("it goes at once");
    let over = now + Duration::from_mins(1);
    while idle.event_loop.open.len() > 1 && Instant::now() < over {
        idle.event_loop.turn(0, now);
    }
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response and the end");
    assert!(response.contains("\r\nconnection: close\r\n"), "{response}");
    idle.event_loop.close_expired(now + DRAIN_IDLE.saturating_sub(Duration::from_millis(1)));
    assert_eq!(idle.event_loop.open.len(), 1, "the silent one has time left");
    idle.event_loop.close_expired(now + DRAIN_IDLE);
    assert!(idle.event_loop.open.is_empty());
    drop(silent);
}
