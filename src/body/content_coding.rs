//! Bodies in a content coding, put together from compressed forms that are stored.

use hyper::header::{ACCEPT_ENCODING, HeaderMap};
use neve_record::coding::{Coding, CodingWriter};
use neve_record::precompressed::Precompressed;
use neve_store::SegmentSlice;

use super::builder::{BodyBuilder, BodySlice};

/// Codings that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AcceptEncoding {
    gzip: bool,
    zstd: bool,
}

impl AcceptEncoding {
    /// By Accept-Encoding (RFC 9110, 12.5.3): a coding that is named, or covered by `*`, and not
    /// with a weight of zero. Among those the server chooses.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut accepts = Self::default();
        headers.get_all(ACCEPT_ENCODING).iter().for_each(|list| accepts.add(list.as_bytes()));
        accepts
    }

    /// The same with another of these headers.
    pub(crate) fn add(&mut self, list: &[u8]) {
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

    /// True if it takes anything but plain bytes.
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
pub(crate) struct CodedPart {
    pub(crate) plain: SegmentSlice,
    pub(crate) coding: Coding,
    pub(crate) blocks: SegmentSlice,
    pub(crate) crc: u32,
}

impl CodedPart {
    pub(crate) fn new(plain: SegmentSlice, coding: Coding, packed: Precompressed) -> Self {
        Self { plain, coding, blocks: packed.blocks, crc: packed.crc }
    }
}

/// The coding in which these pieces are worth sending: most of what they hold must be there
/// compressed.
pub(crate) fn coding(pieces: &[BodySlice], len: usize) -> Option<Coding> {
    let parts = || {
        pieces.iter().filter_map(|piece| match piece {
            BodySlice::CodedPart(part) => Some(part),
            _ => None,
        })
    };
    let coding = parts().next()?.coding;
    let packed = parts().filter(|part| part.coding == coding);
    let packed: usize = packed.map(|part| part.plain.len()).sum();
    (packed * 2 > len).then_some(coding)
}

/// Returns the body in a coding.
pub(crate) fn encode(body: BodyBuilder, coding: Coding) -> BodyBuilder {
    let mut out = BodyBuilder::default();
    let frame = CodingWriter::begin(coding, out.text());
    let mut encoder = Encoder { frame, out };
    let (pieces, text) = body.into_pieces();
    pieces.into_iter().for_each(|piece| encoder.piece(piece, &text));
    let Encoder { frame, mut out } = encoder;
    frame.end(out.text());
    out
}

struct Encoder {
    frame: CodingWriter,
    out: BodyBuilder,
}

impl Encoder {
    fn piece(&mut self, piece: BodySlice, text: &[u8]) {
        match piece {
            BodySlice::CodedPart(part) if part.coding == self.frame.coding() => {
                self.frame.blocks(part.crc, part.plain.len());
                self.out.stored(part.blocks);
            }
            BodySlice::CodedPart(part) => self.slice(&part.plain),
            BodySlice::Stored(slice) => self.slice(&slice),
            BodySlice::Text(range) => self.text(&text[range]),
            BodySlice::Shared(bytes) => self.text(&bytes),
        }
    }

    fn text(&mut self, text: &[u8]) {
        for piece in text.chunks(CodingWriter::STORED_MAX) {
            self.frame.stored(piece, self.out.text());
            self.out.text().extend_from_slice(piece);
        }
    }

    fn slice(&mut self, slice: &SegmentSlice) {
        let len = slice.len() as u32;
        for from in (0..len).step_by(CodingWriter::STORED_MAX) {
            let piece = slice.slice(from, (from + CodingWriter::STORED_MAX as u32).min(len));
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
            let accepts = AcceptEncoding::of(&headers);
            (accepts.gzip, accepts.zstd)
        };
        assert_eq!(of("gzip, deflate, br, zstd"), (true, true));
        assert_eq!(of("GZIP;q=0.5"), (true, false));
        assert_eq!(of("gzip;q=0, zstd; q=0.001"), (false, true));
        assert_eq!(of("gzip; q=0.000"), (false, false));
        assert_eq!(of("identity"), (false, false));
        assert_eq!(AcceptEncoding::of(&HeaderMap::new()), AcceptEncoding::default());
    }
}
