//! A reply's bytes on their way out: a chain of buffers for one vectored write.

use std::io::IoSlice;
use std::ops::Range;
use std::{mem, vec};

use bytes::{Buf, Bytes};
use neve_record::coding::Coding;
use neve_record::precompressed;
use neve_store::{RecordRef, SegmentSlice, residency};

use super::content_coding;
use super::content_coding::{AcceptEncoding, CodedPart};
use crate::shared::{Account, Holder, Reservation};

/// A piece of a body.
#[derive(Debug)]
pub(crate) enum BodySlice {
    /// Written for this reply: where in its text.
    Text(Range<usize>),
    /// Bytes that are not this reply's alone.
    Shared(Bytes),
    /// Bytes of a mapped segment, which stays mapped until they are sent.
    Stored(SegmentSlice),
    /// The same, which is there in a content coding too.
    CodedPart(Box<CodedPart>),
}

impl BodySlice {
    /// The stored bytes, if it is such.
    fn stored(&self) -> Option<&SegmentSlice> {
        match self {
            Self::Stored(slice) => Some(slice),
            Self::CodedPart(part) => Some(&part.plain),
            Self::Text(_) | Self::Shared(_) => None,
        }
    }

    /// True if a frame of a long body has a copy of it.
    fn is_copied(&self) -> bool {
        !matches!(self, Self::Stored(slice) if slice.len() >= COPIED_BELOW)
    }

    fn bytes<'p>(&'p self, text: &'p [u8]) -> &'p [u8] {
        match self {
            Self::Text(range) => &text[range.clone()],
            Self::Shared(bytes) => bytes,
            Self::Stored(slice) => slice.as_ref(),
            Self::CodedPart(part) => part.plain.as_ref(),
        }
    }
}

/// On the heap: a body is handed on more than once on its way out, and so it is short
/// (docs/decisions/0025).
type BodySlices = Vec<BodySlice>;

/// Pieces that the system is given at once: enough for a batch of a hundred, and no more than it
/// takes (`IOV_MAX`, 1,024). Each further call wakes the client for a part of the answer. A body of
/// more goes out in frames, in which short pieces are copied together: the system takes 60 to 220
/// ns over each further one, while copying a kilobyte takes 100 ns (docs/decisions/0025).
pub(crate) const FRAME_PIECES: usize = 256;
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
pub(crate) struct BodyBuilder {
    pieces: BodySlices,
    text: Vec<u8>,
    /// Place where the text begins that is no piece yet.
    loose: usize,
    /// Bytes of the pieces.
    len: usize,
    accepts: AcceptEncoding,
}

impl BodyBuilder {
    /// A body of about so many answers, for a client that takes these codings.
    pub(crate) fn new(answers: usize, accepts: AcceptEncoding) -> Self {
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
        if slice.is_unpacked() {
            // A copy is counted by the budget of clients, and does not keep the whole height in memory.
            self.text.extend_from_slice(slice.as_ref());
        } else if !slice.is_empty() {
            slice.probe_to_send();
            self.push(slice.len(), BodySlice::Stored(slice));
        }
    }

    /// Another element of a list that is unpacked.
    pub(crate) fn next_unpacked(&mut self, bytes: &[u8]) {
        self.text.push(b',');
        self.text.extend_from_slice(bytes);
    }

    /// Another element of a list of slices. Those that lie behind one another become one piece:
    /// lists of logs have tens of thousands of them.
    pub(crate) fn next_stored(&mut self, slice: SegmentSlice) {
        if self.loose == self.text.len()
            && let Some(BodySlice::Stored(last)) = self.pieces.last_mut()
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
            Some((coding, precompressed::find(record, which, coding)?))
        });
        match packed {
            Some((coding, packed)) => {
                packed.blocks.probe();
                self.push(
                    plain.len(),
                    BodySlice::CodedPart(Box::new(CodedPart::new(plain, coding, packed))),
                );
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
            BodySlice::Text(range) => BodySlice::Text(before + range.start..before + range.end),
            piece => piece,
        }));
    }

    /// Bytes that the body takes in memory, without those that are stored or shared.
    pub(crate) fn held(&self) -> usize {
        let parts = if self.accepts.any() { self.pieces.len() * size_of::<CodedPart>() } else { 0 };
        self.text.capacity() + self.pieces.capacity() * size_of::<BodySlice>() + parts
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.len + self.text.len() - self.loose
    }

    fn push(&mut self, len: usize, piece: BodySlice) {
        self.flush();
        self.len += len;
        self.pieces.push(piece);
    }

    fn flush(&mut self) {
        if self.loose < self.text.len() {
            let range = self.loose..self.text.len();
            self.len += range.len();
            self.loose = range.end;
            self.pieces.push(BodySlice::Text(range));
        }
    }

    /// The pieces, and the text that some of them are of.
    pub(crate) fn into_pieces(mut self) -> (BodySlices, Vec<u8>) {
        self.flush();
        (self.pieces, self.text)
    }

    /// The body, in a content coding if that is worth it.
    pub(crate) fn finish(mut self) -> ResponseBody {
        self.flush();
        let wanted = self.accepts.any() && !residency::is_cold();
        let coding = if wanted { content_coding::coding(&self.pieces, self.len) } else { None };
        if let Some(coding) = coding {
            return ResponseBody::new(content_coding::encode(self, coding), Some(coding));
        }
        // A part that does not go out in its coding is touched after all.
        let parts = self.pieces.iter().filter(|piece| matches!(piece, BodySlice::CodedPart(_)));
        parts.filter_map(BodySlice::stored).for_each(|slice| _ = slice.probe_to_send());
        if self.pieces.len() > FRAME_PIECES && residency::memory_is_short() {
            residency::give_up(); // short pieces are copied before they are sent, which touches them
        }
        ResponseBody::new(self, None)
    }

    /// All of it in one frame.
    fn into_buf(mut self) -> WriteBuf {
        self.flush();
        let (pieces, text) = (self.pieces, self.text);
        WriteBuf { pieces, text, next: 0, at: 0, remaining: self.len }
    }
}

/// A body, in one frame unless it is of very many pieces.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    pieces: vec::IntoIter<BodySlice>,
    text: Vec<u8>,
    remaining: usize,
    coding: Option<Coding>,
    /// Covers what it takes in memory, if that is much.
    reserved: Option<Box<Reservation>>,
}

/// A body of text.
impl From<Vec<u8>> for ResponseBody {
    fn from(text: Vec<u8>) -> Self {
        let remaining = text.len();
        let pieces = if text.is_empty() { Vec::new() } else { vec![BodySlice::Text(0..remaining)] };
        Self { pieces: pieces.into_iter(), text, remaining, coding: None, reserved: None }
    }
}

/// A body of bytes that other responses share.
impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        let remaining = bytes.len();
        let pieces = vec![BodySlice::Shared(bytes)].into_iter();
        Self { pieces, text: Vec::new(), remaining, coding: None, reserved: None }
    }
}

impl ResponseBody {
    fn new(mut body: BodyBuilder, coding: Option<Coding>) -> Self {
        body.flush();
        let remaining = body.len;
        let (pieces, text) = body.into_pieces();
        Self { pieces: pieces.into_iter(), text, remaining, coding, reserved: None }
    }

    /// The content coding that it is in, if any.
    pub(crate) fn coding(&self) -> Option<Coding> {
        self.coding
    }

    /// Keeps a reservation until the body is sent.
    pub(crate) fn keep(&mut self, reservation: Option<Reservation>) {
        self.reserved = reservation.map(Box::new);
    }

    /// Bytes that it takes in memory, without those that are stored or shared.
    pub(crate) fn held(&self) -> usize {
        self.text.capacity() + size_of_val(self.pieces.as_slice())
    }

    /// Sees to it that `bytes` are reserved for it, as it is not sent at once; false if too few are
    /// left.
    pub(crate) fn reserve(&mut self, account: Account<'_>, bytes: usize) -> bool {
        if let Some(reserved) = &mut self.reserved {
            return reserved.grow_to(bytes);
        }
        self.reserved = account.reserve(Holder::Unread, bytes).map(Box::new);
        self.reserved.is_some()
    }

    /// True if its own text is UTF-8, as all that is stored or shared is.
    pub(crate) fn is_utf8(&self) -> bool {
        str::from_utf8(&self.text).is_ok()
    }

    /// Appends a newline unless it ends with one.
    pub(crate) fn end_line(&mut self) {
        let last = self.pieces.as_slice().last();
        if last.is_some_and(|piece| piece.bytes(&self.text).ends_with(b"\n")) {
            return;
        }
        let mut pieces: BodySlices = mem::take(&mut self.pieces).collect();
        let end = self.text.len();
        self.text.push(b'\n');
        pieces.push(BodySlice::Text(end..end + 1));
        self.pieces = pieces.into_iter();
        self.remaining += 1;
    }

    /// The whole body in one piece.
    #[cfg(test)]
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.remaining);
        self.pieces.for_each(|piece| bytes.extend_from_slice(piece.bytes(&self.text)));
        bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.remaining
    }

    /// Looks at the stored bytes that making the next frame copies.
    pub(crate) fn probe(&self) {
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
                piece.stored().into_iter().for_each(|slice| _ = slice.probe());
            } else {
                pieces += 1;
            }
        }
    }

    /// The next part of the body that is to be sent at once.
    pub(crate) fn frame(&mut self) -> WriteBuf {
        let frame = self.next_frame();
        self.remaining -= frame.remaining;
        frame
    }

    fn next_frame(&mut self) -> WriteBuf {
        if self.pieces.len() <= FRAME_PIECES {
            // Where it lies: what an iterator of a vector has left is a vector again without a copy.
            let pieces = mem::take(&mut self.pieces).collect();
            let text = mem::take(&mut self.text);
            return WriteBuf { pieces, text, next: 0, at: 0, remaining: self.remaining };
        }
        let mut frame = BodyBuilder::default();
        frame.text.reserve(self.remaining.min(COPIED_BYTES + COPIED_BELOW));
        while frame.pieces.len() < FRAME_PIECES && frame.text.len() < COPIED_BYTES {
            let Some(piece) = self.pieces.next() else { break };
            let copied = piece.is_copied();
            match piece {
                BodySlice::Stored(slice) if !copied => frame.stored(slice),
                piece => frame.text.extend_from_slice(piece.bytes(&self.text)),
            }
        }
        frame.into_buf()
    }
}

/// The pieces that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct WriteBuf {
    pieces: BodySlices,
    text: Vec<u8>,
    /// The first piece that is not sent.
    next: usize,
    /// Bytes of it that are.
    at: usize,
    remaining: usize,
}

impl WriteBuf {
    /// Appends to `out` the text that it begins with, if that is at most `max` bytes.
    pub(crate) fn give_text(&mut self, out: &mut Vec<u8>, max: usize) {
        if let Some(BodySlice::Text(range)) = self.pieces.get(self.next)
            && self.at == 0
            && range.len() <= max
        {
            out.extend_from_slice(&self.text[range.clone()]);
            (self.next, self.remaining) = (self.next + 1, self.remaining - range.len());
        }
    }

    /// Looks at the stored ones among the next so many bytes.
    pub(crate) fn probe(&self, bytes_max: usize) {
        self.stored_next(bytes_max).for_each(|(slice, range)| _ = slice.probe_in(range));
    }

    /// Copies what comes next, as much as there is room for: how much that is, if all of it is in
    /// memory. What is stored is not touched while [`memory_is_short`](neve_store::residency::memory_is_short).
    pub(crate) fn copy(&self, room: &mut [u8]) -> Option<usize> {
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
    pub(crate) fn load(&self, bytes_max: usize) {
        self.stored_next(bytes_max).for_each(|(slice, range)| slice.load_in(range));
    }

    /// What is stored of the next so many bytes.
    fn stored_next(&self, bytes_max: usize) -> impl Iterator<Item = (&SegmentSlice, Range<usize>)> {
        self.ahead(bytes_max).filter_map(|(piece, range)| Some((piece.stored()?, range)))
    }

    /// The next so many bytes, to be sent.
    pub(crate) fn slices(&self, bytes_max: usize) -> impl Iterator<Item = IoSlice<'_>> {
        let next = self.ahead(bytes_max);
        next.map(|(piece, range)| IoSlice::new(&piece.bytes(&self.text)[range]))
    }

    /// The same as pieces, and which bytes of them.
    fn ahead(&self, bytes_max: usize) -> impl Iterator<Item = (&BodySlice, Range<usize>)> {
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

    /// Bytes that it takes in memory, without those that are stored or shared.
    pub(crate) fn held(&self) -> usize {
        self.text.capacity() + self.pieces.capacity() * size_of::<BodySlice>()
    }

    /// Pieces that are not sent whole.
    pub(crate) fn pieces_left(&self) -> usize {
        self.pieces.len() - self.next
    }
}

impl Buf for WriteBuf {
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

    fn body(parts: &[&'static str]) -> ResponseBody {
        let mut builder = BodyBuilder::default();
        for part in parts {
            builder.push(part.len(), BodySlice::Shared(Bytes::from_static(part.as_bytes())));
        }
        ResponseBody::new(builder, None)
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
        let mut builder = BodyBuilder::default();
        let mut expected = Vec::new();
        for number in 0..100_000 {
            let text = format!("{number},");
            expected.extend_from_slice(text.as_bytes());
            if number % 2 == 0 {
                builder.text().extend_from_slice(text.as_bytes());
            } else {
                builder.push(text.len(), BodySlice::Shared(Bytes::from(text)));
            }
        }
        let mut body = ResponseBody::new(builder, None);
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
        let mut inner = BodyBuilder::default();
        inner.text().extend_from_slice(b"[");
        inner.push(1, BodySlice::Shared(Bytes::from_static(b"1")));
        inner.text().extend_from_slice(b"]");
        let mut outer = BodyBuilder::default();
        outer.text().extend_from_slice(b"{");
        outer.append(inner);
        outer.text().extend_from_slice(b"}");
        assert_eq!(outer.len(), 5);
        assert_eq!(outer.finish().into_bytes(), b"{[1]}");
    }
}
