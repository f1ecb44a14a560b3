//! A connection: where its request ends, and what of its answer is not sent yet.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;

use crate::answers::Answers;

/// More than any request of the benchmarks: a batch of 1,000 calls takes 100 KB.
const REQUEST_BYTES_MAX: usize = 256 * 1024;
const FIRST_READ: usize = 16 * 1024;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";
const LENGTH: &[u8] = b"content-length:";

pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
    unsent: Range<usize>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: vec![0; FIRST_READ], filled: 0, unsent: 0..0 }
    }

    /// Goes on with what the socket allows. False when the connection is over.
    pub(crate) fn ready(&mut self, answers: &mut Answers) -> bool {
        if !self.unsent.is_empty() {
            return self.send(answers);
        }
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => false,
            Ok(count) => {
                self.filled += count;
                self.answer(answers)
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Clients of the benchmarks wait for an answer before they ask again, so a whole request is
    /// all that is there, and a short read says that the socket is empty.
    fn answer(&mut self, answers: &mut Answers) -> bool {
        match request_length(&self.buffer[..self.filled]) {
            Some(length) if length <= self.filled => {
                self.filled = 0;
                self.unsent = answers.next();
                self.send(answers)
            }
            length => self.read_on(length.unwrap_or(0), answers),
        }
    }

    fn read_on(&mut self, length: usize, answers: &mut Answers) -> bool {
        if length > REQUEST_BYTES_MAX || self.filled >= REQUEST_BYTES_MAX {
            return false;
        }
        if self.filled == self.buffer.len() {
            self.buffer.resize(REQUEST_BYTES_MAX, 0);
            return self.ready(answers);
        }
        true
    }

    fn send(&mut self, answers: &Answers) -> bool {
        match self.stream.write(answers.bytes(self.unsent.clone())) {
            Ok(count) => {
                self.unsent.start += count;
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// Bytes of the request at the beginning, if its head is there.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let head = find(bytes, END_OF_HEAD)? + END_OF_HEAD.len();
    let line = bytes[..head].split(|byte| *byte == b'\n').find(|line| {
        line.get(..LENGTH.len()).is_some_and(|name| name.eq_ignore_ascii_case(LENGTH))
    });
    let digits = line.map_or(&b""[..], |line| &line[LENGTH.len()..]);
    let digits = digits.iter().filter(|byte| byte.is_ascii_digit());
    let body = digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
    Some(head + body)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::request_length;

    #[test]
    fn a_request_ends_with_its_body() {
        assert_eq!(request_length(b"POST / HTTP/1.1\r\nContent-Length: 12\r\n\r\n{"), Some(51));
        assert_eq!(request_length(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), Some(27));
        assert_eq!(request_length(b"GET / HTTP/1.1\r\nHost: x\r\n"), None);
    }
}
