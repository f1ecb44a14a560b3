//! Separates heads from bodies in the bytes that hyper will read.
//!
//! hyper bounds its buffer instead of a head. By itself it would accept or refuse a head somewhat
//! over the limit by how TCP cut it. It also accepts a line that ends without CR, which a front may
//! see as part of a longer line. So hyper gets one request at a time: of a head at most the allowed
//! bytes, and no byte of the next request before it has parsed this one. hyper itself tells the
//! length of the body, so both always agree on its end.

use memchr::memchr_iter;

/// Replacement of a bare LF: no head has NUL, so hyper refuses it as malformed.
pub(crate) const MALFORMED: &[u8] = b"\0\r\n\r\n";

/// The length of a body, as hyper has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Bytes(u64),
    Chunked,
}

/// A place between the bytes of a connection.
#[derive(Debug)]
pub(crate) struct Framing {
    part: Part,
    /// Bytes of a head.
    head_max: usize,
}

#[derive(Debug)]
enum Part {
    Head(Head),
    /// The end of a head. hyper knows the length of the body.
    Behind,
    Body(u64),
    Chunks(Chunk),
    /// No request any more: all bytes may pass.
    Other,
}

#[derive(Debug, Default)]
struct Head {
    /// Bytes of this head that passed.
    len: usize,
    /// Those of the last line.
    line: usize,
    /// True if there was a line that is not empty.
    begun: bool,
    /// True if CR came last.
    cr: bool,
}

#[derive(Debug)]
enum Chunk {
    Size(u64),
    Extension(u64),
    Data(u64),
    End,
    /// A line of the trailers, if it is empty so far, and if CR came last.
    Trailer {
        empty: bool,
        cr: bool,
    },
}

/// Bytes that may pass.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) len: usize,
    /// True if a bare LF follows them: only [`MALFORMED`] may pass then.
    pub(crate) bare_lf: bool,
}

impl Framing {
    pub(crate) fn new(head_max: usize) -> Self {
        Self { part: Part::Head(Head::default()), head_max }
    }

    /// True if it needs the length of the body before more can pass.
    pub(crate) fn is_behind_head(&self) -> bool {
        matches!(self.part, Part::Behind)
    }

    /// True in a head or before it.
    pub(crate) fn is_in_head(&self) -> bool {
        matches!(self.part, Part::Head(_))
    }

    /// Tells the length of the body that begins.
    pub(crate) fn body(&mut self, length: Length) {
        self.part = match length {
            Length::Bytes(0) => Part::Head(Head::default()),
            Length::Bytes(len) => Part::Body(len),
            Length::Chunked => Part::Chunks(Chunk::Size(0)),
        };
    }

    /// Passes `bytes` from their beginning, to the end of a head or body at most.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Passed {
        let (len, next, bare_lf) = match &mut self.part {
            Part::Head(head) => {
                // Not a byte over the limit: hyper then refuses the head for its length.
                let most = bytes.len().min(self.head_max - head.len);
                let (len, end) = head.pass(&bytes[..most]);
                (len, end.next(), end == End::BareLf)
            }
            Part::Body(left) => {
                let len = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= len as u64;
                (len, (*left == 0).then(|| Part::Head(Head::default())), false)
            }
            Part::Chunks(chunk) => chunk.pass(bytes),
            Part::Behind | Part::Other => (bytes.len(), None, false),
        };
        if let Some(next) = next {
            self.part = next;
        }
        Passed { len, bare_lf }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    No,
    Head,
    BareLf,
}

impl End {
    /// Part that follows a head with this end; `None` if the head goes on.
    fn next(&self) -> Option<Part> {
        match self {
            Self::No => None,
            Self::Head => Some(Part::Behind),
            Self::BareLf => Some(Part::Other),
        }
    }
}

impl Head {
    /// Number of bytes that pass, and the end that they reach.
    fn pass(&mut self, bytes: &[u8]) -> (usize, End) {
        let mut line_start = 0;
        for at in memchr_iter(b'\n', bytes) {
            let cr = if at == 0 { self.cr } else { bytes[at - 1] == b'\r' };
            if !cr {
                return (at, End::BareLf);
            }
            let empty = self.line + (at - line_start) == 1; // the CR alone
            if empty && self.begun {
                return (at + 1, End::Head);
            }
            self.begun |= !empty;
            (self.line, line_start) = (0, at + 1);
        }
        self.len += bytes.len();
        self.line += bytes.len() - line_start;
        self.cr = bytes.last().map_or(self.cr, |last| *last == b'\r');
        (bytes.len(), End::No)
    }
}

impl Chunk {
    /// Number of bytes that pass, the next part if this one ends with them, and true if a bare LF follows. Other
    /// malformed bytes need no check here: hyper refuses them, and reads no further. For a bare LF in trailers it
    /// reads on, and takes the next request for a part of them.
    fn pass(&mut self, bytes: &[u8]) -> (usize, Option<Part>, bool) {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            at += 1;
            *self = match (&*self, byte) {
                (Self::Size(0) | Self::Extension(0), b'\n') => {
                    Self::Trailer { empty: true, cr: false }
                }
                (Self::Size(size) | Self::Extension(size), b'\n') => Self::Data(*size),
                (Self::Size(size), digit) if digit.is_ascii_hexdigit() => {
                    let digit = u64::from((*digit as char).to_digit(16).unwrap_or_default());
                    match size.checked_mul(16) {
                        Some(size) => Self::Size(size + digit),
                        // A size of more than 64 bits: hyper refuses the request, so where it ends
                        // does not matter.
                        None => return (bytes.len(), Some(Part::Other), false),
                    }
                }
                (Self::Size(size) | Self::Extension(size), _) => Self::Extension(*size),
                (Self::Data(left), _) => {
                    let left_here = (bytes.len() - at + 1) as u64;
                    let skipped = left_here.min(*left);
                    at += skipped as usize - 1;
                    if *left == skipped { Self::End } else { Self::Data(*left - skipped) }
                }
                (Self::End, b'\n') => Self::Size(0),
                (Self::End, _) => Self::End,
                (Self::Trailer { cr: false, .. }, b'\n') => {
                    return (at - 1, Some(Part::Other), true);
                }
                (Self::Trailer { empty: true, .. }, b'\n') => {
                    return (at, Some(Part::Head(Head::default())), false);
                }
                (Self::Trailer { .. }, b'\n') => Self::Trailer { empty: true, cr: false },
                (Self::Trailer { empty, .. }, b'\r') => Self::Trailer { empty: *empty, cr: true },
                (Self::Trailer { .. }, _) => Self::Trailer { empty: false, cr: false },
            };
        }
        (at, None, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n";

    /// Passes `bytes` in pieces; how many pass before the length of a body must be told.
    fn head_len(bytes: &[u8], piece: usize, max: usize) -> (usize, bool) {
        let (mut framing, mut all) = (Framing::new(max), 0);
        for piece in bytes.chunks(piece) {
            let passed = framing.pass(piece);
            all += passed.len;
            if passed.bare_lf || passed.len < piece.len() || framing.is_behind_head() {
                return (all, passed.bare_lf);
            }
        }
        (all, false)
    }

    #[test]
    fn head_ends_at_the_same_byte_in_whatever_pieces_it_comes() {
        let bytes = [HEAD, b"POST / HTTP/1.1\r\n\r\n"].concat();
        for piece in 1..=bytes.len() {
            assert_eq!(head_len(&bytes, piece, 100), (HEAD.len(), false), "{piece}");
            assert_eq!(head_len(&bytes, piece, HEAD.len()), (HEAD.len(), false), "{piece}");
            let over = head_len(&bytes, piece, HEAD.len() - 1);
            assert_eq!(over, (HEAD.len() - 1, false), "{piece}: no byte more than the limit");
        }
    }

    #[test]
    fn bare_lf_stops_a_head_where_it_is() {
        for (bytes, at) in [
            (&b"GET / HTTP/1.1\nHost: x\r\n\r\n"[..], 14),
            (b"GET / HTTP/1.1\r\nHost: x\n\r\n", 23),
            (b"GET / HTTP/1.1\r\nHost: x\r\n\n", 25),
            (b"\nGET / HTTP/1.1\r\n\r\n", 0),
        ] {
            for piece in 1..=bytes.len() {
                assert_eq!(head_len(bytes, piece, 100), (at, true), "{piece}");
            }
        }
    }

    #[test]
    fn bare_lf_stops_trailers_where_it_is() {
        for (body, at) in [
            (&b"0\r\n\n"[..], 3),
            (b"1\r\nx\r\n0\r\nT: \n\r\n\r\n", 12),
            (b"0\r\nT: x\r\n\n\r\n", 9),
        ] {
            for piece in 1..=body.len() {
                let mut framing = Framing::new(100);
                framing.pass(HEAD);
                framing.body(Length::Chunked);
                let mut passed = body.chunks(piece).map(|piece| framing.pass(piece));
                let mut len = 0;
                let stopped = passed.find(|passed| {
                    len += passed.len;
                    passed.bare_lf
                });
                assert!(stopped.is_some() && len == at, "{piece}: {len}");
            }
        }
    }

    /// Bytes of a body that pass, in pieces.
    fn body_len(length: Length, bytes: &[u8], piece: usize) -> usize {
        let (mut framing, mut all) = (Framing::new(100), 0);
        assert_eq!(framing.pass(HEAD).len, HEAD.len());
        assert!(framing.is_behind_head());
        framing.body(length);
        for piece in bytes.chunks(piece) {
            let passed = framing.pass(piece).len;
            all += passed;
            if passed < piece.len() || matches!(framing.part, Part::Head(_)) {
                break;
            }
        }
        assert!(matches!(framing.part, Part::Head(_)), "{framing:?}");
        all
    }

    #[test]
    fn bodies_end_at_the_same_byte_in_whatever_pieces_they_come() {
        for body in [
            &b"0\r\n\r\n"[..],
            b"5\r\nab\ncd\r\n1a;x=\"0\"\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\r\n",
            b"000A\r\n0\r\n\r\n12345\r\n0;y\r\nName: value\r\nOther:\r\n\r\n",
        ] {
            let bytes = [body, HEAD].concat();
            for piece in 1..=bytes.len() {
                assert_eq!(body_len(Length::Chunked, &bytes, piece), body.len(), "{piece}");
            }
        }
        for piece in 1..9 {
            assert_eq!(body_len(Length::Bytes(4), b"\n\n\n\nGET ", piece), 4);
        }
    }
}
