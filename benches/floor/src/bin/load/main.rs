//! The floor of asking: the least that one thread can do to keep a server busy over keep-alive HTTP/1.1.
//!
//! `neve-floor-load ADDRESS PATH BODIES CONNECTIONS SECONDS SEED [NAME=VALUE ...]` asks for bodies of
//! a file, one a line, at random, on so many connections at once, and again when it is answered.
//! Of an answer nothing is looked at but its status and where it ends, and what comes is read into
//! one buffer, so that a connection costs it nothing but what the system keeps for it. A server that
//! other generators cannot keep busy may be busy with this one.
//!
//! It says what happened in a line of JSON, in the words of `bench-scripts/load.lua`.

mod connection;
mod report;
mod requests;

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use connection::Connection;
use report::Report;
use requests::Requests;

const USAGE: &str =
    "usage: neve-floor-load ADDRESS PATH BODIES CONNECTIONS SECONDS SEED [NAME=VALUE ...]";
/// Events of a turn, as many as the floor takes.
const EVENTS: usize = 1024;
/// Wait at the end after which a connection had no answer.
const STALLED: Duration = Duration::from_secs(1);
/// Bytes that one `read` takes of an answer.
const BUFFER: usize = 64 << 10;

fn main() -> Result<(), String> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [address, path, bodies, connections, seconds, seed, headers @ ..] = &arguments[..] else {
        return Err(USAGE.to_owned());
    };
    let number =
        |text: &str| text.parse::<u64>().map_err(|_| format!("{text}: no number; {USAGE}"));
    let (connections, seconds, seed) = (number(connections)?, number(seconds)?, number(seed)?);
    let requests = Requests::read(bodies, address, path, headers, seed)
        .map_err(|error| format!("{bodies}: {error}"))?;
    let report = ask(address, connections, Duration::from_secs(seconds), requests)
        .map_err(|error| format!("{address}: {error}"))?;
    println!("{report}");
    Ok(())
}

fn ask(address: &str, count: u64, long: Duration, mut requests: Requests) -> io::Result<Report> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut connections = Vec::new();
    for at in 0..count {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(&epoll, &stream, EventData::new_u64(at), EventFlags::IN | EventFlags::ET)?;
        connections.push(Connection::new(stream));
    }
    let (began, mut report) = (Instant::now(), Report::default());
    for connection in &mut connections {
        connection.ask(requests.next())?;
    }
    let (mut events, mut buffer) = (Vec::with_capacity(EVENTS), vec![0; BUFFER]);
    while let Some(left) = long.checked_sub(began.elapsed()) {
        match epoll::wait(&epoll, spare_capacity(&mut events), Some(&timeout(left))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let at = usize::try_from(event.data.u64()).map_err(io::Error::other)?;
            if let Some(answer) = connections[at].answer(&mut buffer)? {
                report.add(&answer);
                connections[at].ask(requests.next())?;
            }
        }
    }
    report.duration = began.elapsed();
    report.stalled = connections.iter().filter(|one| one.waited() > STALLED).count();
    Ok(report)
}

fn timeout(left: Duration) -> Timespec {
    let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: i64::from(left.subsec_nanos()) }
}
