//! A connection: what it was asked, and how much of the answer is to come.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const END_OF_HEAD: &[u8] = b"\r\n\r\n";
const STATUS: &[u8] = b"HTTP/1.1 ";
const OK: &[u8] = b"200";
const LENGTH: &[u8] = b"content-length:";

pub(crate) struct Connection {
    stream: TcpStream,
    asked: Instant,
    /// A head that came in pieces.
    head: Vec<u8>,
    /// Bytes of the answer, head included, once its head is there.
    bytes: usize,
    left: usize,
    ok: bool,
}

/// An answer that came whole.
pub(crate) struct Answer {
    pub(crate) bytes: usize,
    pub(crate) ok: bool,
    pub(crate) took: Duration,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, asked: Instant::now(), head: Vec::new(), bytes: 0, left: 0, ok: false }
    }

    /// Sends a request: it fits where nothing else waits to be sent.
    pub(crate) fn ask(&mut self, request: &[u8]) -> io::Result<()> {
        (self.asked, self.bytes) = (Instant::now(), 0);
        match self.stream.write(request)? {
            sent if sent == request.len() => Ok(()),
            _ => {
                Err(io::Error::new(ErrorKind::WriteZero, "a request does not fit into the socket"))
            }
        }
    }

    /// For how long it has waited.
    pub(crate) fn waited(&self) -> Duration {
        self.asked.elapsed()
    }

    /// Reads what came; the answer if it is whole.
    pub(crate) fn answer(&mut self, buffer: &mut [u8]) -> io::Result<Option<Answer>> {
        loop {
            let count = match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            };
            self.came(&buffer[..count])?;
            if self.bytes > 0 && self.left == 0 {
                let (bytes, ok, took) = (self.bytes, self.ok, self.asked.elapsed());
                return Ok(Some(Answer { bytes, ok, took }));
            }
            if count < buffer.len() {
                return Ok(None); // that was all; what comes now is told
            }
        }
    }

    fn came(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.bytes > 0 {
            return self.take(bytes.len());
        }
        if self.head.is_empty() && self.begin(bytes)? {
            return self.take(bytes.len()); // nearly always
        }
        self.head.extend_from_slice(bytes);
        let head = std::mem::take(&mut self.head);
        if self.begin(&head)? {
            return self.take(head.len());
        }
        self.head = head;
        Ok(())
    }

    /// True if the head is there.
    fn begin(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let Some(head) = bytes.windows(END_OF_HEAD.len()).position(|four| four == END_OF_HEAD)
        else {
            return Ok(false);
        };
        let length =
            length(&bytes[..head]).ok_or_else(|| strange("an answer without its length"))?;
        self.ok = bytes.strip_prefix(STATUS).is_some_and(|rest| rest.starts_with(OK));
        self.bytes = head + END_OF_HEAD.len() + length;
        self.left = self.bytes;
        Ok(true)
    }

    fn take(&mut self, count: usize) -> io::Result<()> {
        self.left =
            self.left.checked_sub(count).ok_or_else(|| strange("more than was asked for"))?;
        Ok(())
    }
}

fn strange(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn length(head: &[u8]) -> Option<usize> {
    let line = head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(LENGTH.len())?;
        name.eq_ignore_ascii_case(LENGTH).then_some(value)
    })?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        (Connection::new(stream), listener.accept().expect("it was asked").0)
    }

    #[test]
    fn an_answer_ends_with_its_body_in_whatever_pieces_it_comes() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        for cut in 1..whole.len() {
            let (mut connection, mut server) = pair();
            server.write_all(&whole[..cut]).expect("it fits");
            assert!(connection.answer(&mut [0; 99]).expect("no error").is_none(), "{cut}");
            server.write_all(&whole[cut..]).expect("it fits");
            let answer = connection.answer(&mut [0; 99]).expect("no error").expect("it is whole");
            assert_eq!((answer.bytes, answer.ok), (whole.len(), true), "{cut}");
        }
    }

    #[test]
    fn bytes_that_are_no_response_are_an_error() {
        let cases: [(&[u8], ErrorKind); 3] = [
            (b"HTTP/1.1 200 OK\r\n\r\n", ErrorKind::InvalidData),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", ErrorKind::InvalidData),
            (b"", ErrorKind::UnexpectedEof),
        ];
        for (bytes, kind) in cases {
            let (mut connection, mut server) = pair();
            server.write_all(bytes).expect("it fits");
            drop(server);
            let error = connection.answer(&mut [0; 99]).err().map(|error| error.kind());
            assert_eq!(error, Some(kind));
        }
    }

    #[test]
    fn another_status_is_counted() {
        let (mut connection, mut server) = pair();
        let head = b"HTTP/1.1 421 Misdirected Request\r\ncontent-length: 0\r\n\r\n";
        server.write_all(head).expect("it fits");
        let answer = connection.answer(&mut [0; 99]).expect("no error").expect("it is whole");
        assert!(!answer.ok);
    }
}
