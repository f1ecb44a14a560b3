//! Frames of HTTP/2 as bytes (RFC 9113), for what no client library sends.

#![expect(clippy::big_endian_bytes, reason = "the order of RFC 9113")]

/// Begin of each connection.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

/// A frame without a stream, or of one.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&len[1..], &[kind, flags][..], &stream.to_be_bytes()[..], payload].concat()
}

/// The head of a POST for `/`, with more headers, and no body yet.
pub(crate) fn head(stream: u32, more: &[u8]) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x84, 0x41, 1, b'x']; // POST, http, /, and the authority
    block.extend_from_slice(&[0x5f, 16]); // content-type
    block.extend_from_slice(b"application/json");
    block.extend_from_slice(more);
    frame(HEADERS, 4, stream, &block)
}

/// A header that no table keeps (RFC 7541, 6.2.2).
pub(crate) fn header(name: &str, value: &str) -> Vec<u8> {
    let len = |text: &str| u8::try_from(text.len()).expect("short");
    [&[0, len(name)], name.as_bytes(), &[len(value)], value.as_bytes()].concat()
}

/// The first whole frame of these bytes: its type, flags, stream and length.
pub(crate) fn first(bytes: &[u8]) -> Option<(u8, u8, u32, usize)> {
    let [a, b, c, kind, flags, stream @ ..] = bytes.first_chunk::<9>()?;
    let len = 9 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
    (bytes.len() >= len).then(|| (*kind, *flags, u32::from_be_bytes(*stream), len))
}
