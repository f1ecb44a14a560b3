//! Networks between a mirror and its source: slow, broken, or standing still; and a source of another
//! release.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Change of the response about a segment or a packed file, or of the list.
#[derive(Clone, Copy)]
enum Fault {
    /// Pause after every 64 KiB.
    Slow(Duration),
    /// The connection is closed after so many bytes.
    Cut(usize),
    /// Nothing more comes after so many bytes.
    Stuck(usize),
    /// The first files, so many, are this status.
    Status(&'static str, usize),
    /// The list says this format.
    Format(u32),
    /// The list says that the source has all heights from this one on.
    First(u64),
    /// The stream withdraws all heights, a thousand times a second, and brings none.
    Withdraws,
}

/// A server that hands everything on, but for one fault.
pub(super) struct Between {
    pub(super) address: SocketAddr,
    cuts: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    hurries: Arc<AtomicBool>,
}

impl Between {
    pub(super) fn slow(server: SocketAddr, pause: Duration) -> Self {
        Self::start(server, Fault::Slow(pause))
    }

    pub(super) fn cutting(server: SocketAddr, after: usize) -> Self {
        Self::start(server, Fault::Cut(after))
    }

    pub(super) fn stuck(server: SocketAddr, after: usize) -> Self {
        Self::start(server, Fault::Stuck(after))
    }

    pub(super) fn failing(server: SocketAddr, status: &'static str, times: usize) -> Self {
        Self::start(server, Fault::Status(status, times))
    }

    pub(super) fn of_format(server: SocketAddr, format: u32) -> Self {
        Self::start(server, Fault::Format(format))
    }

    pub(super) fn with_first(server: SocketAddr, first: u64) -> Self {
        Self::start(server, Fault::First(first))
    }

    pub(super) fn withdrawing(server: SocketAddr) -> Self {
        Self::start(server, Fault::Withdraws)
    }

    /// Ends what makes it slow.
    pub(super) fn hurry(&self) {
        self.hurries.store(true, Ordering::SeqCst);
    }

    /// Returns the number of connections that were closed early, or of files that were requested in vain.
    pub(super) fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }

    fn start(server: SocketAddr, fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let (cuts, over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let hurries = Arc::<AtomicBool>::default();
        let [told_over, told_hurries] = [&over, &hurries].map(Arc::clone);
        let between =
            Self { address, cuts: Arc::clone(&cuts), over: told_over, hurries: told_hurries };
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let cuts = Arc::clone(&cuts);
                let [over, hurries] = [&over, &hurries].map(Arc::clone);
                // An end that is gone closes the connection, which is no error here.
                thread::spawn(move || join(client, server, fault, &cuts, &over, &hurries));
            }
        });
        between
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes the listener
    }
}

fn join(
    mut client: TcpStream,
    server: SocketAddr,
    fault: Fault,
    cuts: &AtomicUsize,
    over: &AtomicBool,
    hurries: &AtomicBool,
) -> io::Result<()> {
    let mut server = TcpStream::connect(server)?;
    let mut start = [0; 4096];
    let len = client.read(&mut start)?;
    server.write_all(&start[..len])?;
    let path = String::from_utf8_lossy(&start[..len]).into_owned();
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let files = ["GET /mirror/v1/segment/", "GET /mirror/v1/packed/"];
    let is_file = files.iter().any(|file| path.starts_with(file));
    let copied = match fault {
        Fault::Format(format) if path.starts_with("GET /mirror/v1/segments ") => {
            let other = |text: &str| text.replace("\"format\":1", &format!("\"format\":{format}"));
            list_of(other, &mut server, &mut client)
        }
        Fault::First(first) if path.starts_with("GET /mirror/v1/segments ") => {
            list_of(|text| with_first(text, first), &mut server, &mut client)
        }
        Fault::Withdraws if path.starts_with("GET /mirror/v1/records") => {
            withdraw(over, &mut client)
        }
        Fault::Status(status, times) if is_file && cuts.fetch_add(1, Ordering::SeqCst) < times => {
            write!(client, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")
        }
        Fault::Slow(pause) if is_file => slowly(pause, hurries, &mut server, &mut client),
        Fault::Cut(after) if is_file => {
            let copied = io::copy(&mut (&mut server).take(after as u64), &mut client);
            cuts.fetch_add(
                usize::from(matches!(copied, Ok(n) if n == after as u64)),
                Ordering::SeqCst,
            );
            copied.map(drop)
        }
        Fault::Stuck(after) if is_file => {
            io::copy(&mut (&mut server).take(after as u64), &mut client)?;
            while !over.load(Ordering::SeqCst) {
                thread::park_timeout(Duration::from_millis(20));
            }
            Ok(())
        }
        _ => io::copy(&mut server, &mut client).map(drop),
    };
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    copied
}

fn slowly(
    pause: Duration,
    hurries: &AtomicBool,
    server: &mut TcpStream,
    client: &mut TcpStream,
) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    loop {
        let len = server.read(&mut piece)?;
        if len == 0 {
            return Ok(());
        }
        client.write_all(&piece[..len])?;
        if !hurries.load(Ordering::SeqCst) {
            thread::park_timeout(pause);
        }
    }
}

/// Frames that withdraw heights from 0 on, until the connection or the test ends.
fn withdraw(over: &AtomicBool, client: &mut TcpStream) -> io::Result<()> {
    client.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n\r\n")?;
    let mut frame = [&[2, 8, 0, 0, 0][..], &[0; 8]].concat();
    frame.extend(crc32fast::hash(&frame).to_le_bytes());
    while !over.load(Ordering::SeqCst) {
        client.write_all(&frame)?;
        thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}

/// The list, which comes in one go on loopback and keeps its length.
fn list_of(
    other: impl Fn(&str) -> String,
    server: &mut TcpStream,
    client: &mut TcpStream,
) -> io::Result<()> {
    let mut answer = vec![0; 64 << 10];
    let len = server.read(&mut answer)?;
    let text = String::from_utf8_lossy(&answer[..len]);
    client.write_all(other(&text).as_bytes())
}

/// A list with another first height, behind spaces in place of digits.
fn with_first(list: &str, first: u64) -> String {
    let Some((before, rest)) = list.split_once("\"first\":") else { return list.to_owned() };
    let width = rest.find(',').unwrap_or_default();
    format!("{before}\"first\":{first:>width$}{}", &rest[width..])
}
