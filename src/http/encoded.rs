//! Bodies in a content coding, put together from compressed forms that are stored.

use hyper::header::{ACCEPT_ENCODING, HeaderMap};
use neve_store::SegmentSlice;

use super::reply::{Builder, Piece};
use crate::packed::{Coding, Frame, Packed};

/// Which codings a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Accepts {
    gzip: bool,
    zstd: bool,
}

impl Accepts {
    /// By Accept-Encoding (RFC 9110, 12.5.3): a coding that is named, or covered by `*`, and not
    /// with a weight of zero. Among those the server chooses.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut accepts = Self::default();
        headers.get_all(ACCEPT_ENCODING).iter().for_each(|list| accepts.add(list.as_bytes()));
        accepts
    }

    /// The same with another of these headers.
    pub(super) fn add(&mut self, list: &[u8]) {
        for entry in list.split(|byte| *byte == b',').filter_map(|entry| str::from_utf8(entry).ok())
        {
            let mut words = entry.split(';').map(str::trim);
            let name = words.next().unwrap_or_default();
            let wanted = words.all(|word| !is_zero_weight(word));
            if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
                self.gzip = wanted;
            } else if name.eq_ignore_ascii_case("zstd") {
                self.zstd = wanted;
            }
        }
    }

    /// Whether it takes anything but plain bytes.
    pub(crate) fn any(self) -> bool {
        self.gzip || self.zstd
    }

    pub(crate) fn takes(self, coding: Coding) -> bool {
        match coding {
            Coding::Gzip => self.gzip,
            Coding::Zstd => self.zstd,
        }
    }
}

fn is_zero_weight(word: &str) -> bool {
    let weight = word.strip_prefix("q=").or_else(|| word.strip_prefix("Q="));
    weight.and_then(|weight| weight.trim().parse::<f32>().ok()).is_some_and(|weight| weight <= 0.0)
}

/// A stored part that can also go out compressed.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) plain: SegmentSlice,
    pub(crate) coding: Coding,
    pub(crate) blocks: SegmentSlice,
    pub(crate) crc: u32,
}

impl Part {
    pub(crate) fn new(plain: SegmentSlice, coding: Coding, packed: Packed) -> Self {
        Self { plain, coding, blocks: packed.blocks, crc: packed.crc }
    }
}

/// The coding in which these pieces are worth sending: most of what they hold must be there
/// compressed.
pub(super) fn coding(pieces: &[Piece], len: usize) -> Option<Coding> {
    let parts = || {
        pieces.iter().filter_map(|piece| match piece {
            Piece::Part(part) => Some(part),
            _ => None,
        })
    };
    let coding = parts().next()?.coding;
    let packed = parts().filter(|part| part.coding == coding);
    let packed: usize = packed.map(|part| part.plain.len()).sum();
    (packed * 2 > len).then_some(coding)
}

/// The same body in a coding.
pub(super) fn encode(body: Builder, coding: Coding) -> Builder {
    let mut out = Builder::default();
    let frame = Frame::begin(coding, out.text());
    let mut encoder = Encoder { frame, out };
    let (pieces, text) = body.into_pieces();
    pieces.into_iter().for_each(|piece| encoder.piece(piece, &text));
    let Encoder { frame, mut out } = encoder;
    frame.end(out.text());
    out
}

struct Encoder {
    frame: Frame,
    out: Builder,
}

impl Encoder {
    fn piece(&mut self, piece: Piece, text: &[u8]) {
        match piece {
            Piece::Part(part) if part.coding == self.frame.coding() => {
                self.frame.blocks(part.crc, part.plain.len());
                self.out.stored(part.blocks);
            }
            Piece::Part(part) => self.slice(&part.plain),
            Piece::Stored(slice) => self.slice(&slice),
            Piece::Text(range) => self.text(&text[range]),
            Piece::Shared(bytes) => self.text(&bytes),
        }
    }

    fn text(&mut self, text: &[u8]) {
        for piece in text.chunks(Frame::STORED_MAX) {
            self.frame.stored(piece, self.out.text());
            self.out.text().extend_from_slice(piece);
        }
    }

    fn slice(&mut self, slice: &SegmentSlice) {
        let len = slice.len() as u32;
        for from in (0..len).step_by(Frame::STORED_MAX) {
            let piece = slice.slice(from, (from + Frame::STORED_MAX as u32).min(len));
            self.frame.stored(piece.as_ref(), self.out.text());
            self.out.stored(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_say_what_they_take() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, text.parse().unwrap());
            let accepts = Accepts::of(&headers);
            (accepts.gzip, accepts.zstd)
        };
        assert_eq!(of("gzip, deflate, br, zstd"), (true, true));
        assert_eq!(of("GZIP;q=0.5"), (true, false));
        assert_eq!(of("gzip;q=0, zstd; q=0.001"), (false, true));
        assert_eq!(of("gzip; q=0.000"), (false, false));
        assert_eq!(of("identity"), (false, false));
        assert_eq!(Accepts::of(&HeaderMap::new()), Accepts::default());
    }
}
