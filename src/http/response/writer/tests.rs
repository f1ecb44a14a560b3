use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use std::{fs, thread};

use neve_store::{Hash, Identity, Options, Part, Record, SegmentSlice};
use rustix::fs::{Advice, fadvise};

use super::*;
use crate::body::{BodyBuilder, FRAME_PIECES};

/// Two frames, and more than sockets take.
pub(crate) const LONG: Pieces = Pieces { len: 30_000, count: 300 };
/// Pieces so short that frames have copies of them.
const SHORT: Pieces = Pieces { len: 1000, count: 3000 };

/// Number and length of the pieces of a body.
#[derive(Clone, Copy)]
pub(crate) struct Pieces {
    len: usize,
    count: usize,
}

/// A body of stored bytes that are on a disk and not in memory: its pieces, and what they are.
pub(crate) fn cold_body(pieces: Pieces) -> (ResponseBody, Vec<SegmentSlice>, Vec<u8>) {
    // Beside this program, where there is a disk: what is in a file system of memory never leaves it.
    let program = std::env::current_exe().expect("it runs");
    let dir =
        tempfile::tempdir_in(program.parent().expect("it is somewhere")).expect("a directory");
    let options = Options { segment_bytes: 32 << 20, disk_reserve_bytes: 0, ..Options::default() };
    let mut store = neve_store::open(dir.path(), options).expect("an empty store");
    store.writer.bind(Identity { chain_id: 1, genesis: Hash([1; 32]) }, 1).expect("it is new");
    let bytes: Vec<u8> = (0..pieces.len * pieces.count).map(|at| (at / 7) as u8).collect();
    let parts = vec![Part::uncompressed(bytes.clone())];
    let record = Record { height: 1, parts, ..Record::default() };
    store.writer.append(&record).expect("it fits");
    store.writer.sync().expect("there is room");
    for entry in fs::read_dir(dir.path()).expect("it is there") {
        let file = File::open(entry.expect("a file").path()).expect("it is there");
        fadvise(&file, 0, None, Advice::DontNeed).expect("a hint");
    }
    let part = store.reader.record(1).expect("it is there").part(0).slice;
    let slice = |at| part.slice((at * pieces.len) as u32, ((at + 1) * pieces.len) as u32);
    let slices: Vec<_> = (0..pieces.count).map(slice).collect();
    let mut body = BodyBuilder::default();
    slices.iter().for_each(|slice| body.stored(slice.clone()).expect("it may wait"));
    (body.finish().expect("it may wait"), slices, bytes)
}

/// Two ends of a connection, neither of which waits.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (stream, _) = listener.accept().expect("it was asked");
    for end in [&stream, &client] {
        end.set_nonblocking(true).expect("a socket");
    }
    (stream, client)
}

/// Number of slices in memory. The caller learns from the others.
fn here(slices: &[SegmentSlice]) -> usize {
    let count = || slices.iter().filter(|slice| residency::if_resident(|| slice.probe()).is_ok());
    thread::scope(|scope| scope.spawn(|| count().count()).join().expect("it counts"))
}

/// Reads from the disk that this thread waited for. Pages that are in memory say less: the kernel reads ahead, and
/// takes pages away.
fn major_faults() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").expect("it is Linux");
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    fields.split_whitespace().nth(9).and_then(|field| field.parse().ok()).expect("a number")
}

/// Finds so many missing that others are expected to go.
pub(crate) fn make_memory_short() {
    let (_, slices, _) = cold_body(LONG);
    slices.iter().for_each(|slice| assert!(residency::if_resident(|| slice.probe()).is_err()));
    assert!(residency::memory_is_short());
}

#[test]
fn cold_slices_are_sent_by_a_thread_that_may_wait() {
    send_all(LONG, 0);
}

#[test]
fn cold_slices_behind_the_first_frame_are_sent_by_a_thread_that_may_wait() {
    send_all(LONG, FRAME_PIECES);
}

#[test]
fn cold_slices_to_be_copied_are_sent_by_a_thread_that_may_wait() {
    send_all(SHORT, 0);
}

#[test]
fn all_slices_are_sent_by_a_thread_that_may_wait_while_memory_is_short() {
    make_memory_short();
    send_all(LONG, FRAME_PIECES);
    send_all(SHORT, 0);
}

/// Those would be touched before they are sent.
#[test]
fn slices_copied_together_are_left_to_a_thread_that_may_wait_while_memory_is_short() {
    let (_, slices, bytes) = cold_body(SHORT);
    slices.iter().for_each(SegmentSlice::load);
    let made = |slices: &[SegmentSlice]| {
        let mut body = BodyBuilder::default();
        slices.iter().try_for_each(|slice| body.stored(slice.clone()))?;
        body.finish()
    };
    make_memory_short();
    assert!(residency::if_sendable(|| made(&slices)).is_err());
    let few = &slices[..FRAME_PIECES];
    let body = residency::if_sendable(|| made(few)).expect("nothing of it is touched");
    assert!(bytes.starts_with(&body.into_bytes()));
    assert!(residency::loading(|| made(&slices)).is_ok_and(|body| body.into_bytes() == bytes));
}

/// Checks that bytes may leave memory between the composition of an answer and its sending.
#[test]
fn first_bytes_are_not_waited_for_while_memory_is_short() {
    let (body, slices, _) = cold_body(LONG);
    let (stream, _client) = connection();
    make_memory_short();
    let mut out = ResponseWriter::plain(body, Persistence::Closed, None);
    let left = out.left();
    assert_eq!(out.send(&stream).expect("a socket"), Sent::Cold);
    assert_eq!((out.left(), here(&slices)), (left, 0));
    slices.iter().for_each(SegmentSlice::load);
    assert_eq!(out.send(&stream).expect("a socket"), Sent::Full);
    assert!(out.left() < left);
}

/// Pages that go while the client does not read are not touched when it reads again, though none
/// seem to go by then.
#[test]
fn slices_that_could_not_be_copied_are_probed_again() {
    let (body, slices, _) = cold_body(LONG);
    let (mut stream, mut client) = connection();
    make_memory_short();
    while stream.write(&vec![0; WINDOW]).is_ok() {}
    let mut out = ResponseWriter::plain(body, Persistence::Closed, None);
    assert_eq!(out.send(&stream).expect("a socket"), Sent::Full);
    while !takes_more(&stream).expect("a socket") {
        let _ = client.read(&mut vec![0; WINDOW]); // all of that comes at some time
    }
    // A thread that knows nothing of pages that go.
    let sent = thread::scope(|scope| scope.spawn(|| out.send(&stream)).join().expect("it sends"));
    assert_eq!((sent.expect("a socket"), here(&slices)), (Sent::Cold, 0));
}

/// Sends it when so many pieces are in memory.
fn send_all(pieces: Pieces, loaded: usize) {
    let (body, slices, bytes) = cold_body(pieces);
    assert_eq!(here(&slices), 0, "does the file system keep all in memory?");
    slices[..loaded].iter().for_each(SegmentSlice::load);
    let (stream, mut client) = connection();
    let mut out = ResponseWriter::plain(body, Persistence::Closed, None);
    out.age();
    let (whole, mut read, mut cold) = (out.left(), Vec::new(), 0);
    let over = Instant::now() + Duration::from_mins(1);
    while read.len() < whole && Instant::now() < over {
        let before = (out.left(), major_faults());
        let sent = out.send(&stream).expect("a socket");
        assert_eq!(major_faults(), before.1, "read from the disk");
        assert_eq!(out.has_moved(), out.left() < before.0);
        if sent == Sent::Cold {
            cold += 1;
            let before = out.left();
            out.send_loading(&stream).expect("a socket");
            assert_eq!(out.has_moved(), out.left() < before);
        }
        let _ = client.read_to_end(&mut read); // all that there is now
    }
    assert!(read.ends_with(&bytes), "{} bytes of {whole}", read.len());
    assert_eq!(read.len(), whole);
    assert!(cold > 0, "it was all in memory");
}

impl ResponseWriter {
    /// Ages what is known of pages, as if time had passed.
    pub(crate) fn age(&mut self) {
        self.aged = true;
    }
}

/// Nothing is read from the disk for a client that does not read: it would be for ever.
#[test]
fn a_full_socket_is_waited_for_first() {
    let (body, slices, _) = cold_body(LONG);
    let (stream, _client) = connection();
    let mut out = ResponseWriter::plain(body, Persistence::Closed, None);
    out.send_loading(&stream).expect("a socket");
    let before = (out.left(), here(&slices));
    assert!(before.0 > 0 && before.1 < LONG.count, "{before:?}");
    // What was loaded last is here, so that it takes a frame whose next bytes are not.
    out.frame.advance(WINDOW);
    assert_eq!(out.send(&stream).expect("a socket"), Sent::Full);
    assert_eq!((out.left(), here(&slices)), (before.0 - WINDOW, before.1));
}
