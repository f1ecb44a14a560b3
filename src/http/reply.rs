//! A reply's bytes on their way out: a chain of buffers for one vectored write.

use std::io::IoSlice;
use std::ops::Range;
use std::{mem, vec};

use bytes::{Buf, Bytes};
use neve_store::{RecordRef, SegmentSlice, residency};

use super::encoded::{self, Accepts, Part};
use crate::packed::{self, Coding};

/// A piece of a body.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Written for this reply: where in its text.
    Text(Range<usize>),
    /// Bytes that are not this reply's alone.
    Shared(Bytes),
    /// Bytes of a mapped segment, which stays mapped until they are sent.
    Stored(SegmentSlice),
    /// The same, which is there in a content coding too.
    Part(Box<Part>),
}

impl Piece {
    /// The stored bytes, if it is such.
    fn stored(&self) -> Option<&SegmentSlice> {
        match self {
            Self::Stored(slice) => Some(slice),
            Self::Part(part) => Some(&part.plain),
            Self::Text(_) | Self::Shared(_) => None,
        }
    }

    /// Whether a frame of a long body has a copy of it.
    fn is_copied(&self) -> bool {
        !matches!(self, Self::Stored(slice) if slice.len() >= COPIED_BELOW)
    }

    fn bytes<'p>(&'p self, text: &'p [u8]) -> &'p [u8] {
        match self {
            Self::Text(range) => &text[range.clone()],
            Self::Shared(bytes) => bytes,
            Self::Stored(slice) => slice.as_ref(),
            Self::Part(part) => part.plain.as_ref(),
        }
    }
}

/// On the heap: a body is handed on more than once on its way out, and so it is short (docs/DECISIONS.md).
type Pieces = Vec<Piece>;

/// Pieces that the system is given at once: enough for a batch of a hundred, and no more than it
/// takes (`IOV_MAX`, 1,024). Each further call wakes the client for a part of the answer. A body of more goes out in
/// frames, in which short pieces are copied together: the system takes 60 to 220 ns over each further one, while
/// copying a kilobyte takes 100 ns (docs/DECISIONS.md).
pub(super) const FRAME_PIECES: usize = 256;
/// Shorter pieces of a long body are copied.
const COPIED_BELOW: usize = 1024;
/// A frame of a long body ends when so much of it was copied.
const COPIED_BYTES: usize = 128 << 10;
/// Enough for what is written around a stored part.
const TEXT_ROOM: usize = 96;
/// Most answers are text, a stored part and text again.
const PIECES_ROOM: usize = 3;

/// Collects a body. Text that follows text becomes one piece.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    pieces: Pieces,
    text: Vec<u8>,
    /// Where the text begins that is no piece yet.
    loose: usize,
    /// Bytes of the pieces.
    len: usize,
    accepts: Accepts,
}

impl Builder {
    /// A body of about so many answers, for a client that takes these codings.
    pub(crate) fn new(answers: usize, accepts: Accepts) -> Self {
        let pieces = Vec::with_capacity(answers * PIECES_ROOM);
        let text = Vec::with_capacity(answers * TEXT_ROOM);
        Self { pieces, text, accepts, ..Self::default() }
    }

    /// Room for text; what is appended to it is part of the body. Nothing that was there may be
    /// taken away but what was appended since the last stored part.
    pub(crate) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    pub(crate) fn stored(&mut self, slice: SegmentSlice) {
        if !slice.is_empty() {
            slice.look_to_send();
            self.push(slice.len(), Piece::Stored(slice));
        }
    }

    /// Another element of a list of slices. Those that lie behind one another become one piece:
    /// lists of logs have tens of thousands of them.
    pub(crate) fn next_stored(&mut self, slice: SegmentSlice) {
        if self.loose == self.text.len()
            && let Some(Piece::Stored(last)) = self.pieces.last_mut()
            && last.join(b',', &slice)
        {
            self.len += 1 + slice.len();
        } else {
            self.text.push(b',');
            self.stored(slice);
        }
    }

    /// A whole part of a record, in a content coding if there is one that the client takes.
    pub(crate) fn part(&mut self, record: &RecordRef, which: usize, plain: SegmentSlice) {
        if !self.accepts.any() {
            return self.stored(plain); // nearly always
        }
        let packed = Coding::ALL.into_iter().find_map(|coding| {
            if !self.accepts.takes(coding) {
                return None;
            }
            Some((coding, packed::find(record, which, coding)?))
        });
        match packed {
            Some((coding, packed)) => {
                packed.blocks.look();
                self.push(plain.len(), Piece::Part(Box::new(Part::new(plain, coding, packed))));
            }
            None => self.stored(plain),
        }
    }

    /// Appends all of another body.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.flush();
        other.flush();
        let before = self.text.len();
        self.text.append(&mut other.text);
        self.loose = self.text.len();
        self.len += other.len;
        self.pieces.extend(other.pieces.into_iter().map(|piece| match piece {
            Piece::Text(range) => Piece::Text(before + range.start..before + range.end),
            piece => piece,
        }));
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.len + self.text.len() - self.loose
    }

    fn push(&mut self, len: usize, piece: Piece) {
        self.flush();
        self.len += len;
        self.pieces.push(piece);
    }

    fn flush(&mut self) {
        if self.loose < self.text.len() {
            let range = self.loose..self.text.len();
            self.len += range.len();
            self.loose = range.end;
            self.pieces.push(Piece::Text(range));
        }
    }

    /// The pieces, and the text that some of them are of.
    pub(super) fn into_pieces(mut self) -> (Pieces, Vec<u8>) {
        self.flush();
        (self.pieces, self.text)
    }

    /// The body, in a content coding if that is worth it.
    pub(crate) fn finish(mut self) -> ReplyBody {
        self.flush();
        let wanted = self.accepts.any() && !residency::is_cold();
        let coding = if wanted { encoded::coding(&self.pieces, self.len) } else { None };
        if let Some(coding) = coding {
            return ReplyBody::new(encoded::encode(self, coding), Some(coding));
        }
        // A part that does not go out in its coding is touched after all.
        let parts = self.pieces.iter().filter(|piece| matches!(piece, Piece::Part(_)));
        parts.filter_map(Piece::stored).for_each(|slice| _ = slice.look_to_send());
        if self.pieces.len() > FRAME_PIECES && residency::pages_go() {
            residency::give_up(); // short pieces are copied before they are sent, which touches them
        }
        ReplyBody::new(self, None)
    }

    /// All of it in one frame.
    fn into_buf(mut self) -> ReplyBuf {
        self.flush();
        let (pieces, text) = (self.pieces, self.text);
        ReplyBuf { pieces, text, next: 0, at: 0, remaining: self.len }
    }
}

/// A body, in one frame unless it is of very many pieces.
#[derive(Debug)]
pub(crate) struct ReplyBody {
    pieces: vec::IntoIter<Piece>,
    text: Vec<u8>,
    remaining: usize,
    coding: Option<Coding>,
}

impl From<Bytes> for ReplyBody {
    fn from(bytes: Bytes) -> Self {
        let remaining = bytes.len();
        let pieces = vec![Piece::Shared(bytes)].into_iter();
        Self { pieces, text: Vec::new(), remaining, coding: None }
    }
}

impl ReplyBody {
    fn new(mut body: Builder, coding: Option<Coding>) -> Self {
        body.flush();
        let remaining = body.len;
        let (pieces, text) = body.into_pieces();
        Self { pieces: pieces.into_iter(), text, remaining, coding }
    }

    /// The content coding that it is in, if any.
    pub(crate) fn coding(&self) -> Option<Coding> {
        self.coding
    }

    /// The whole body in one piece.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.remaining);
        self.pieces.for_each(|piece| bytes.extend_from_slice(piece.bytes(&self.text)));
        bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.remaining
    }

    /// Looks at the stored bytes that making the next frame copies.
    pub(super) fn look(&self) {
        if self.pieces.len() <= FRAME_PIECES {
            return; // it takes them as they are
        }
        let (mut pieces, mut copied) = (0, 0);
        for piece in self.pieces.as_slice() {
            if pieces >= FRAME_PIECES || copied >= COPIED_BYTES {
                return;
            }
            if piece.is_copied() {
                copied += piece.bytes(&self.text).len();
                piece.stored().into_iter().for_each(|slice| _ = slice.look());
            } else {
                pieces += 1;
            }
        }
    }

    /// The next part of the body that is to be sent at once.
    pub(super) fn frame(&mut self) -> ReplyBuf {
        let frame = self.next_frame();
        self.remaining -= frame.remaining;
        frame
    }

    fn next_frame(&mut self) -> ReplyBuf {
        if self.pieces.len() <= FRAME_PIECES {
            // Where it lies: what an iterator of a vector has left is a vector again without a copy.
            let pieces = mem::take(&mut self.pieces).collect();
            let text = mem::take(&mut self.text);
            return ReplyBuf { pieces, text, next: 0, at: 0, remaining: self.remaining };
        }
        let mut frame = Builder::default();
        frame.text.reserve(self.remaining.min(COPIED_BYTES + COPIED_BELOW));
        while frame.pieces.len() < FRAME_PIECES && frame.text.len() < COPIED_BYTES {
            let Some(piece) = self.pieces.next() else { break };
            let copied = piece.is_copied();
            match piece {
                Piece::Stored(slice) if !copied => frame.stored(slice),
                piece => frame.text.extend_from_slice(piece.bytes(&self.text)),
            }
        }
        frame.into_buf()
    }
}

/// The pieces that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct ReplyBuf {
    pieces: Pieces,
    text: Vec<u8>,
    /// The first piece that is not sent.
    next: usize,
    /// Bytes of it that are.
    at: usize,
    remaining: usize,
}

impl ReplyBuf {
    /// Appends to `out` the text that it begins with, if that is at most `max` bytes.
    pub(super) fn give_text(&mut self, out: &mut Vec<u8>, max: usize) {
        if let Some(Piece::Text(range)) = self.pieces.get(self.next)
            && self.at == 0
            && range.len() <= max
        {
            out.extend_from_slice(&self.text[range.clone()]);
            (self.next, self.remaining) = (self.next + 1, self.remaining - range.len());
        }
    }

    /// Looks at the stored ones among the next so many bytes.
    pub(super) fn look(&self, bytes_max: usize) {
        self.stored_next(bytes_max).for_each(|(slice, range)| _ = slice.look_in(range));
    }

    /// Copies what comes next, as much as there is room for: how much that is, if all of it is in memory. What is
    /// stored is not touched while [`pages_go`](neve_store::residency::pages_go).
    pub(super) fn copy(&self, room: &mut [u8]) -> Option<usize> {
        let mut copied = 0;
        for (piece, range) in self.ahead(room.len()) {
            let into = &mut room[copied..copied + range.len()];
            copied += range.len();
            let Some(slice) = piece.stored() else {
                into.copy_from_slice(&piece.bytes(&self.text)[range]);
                continue;
            };
            if !slice.copy_in(range, into) {
                return None;
            }
        }
        Some(copied)
    }

    /// Waits until they are in memory.
    pub(super) fn load(&self, bytes_max: usize) {
        self.stored_next(bytes_max).for_each(|(slice, range)| slice.load_in(range));
    }

    /// What is stored of the next so many bytes.
    fn stored_next(&self, bytes_max: usize) -> impl Iterator<Item = (&SegmentSlice, Range<usize>)> {
        self.ahead(bytes_max).filter_map(|(piece, range)| Some((piece.stored()?, range)))
    }

    /// The next so many bytes, to be sent.
    pub(super) fn slices(&self, bytes_max: usize) -> impl Iterator<Item = IoSlice<'_>> {
        let next = self.ahead(bytes_max);
        next.map(|(piece, range)| IoSlice::new(&piece.bytes(&self.text)[range]))
    }

    /// The same as pieces, and which bytes of them.
    fn ahead(&self, bytes_max: usize) -> impl Iterator<Item = (&Piece, Range<usize>)> {
        let (mut from, mut left) = (self.at, bytes_max);
        self.pieces[self.next..].iter().map_while(move |piece| {
            if left == 0 {
                return None;
            }
            let len = piece.bytes(&self.text).len().min(from.saturating_add(left));
            let range = mem::take(&mut from)..len;
            left -= range.len();
            Some((piece, range))
        })
    }

    /// Pieces that are not sent whole.
    pub(super) fn pieces_left(&self) -> usize {
        self.pieces.len() - self.next
    }
}

impl Buf for ReplyBuf {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.get(self.next).map_or(&[], |piece| &piece.bytes(&self.text)[self.at..])
    }

    fn advance(&mut self, mut sent: usize) {
        assert!(sent <= self.remaining, "more was sent than there was");
        self.remaining -= sent;
        while sent > 0 {
            let left = self.chunk().len();
            if sent < left {
                self.at += sent;
                return;
            }
            sent -= left;
            (self.next, self.at) = (self.next + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(parts: &[&'static str]) -> ReplyBody {
        let mut builder = Builder::default();
        for part in parts {
            builder.push(part.len(), Piece::Shared(Bytes::from_static(part.as_bytes())));
        }
        ReplyBody::new(builder, None)
    }

    #[test]
    fn any_way_of_sending_gives_the_same_bytes() {
        for step in 1..9 {
            let mut buf = body(&["ab", "c", "defgh"]).frame();
            let mut sent = Vec::new();
            while buf.has_remaining() {
                let step = step.min(buf.remaining());
                let all: Vec<u8> = buf.slices(step).flat_map(|slice| slice.to_vec()).collect();
                let mut copied = vec![0; step];
                assert_eq!(buf.copy(&mut copied), Some(step));
                assert_eq!(all, copied);
                sent.extend_from_slice(&copied);
                buf.advance(step);
            }
            assert_eq!(sent, b"abcdefgh", "in steps of {step}");
        }
    }

    #[test]
    fn a_body_of_many_pieces_comes_in_frames_with_the_same_bytes() {
        let mut builder = Builder::default();
        let mut expected = Vec::new();
        for number in 0..100_000 {
            let text = format!("{number},");
            expected.extend_from_slice(text.as_bytes());
            if number % 2 == 0 {
                builder.text().extend_from_slice(text.as_bytes());
            } else {
                builder.push(text.len(), Piece::Shared(Bytes::from(text)));
            }
        }
        let mut body = ReplyBody::new(builder, None);
        assert_eq!(body.len(), expected.len());
        let (mut sent, mut frames) = (Vec::new(), 0);
        while body.len() > 0 {
            let mut frame = body.frame();
            assert!(frame.remaining() < COPIED_BYTES + COPIED_BELOW, "{}", frame.remaining());
            sent.extend_from_slice(&frame.copy_to_bytes(frame.remaining()));
            frames += 1;
        }
        assert!(sent == expected, "{} bytes of {}", sent.len(), expected.len());
        assert!(frames > 2, "{frames} frames");
    }

    #[test]
    fn a_body_inside_another_keeps_its_text() {
        let mut inner = Builder::default();
        inner.text().extend_from_slice(b"[");
        inner.push(1, Piece::Shared(Bytes::from_static(b"1")));
        inner.text().extend_from_slice(b"]");
        let mut outer = Builder::default();
        outer.text().extend_from_slice(b"{");
        outer.append(inner);
        outer.text().extend_from_slice(b"}");
        assert_eq!(outer.len(), 5);
        assert_eq!(outer.finish().into_bytes(), b"{[1]}");
    }
}
