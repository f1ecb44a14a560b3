use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use neve_store::{Hash, Identity, Options, Part, Record};
use rustix::fs::{Advice, fadvise};

use super::*;
use crate::http::reply::Builder;

const PIECE: usize = 30_000;
/// Of two frames, and of more than sockets take.
const PIECES: usize = 300;

/// A body of stored bytes that are on a disk and not in memory, and what they are.
fn cold_body() -> (ReplyBody, Vec<u8>) {
    // Beside this program, where there is a disk: what is in a file system of memory never leaves it.
    let program = std::env::current_exe().expect("it runs");
    let dir =
        tempfile::tempdir_in(program.parent().expect("it is somewhere")).expect("a directory");
    let options = Options { segment_bytes: 32 << 20, disk_reserve_bytes: 0, ..Options::default() };
    let mut store = neve_store::open(dir.path(), options).expect("an empty store");
    store.writer.bind(Identity { chain_id: 1, genesis: Hash([1; 32]) }, 1).expect("it is new");
    let bytes: Vec<u8> = (0..PIECE * PIECES).map(|at| (at / 7) as u8).collect();
    let parts = vec![Part::plain(bytes.clone())];
    let record = Record { height: 1, parts, ..Record::default() };
    store.writer.append(&record).expect("it fits");
    store.writer.sync().expect("there is room");
    for entry in fs::read_dir(dir.path()).expect("it is there") {
        let file = File::open(entry.expect("a file").path()).expect("it is there");
        fadvise(&file, 0, None, Advice::DontNeed).expect("a hint");
    }
    let part = store.reader.record(1).expect("it is there").part(0).slice;
    let mut body = Builder::default();
    for at in 0..PIECES {
        let from = (at * PIECE) as u32;
        body.stored(part.slice(from, from + PIECE as u32));
    }
    (body.finish(), bytes)
}

/// Two ends of a connection, of which the first does not wait.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (stream, _) = listener.accept().expect("it was asked");
    stream.set_nonblocking(true).expect("a socket");
    (stream, client)
}

#[test]
fn what_is_not_in_memory_is_sent_by_who_may_wait() {
    let (body, bytes) = cold_body();
    let (stream, mut client) = connection();
    let mut out = Out::plain(body, Persistence::Closed);
    out.aged = true;
    let whole = out.left();
    assert_eq!(out.send(&stream).expect("a socket"), Sent::Cold);
    assert_eq!((out.left(), out.has_moved()), (whole, false), "nothing of it may be touched");

    let reads = thread::spawn(move || {
        let mut read = Vec::new();
        client.read_to_end(&mut read).map(|_| read)
    });
    let mut cold = 0;
    loop {
        match out.send(&stream).expect("a socket") {
            Sent::All => break,
            Sent::Some => thread::park_timeout(Duration::from_millis(1)),
            Sent::Cold => {
                cold += 1;
                let before = out.left();
                out.send_waiting(&stream).expect("a socket");
                assert_eq!(out.has_moved(), out.left() < before);
            }
        }
    }
    drop(stream);
    let read = reads.join().expect("it reads").expect("a socket");
    assert!(read.ends_with(&bytes), "{} bytes of {whole}", read.len());
    assert_eq!(read.len(), whole);
    assert!(cold >= 1, "{cold}");
}
