//! The floor: the least that one thread can do to answer requests over keep-alive HTTP/1.1.
//!
//! `neve-floor ANSWERS [ADDRESS]` reads recorded answers, heads included, and gives the next one to
//! each client that has sent a whole request. One `epoll_wait` for as many connections as are ready, one
//! `read` and one `write` a request. Of a request nothing is looked at but where it ends, so a
//! server that says the same bytes and knows what it was asked can come close to this and not
//! below it.
//!
//! The file is a sequence of answers: their length in four bytes, little-endian, then their bytes.
//! They are given in an order that steps through the whole file, so that neither the processor's
//! cache nor its prefetcher help more than they help a server that is asked at random.

mod answers;
mod connection;

use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use answers::Answers;
use connection::Connection;

const LISTENER: u64 = u64::MAX;
/// Events of a turn, as many as tokio takes.
const EVENTS: usize = 1024;

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: neve-floor ANSWERS [ADDRESS]")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let answers = Answers::read(&path).map_err(|error| format!("{path}: {error}"))?;
    let listener = TcpListener::bind(&address).map_err(|error| format!("{address}: {error}"))?;
    serve(&listener, answers).map_err(|error| error.to_string())
}

fn serve(listener: &TcpListener, mut answers: Answers) -> io::Result<()> {
    writeln!(io::stdout(), "http://{}/", listener.local_addr()?)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            let id = event.data.u64();
            if id == LISTENER {
                accept(&epoll, listener, &mut connections)?;
                continue;
            }
            let at = usize::try_from(id).map_err(io::Error::other)?;
            let Some(connection) = connections[at].as_mut() else { continue };
            if !connection.ready(&mut answers) {
                // Dropping closes it, and epoll forgets what is closed.
                connections[at] = None;
            }
        }
    }
}

/// Edge-triggered for both directions, so that a full socket needs no further system call.
fn accept(
    epoll: &impl AsFd,
    listener: &TcpListener,
    connections: &mut Vec<Option<Connection>>,
) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let free = connections.iter().position(Option::is_none);
    let at = free.unwrap_or_else(|| {
        connections.push(None);
        connections.len() - 1
    });
    let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    epoll::add(epoll, &stream, EventData::new_u64(at as u64), flags)?;
    connections[at] = Some(Connection::new(stream));
    Ok(())
}
