//! Bodies in a content coding, put together from compressed forms that are stored.

use neve_record::coding::{Coding, CodingWriter};
use neve_store::SegmentSlice;
use neve_store::residency::Cold;

use super::builder::BodyBuilder;
use super::slice::BodySlice;

/// The coding in which these slices are worth sending: most of what they hold must be there
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
pub(crate) fn encode(body: BodyBuilder, coding: Coding) -> Result<BodyBuilder, Cold> {
    let mut out = BodyBuilder::default();
    let frame = CodingWriter::begin(coding, out.text());
    let mut encoder = Encoder { frame, out };
    let (pieces, text) = body.into_pieces();
    pieces.into_iter().try_for_each(|piece| encoder.piece(piece, &text))?;
    let Encoder { frame, mut out } = encoder;
    frame.end(out.text());
    Ok(out)
}

struct Encoder {
    frame: CodingWriter,
    out: BodyBuilder,
}

impl Encoder {
    fn piece(&mut self, piece: BodySlice, text: &[u8]) -> Result<(), Cold> {
        match piece {
            BodySlice::CodedPart(part) if part.coding == self.frame.coding() => {
                self.frame.blocks(part.crc, part.plain.len());
                self.out.stored(part.blocks)?;
            }
            BodySlice::CodedPart(part) => self.slice(&part.plain)?,
            BodySlice::Stored(slice) => self.slice(&slice)?,
            BodySlice::Text(range) => self.text(&text[range]),
            BodySlice::Shared(bytes) => self.text(&bytes),
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        for piece in text.chunks(CodingWriter::STORED_MAX) {
            self.frame.stored(piece, self.out.text());
            self.out.text().extend_from_slice(piece);
        }
    }

    fn slice(&mut self, slice: &SegmentSlice) -> Result<(), Cold> {
        slice.probe()?; // its checksum is taken
        let len = slice.len() as u32;
        for from in (0..len).step_by(CodingWriter::STORED_MAX) {
            let piece = slice.slice(from, (from + CodingWriter::STORED_MAX as u32).min(len));
            self.frame.stored(piece.as_ref(), self.out.text());
            self.out.stored(piece)?;
        }
        Ok(())
    }
}
