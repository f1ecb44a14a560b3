//! Requests, written out before the first is sent, and the order in which they are.

use std::fmt::Write as _;
use std::io;

/// Requests in memory, one after another.
pub(crate) struct Requests {
    requests: Vec<Vec<u8>>,
    state: u64,
}

impl Requests {
    /// Reads a file of bodies, one a line.
    pub(crate) fn read(
        file: &str,
        host: &str,
        path: &str,
        headers: &[String],
        seed: u64,
    ) -> io::Result<Self> {
        let mut head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\n");
        head.push_str("Content-Type: application/json\r\n");
        for header in headers {
            let (name, value) = header.split_once('=').unwrap_or((header, ""));
            // Writing to a String cannot fail.
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let text = std::fs::read_to_string(file)?;
        let request =
            |body: &str| format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes();
        let requests: Vec<_> = text.lines().map(request).collect();
        if requests.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "there are no requests in it"));
        }
        // An odd multiplier keeps seeds apart, and the state from nought.
        Ok(Self { requests, state: (2 * seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) })
    }

    /// Any of them (Marsaglia's xorshift64).
    pub(crate) fn next(&mut self) -> &[u8] {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let at = (u128::from(self.state) * self.requests.len() as u128) >> 64;
        &self.requests[usize::try_from(at).unwrap_or_default()]
    }
}
