//! Bodies in a content coding, put together from compressed forms that are stored.

use std::collections::VecDeque;

use bytes::Bytes;
use hyper::header::{ACCEPT_ENCODING, HeaderMap};
use neve_store::SegmentSlice;

use super::reply::Chunk;
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
        let lists = headers.get_all(ACCEPT_ENCODING).into_iter().filter_map(|v| v.to_str().ok());
        for entry in lists.flat_map(|list| list.split(',')) {
            let mut words = entry.split(';').map(str::trim);
            let name = words.next().unwrap_or_default();
            let wanted = words.all(|word| !is_zero_weight(word));
            match name.to_ascii_lowercase().as_str() {
                "gzip" | "x-gzip" => accepts.gzip = wanted,
                "zstd" => accepts.zstd = wanted,
                _ => {}
            }
        }
        accepts
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

/// The coding in which these chunks are worth sending: most of what they hold must be there
/// compressed.
pub(super) fn coding(chunks: &VecDeque<Chunk>, len: usize) -> Option<Coding> {
    let parts = || {
        chunks.iter().filter_map(|chunk| match chunk {
            Chunk::Part(part) => Some(part),
            _ => None,
        })
    };
    let coding = parts().next()?.coding;
    let packed = parts().filter(|part| part.coding == coding);
    let packed: usize = packed.map(|part| part.plain.len()).sum();
    (packed * 2 > len).then_some(coding)
}

/// The same body in a coding.
pub(super) fn encode(chunks: VecDeque<Chunk>, coding: Coding) -> VecDeque<Chunk> {
    let mut text = Vec::with_capacity(256);
    let frame = Frame::begin(coding, &mut text);
    let mut encoder = Encoder { frame, text, out: VecDeque::with_capacity(2 * chunks.len() + 1) };
    chunks.into_iter().for_each(|chunk| encoder.chunk(chunk));
    encoder.finish()
}

struct Encoder {
    frame: Frame,
    /// What is written, and not a chunk yet.
    text: Vec<u8>,
    out: VecDeque<Chunk>,
}

impl Encoder {
    fn chunk(&mut self, chunk: Chunk) {
        match chunk {
            Chunk::Part(part) if part.coding == self.frame.coding() => {
                self.frame.blocks(part.crc, part.plain.len());
                self.flush();
                self.out.push_back(Chunk::Stored(part.blocks));
            }
            Chunk::Part(part) => self.slice(&part.plain),
            Chunk::Stored(slice) => self.slice(&slice),
            Chunk::Text(text) => {
                for piece in text.chunks(Frame::STORED_MAX) {
                    self.frame.stored(piece, &mut self.text);
                    self.text.extend_from_slice(piece);
                }
            }
        }
    }

    fn slice(&mut self, slice: &SegmentSlice) {
        let len = slice.len() as u32;
        for from in (0..len).step_by(Frame::STORED_MAX) {
            let piece = slice.slice(from, (from + Frame::STORED_MAX as u32).min(len));
            self.frame.stored(piece.as_ref(), &mut self.text);
            self.flush();
            self.out.push_back(Chunk::Stored(piece));
        }
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.out.push_back(Chunk::Text(Bytes::from(std::mem::take(&mut self.text))));
        }
    }

    fn finish(self) -> VecDeque<Chunk> {
        let Self { frame, mut text, mut out } = self;
        frame.end(&mut text);
        out.push_back(Chunk::Text(Bytes::from(text)));
        out
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
