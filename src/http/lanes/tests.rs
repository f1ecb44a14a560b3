use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;
use neve_store::Options;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use super::*;
use crate::admin::Admin;
use crate::cli::{Cli, Command};
use crate::config::Config;
use crate::fetch::Budget;
use crate::filters::Filters;
use crate::http::door::{Counted, Wait};
use crate::http::out::Out;
use crate::http::out::tests::{LONG, cold_body};
use crate::http::plain::Persistence;
use crate::http::reply::Builder;
use crate::http::rpc::Reply;
use crate::http::{Role, Shared, worker};
use crate::room::Room;
use crate::serving::Serving;

const REQUEST: &str =
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]";

/// A loop over an empty store that is not running, and what it needs to be one.
struct Idle {
    lanes: Lanes,
    left: UnboundedReceiver<Leave>,
    _dir: TempDir,
}

impl Idle {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let Command::Serve(args) = Cli::parse_from(["neve", "serve", "--dev"]).command else {
            unreachable!("that is what was asked for")
        };
        let config = Config::from_args(*args).expect("the defaults are allowed");
        let options = Options { segment_bytes: 1 << 20, disk_reserve_bytes: 0, ..config.store };
        let opened = neve_store::open(dir.path(), options).expect("an empty store");
        let (leaving, left) = unbounded_channel();
        let shared = shared(&config, Arc::new(Serving::new(opened.reader)), &dir);
        let service = worker::service(&shared, Role::Rpc { admin: true }, &Arc::default());
        let patience = shared.http.patience;
        let (lanes, _) = Lanes::new(Arc::new(service), patience, leaving).expect("an epoll");
        Self { lanes, left, _dir: dir }
    }

    /// A connection on which this has come, seen from the client; it is the only one.
    fn connect(&mut self, read: &str) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (stream, _) = listener.accept().expect("it was asked");
        stream.set_nonblocking(true).expect("a socket");
        client.set_read_timeout(Some(Duration::from_mins(1))).expect("a socket");
        let connections = Arc::new(AtomicUsize::new(0));
        let moved = Moved::new(stream, Counted::new(&Arc::default(), &connections));
        let moved = Moved { read: Bytes::copy_from_slice(read.as_bytes()), ..moved };
        self.lanes.enter(moved, Instant::now());
        client
    }

    /// How many requests were answered.
    fn answered(&self) -> u64 {
        self.lanes.service.rpc.tally.plain.load(Ordering::Relaxed)
    }
}

fn shared(config: &Config, serving: Arc<Serving>, dir: &TempDir) -> Shared {
    let (connections, (_, drain)) = (Arc::default(), watch::channel(false));
    let admin = Admin {
        serving: Arc::clone(&serving),
        status: Arc::default(),
        tallies: Vec::new(),
        connections: Arc::clone(&connections),
        queue_bytes: Arc::default(),
        budget: Budget::new(config.fetch.queue_bytes_max),
        busy: Arc::default(),
        written: Arc::default(),
        metrics: None,
        ready: config.ready,
        upstream: String::new(),
        data_dir: dir.path().to_owned(),
    };
    Shared {
        serving,
        admin: Arc::new(admin),
        filters: Arc::new(Filters::new(config.limits.filters_max, config.limits.filters_bytes_max)),
        bodies: Room::new(config.limits.bodies_bytes_max),
        messages: Room::new(config.http.ws.messages_bytes_max),
        limits: config.limits,
        http: config.http.clone(),
        connections,
        drain,
        mirrors: None,
    }
}

#[test]
fn who_asks_for_much_at_once_has_it_in_turns() {
    let mut idle = Idle::new();
    let _client = idle.connect(&REQUEST.repeat(40));
    for (expected, more) in [(16, true), (32, true), (40, false)] {
        assert_eq!((idle.answered(), !idle.lanes.again.is_empty()), (expected, more));
        // Wanted twice, as when more comes meanwhile: it is one turn all the same.
        idle.lanes.again = vec![0, 0];
        idle.lanes.turns(Instant::now());
    }
}

#[test]
fn who_waited_for_an_answer_is_looked_after_again() {
    let mut idle = Idle::new();
    let mut client = idle.connect("");
    let stream = idle.lanes.open[0].wait().expect("it has one");
    let later = Instant::now() + idle.lanes.patience.idle;
    idle.lanes.look(later);
    assert_eq!((idle.lanes.open.len(), idle.lanes.look_at), (1, None), "it does not time out");
    let reply = Reply::Answer(Builder::default().finish());
    let out = idle.lanes.service.out(reply, Persistence::Kept);
    idle.lanes.answered(0, Some(Left { stream, out: Box::new(out) }), later);
    let mut begin = [0; 15];
    client.read_exact(&mut begin).expect("an answer");
    assert_eq!(&begin, b"HTTP/1.1 200 OK");
    let due = later + idle.lanes.patience.idle;
    assert_eq!(idle.lanes.look_at, Some(due));
    idle.lanes.look(due);
    assert!(idle.lanes.open.is_empty(), "it has said nothing for too long");
}

/// A look that an answer waited for is as far off as that may take; idling then may end sooner.
#[test]
fn idling_can_end_sooner_than_sending() {
    let mut idle = Idle::new();
    idle.lanes.patience = Patience { idle: Duration::from_secs(1), write: Duration::from_mins(1) };
    let mut client = idle.connect("");
    let now = Instant::now();
    idle.lanes.look_at = Some(now + idle.lanes.patience.write);
    client.write_all(REQUEST.as_bytes()).expect("it goes at once");
    for _ in 0..1000 {
        idle.lanes.turn(0, now);
        if idle.answered() > 0 {
            break;
        }
        thread::park_timeout(Duration::from_millis(10)); // it is on its way
    }
    assert_eq!((idle.answered(), idle.lanes.look_at), (1, Some(now + idle.lanes.patience.idle)));
}

#[test]
fn who_waits_in_vain_is_cut() {
    let mut idle = Idle::new();
    let mut client = idle.connect("");
    drop(idle.lanes.open[0].wait());
    idle.lanes.answered(0, None, Instant::now());
    assert_eq!(client.read(&mut [0; 1]).ok(), Some(0));
    assert!(idle.lanes.open.is_empty());
}

#[test]
fn more_than_a_plain_request_can_be_goes_to_hyper_at_once() {
    let mut idle = Idle::new();
    let client = idle.connect("");
    let key = idle.lanes.open.iter().next().expect("it is there").0;
    let moved = idle.lanes.open.remove(key).leave(Bytes::from(vec![b'x'; ROOM + 1]));
    let moved = moved.expect("it has a socket");
    idle.lanes.enter(moved, Instant::now());
    assert!(idle.lanes.open.is_empty());
    let Ok(Leave::Connection(moved)) = idle.left.try_recv() else { unreachable!("it left") };
    assert_eq!(moved.read.len(), ROOM + 1);
    drop(client);
}

#[test]
fn what_is_left_and_no_longer_in_memory_is_waited_for() {
    let mut idle = Idle::new();
    let mut client = idle.connect("");
    let (body, _, bytes) = cold_body(LONG);
    let mut out = Out::plain(body, Persistence::Closed);
    out.age();
    let stream = idle.lanes.open[0].wait().expect("it has one");
    let mut left = Some(Left { stream, out: Box::new(out) });
    let reads = thread::spawn(move || {
        let mut read = Vec::new();
        client.read_to_end(&mut read).map(|_| read)
    });
    idle.lanes.open[0].ends_after_this();
    let (mut waited, mut events) = (0, Events::with_capacity(EVENTS));
    let over = Instant::now() + Duration::from_mins(1);
    while !idle.lanes.open.is_empty() && Instant::now() < over {
        if let Some(left) = left.take() {
            idle.lanes.answered(0, Some(left), Instant::now());
        }
        if let Ok(Leave::Disk(0, stream, Wait::Send(out))) = idle.left.try_recv() {
            waited += 1;
            left = Left { stream, out }.send();
            assert!(left.is_some(), "a client that reads");
            continue;
        }
        idle.lanes.poll.poll(&mut events, Some(Duration::from_millis(10))).expect("an epoll");
        events.iter().for_each(|event| idle.lanes.event(event, Instant::now()));
    }
    let read = reads.join().expect("it reads").expect("a socket");
    assert!(read.ends_with(&bytes), "{} bytes", read.len());
    assert!(waited > 0, "it was all in memory");
}
