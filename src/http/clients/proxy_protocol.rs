//! The PROXY protocol, versions 1 and 2: a connection that begins with the address of its client.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use proxy_header::{Error, ParseConfig, ProxyHeader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A header of version 1 has at most 107 bytes. One of version 2 may have 64 KiB of additions; those
/// of balancers in use stay below this.
const BYTES_MAX: usize = 4 << 10;
/// A proxy sends it with the opening of the connection.
const WITHIN: Duration = Duration::from_secs(5);

/// The begin of a connection.
pub(crate) struct Begin {
    /// Address of the client; `None` if the proxy connects for itself, as for a health check.
    pub(crate) client: Option<IpAddr>,
    /// Bytes that came behind the header.
    pub(crate) rest: Bytes,
}

/// Reads the header of a connection that must have one.
pub(crate) async fn read(stream: &TcpStream) -> io::Result<Begin> {
    let late =
        |_| io::Error::new(io::ErrorKind::TimedOut, "no header of the PROXY protocol in time");
    timeout(WITHIN, read_all(stream)).await.map_err(late)?
}

async fn read_all(stream: &TcpStream) -> io::Result<Begin> {
    let (mut came, mut len) = ([0; BYTES_MAX], 0);
    loop {
        stream.readable().await?;
        match stream.try_read(&mut came[len..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => len += more,
            // `readable` may return for nothing: the failed read makes it wait.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        if let Some(begin) = parse(&came[..len])? {
            return Ok(begin);
        }
        if len == BYTES_MAX {
            return Err(malformed());
        }
    }
}

/// `None` if more must come.
fn parse(came: &[u8]) -> io::Result<Option<Begin>> {
    let config = ParseConfig { include_tlvs: false, allow_v1: true, allow_v2: true };
    match ProxyHeader::parse(came, config) {
        Ok((header, len)) => Ok(Some(Begin {
            client: header.proxied_address().map(|proxied| proxied.source.ip()),
            rest: Bytes::copy_from_slice(&came[len..]),
        })),
        Err(Error::BufferTooShort) => Ok(None),
        Err(_) => Err(malformed()),
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no header of the PROXY protocol")
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &[u8] = b"PROXY TCP4 203.0.113.9 10.0.0.1 52953 8545\r\nPOST / HTTP/1.1\r\n";

    fn v2(command: u8) -> Vec<u8> {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        header.extend([0x20 | command, 0x11, 0, 12]);
        header.extend([203, 0, 113, 9, 10, 0, 0, 1, 1, 2, 3, 4]);
        header.extend(b"GET");
        header
    }

    #[test]
    fn header_names_the_client_in_whatever_pieces_it_comes() {
        for (bytes, rest) in [(V1.to_vec(), &b"POST / HTTP/1.1\r\n"[..]), (v2(1), b"GET")] {
            let header = bytes.len() - rest.len();
            for len in 1..header {
                assert!(parse(&bytes[..len]).unwrap().is_none(), "{len}");
            }
            let begin = parse(&bytes).unwrap().unwrap();
            assert_eq!(begin.client, Some("203.0.113.9".parse().unwrap()));
            assert_eq!(begin.rest, rest);
        }
    }

    #[test]
    fn proxy_that_connects_for_itself_names_no_client() {
        assert_eq!(parse(&v2(0)).unwrap().unwrap().client, None);
        assert_eq!(parse(b"PROXY UNKNOWN\r\n").unwrap().unwrap().client, None);
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [&b"POST / HTTP/1.1\r\n\r\n"[..], b"PROXY TCP4 x y 1 2\r\n", &[b'P'; 200]] {
            assert!(parse(bytes).is_err());
        }
    }
}
