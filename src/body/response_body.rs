//! A finished body, and the parts in which it is sent.

use std::{mem, vec};

use bytes::{Buf, Bytes};
use neve_record::coding::Coding;
use neve_store::SegmentSlice;
use neve_store::residency::{self, Cold, ReadFailed};

use super::builder::BodyBuilder;
use super::content_coding;
use super::slice::{BodySlice, BodySlices, COPIED_BELOW};
use super::write_buf::WriteBuf;
use crate::shared::{Account, FREE_BYTES, Holder, Meter, RESPONSE_FREE_BYTES, Reservation};

/// Slices that the kernel is given at once: enough for a batch of a hundred, and no more than it
/// takes (`IOV_MAX`, 1,024). Each further call wakes the client for a part of the answer. A body of
/// more goes out in frames, in which short slices are copied together: the kernel takes 60 to 220
/// ns over each further one, while copying a kilobyte takes 100 ns (docs/decisions/0025).
pub(crate) const FRAME_PIECES: usize = 256;
/// A frame of a long body ends when so much of it was copied.
const COPIED_BYTES: usize = 128 << 10;
/// Space for the text of a frame, with a last short slice that begins just below the bound.
const FRAME_TEXT: usize = COPIED_BYTES + COPIED_BELOW;
/// Space for the slices of a frame: a text may stand before the last one, and behind it.
const FRAME_ROOM: usize = FRAME_PIECES + 2;
/// Longest spare space of a text that waits for its client.
const SPARE_BYTES: usize = 1 << 20;
// A body that goes out in frames never goes without a reservation: see `fits`.
const _: () = assert!(FRAME_PIECES * size_of::<BodySlice>() >= RESPONSE_FREE_BYTES);

/// A body, in one frame unless it is of very many slices.
#[derive(Debug, Default)]
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
        self.reserved = reservation.map(|reserved| Box::new(self.without_spare(reserved)));
    }

    /// Gives the spare space of a long text back, and its part of the reservation.
    #[cold]
    fn without_spare(&mut self, mut reserved: Reservation) -> Reservation {
        if self.text.capacity() - self.text.len() > SPARE_BYTES {
            self.text.shrink_to(self.text.len() + 1); // `end_line` may follow
            reserved.shrink_to(self.held_to_send());
        }
        reserved
    }

    /// True if there is memory to hold it and to send it. A client that reads gets the whole body then.
    #[inline]
    pub(crate) fn fits(&self, memory: &Meter<'_>) -> bool {
        self.held() <= RESPONSE_FREE_BYTES || memory.covers(self.held_to_send())
    }

    /// Bytes that it takes in memory while it is sent: with a head, and with the copies of a frame if it
    /// goes out in frames.
    #[cold]
    pub(crate) fn held_to_send(&self) -> usize {
        // The end of a line may follow.
        let in_frames = self.pieces.len() >= FRAME_PIECES;
        let frame = if in_frames { FRAME_TEXT + FRAME_ROOM * size_of::<BodySlice>() } else { 0 };
        self.held() + frame + FREE_BYTES
    }

    /// Bytes that it takes in memory, without those that are stored or shared.
    pub(crate) fn held(&self) -> usize {
        // An iterator does not tell the capacity of its vector, so what is left counts.
        self.text.capacity() + size_of_val(self.pieces.as_slice())
    }

    /// Sees to it that `bytes` are reserved for it, as it is not sent at once; false if too few are
    /// left.
    pub(crate) fn reserve(&mut self, account: Account<'_>, bytes: usize) -> bool {
        // One reservation, which grows: two would both be counted.
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
        self.text.reserve_exact(1); // a push would double a long text
        self.text.push(b'\n');
        pieces.push(BodySlice::Text(end..end + 1));
        self.pieces = pieces.into_iter();
        self.remaining += 1;
    }

    /// The whole body in one buffer.
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
    fn probe(&self) -> Result<(), Cold> {
        if self.pieces.len() <= FRAME_PIECES {
            return Ok(()); // it takes them as they are
        }
        let (mut pieces, mut copied) = (0, 0);
        for piece in self.pieces.as_slice() {
            if pieces >= FRAME_PIECES || copied >= COPIED_BYTES {
                break;
            }
            if piece.is_copied() {
                copied += piece.bytes(&self.text).len();
                piece.stored().map_or(Ok(()), SegmentSlice::probe)?;
            } else {
                pieces += 1;
            }
        }
        Ok(())
    }

    /// The next part of the body that is to be sent at once.
    pub(crate) fn next_write(&mut self) -> WriteBuf {
        let frame = self.take_write();
        self.remaining -= frame.remaining();
        frame
    }

    /// Makes the next frame, unless that touches bytes that are not in memory.
    pub(crate) fn next_write_if_resident(&mut self) -> Result<WriteBuf, Cold> {
        residency::if_resident(|| self.probe())?;
        Ok(self.next_write())
    }

    /// Does this on a thread that may wait for the disk.
    pub(crate) fn next_write_loading(&mut self) -> Result<WriteBuf, ReadFailed> {
        residency::loading(|| self.probe())?;
        Ok(self.next_write())
    }

    fn take_write(&mut self) -> WriteBuf {
        if self.pieces.len() <= FRAME_PIECES {
            // Where it lies: what an iterator of a vector has left is a vector again without a copy.
            let pieces = mem::take(&mut self.pieces).collect();
            let text = mem::take(&mut self.text);
            return WriteBuf::new(pieces, text, self.remaining);
        }
        self.take_frame()
    }

    /// Takes a frame of a body of many slices, in which short ones are copied together.
    fn take_frame(&mut self) -> WriteBuf {
        let mut frame = BodyBuilder::default();
        frame.pieces.reserve_exact(FRAME_ROOM);
        frame.text.reserve_exact(self.remaining.min(FRAME_TEXT));
        while frame.pieces.len() < FRAME_PIECES && frame.text.len() < COPIED_BYTES {
            let Some(piece) = self.pieces.as_mut_slice().first_mut() else { break };
            if let Some(begin) = piece.split_begin(COPIED_BYTES - frame.text.len()) {
                frame.text.extend_from_slice(begin.bytes(&self.text));
                break; // the next frame has more of the slice
            }
            match self.pieces.next() {
                Some(piece) if piece.is_copied() => {
                    frame.text.extend_from_slice(piece.bytes(&self.text));
                }
                Some(piece) => frame.push(piece.bytes(&self.text).len(), piece),
                None => break,
            }
        }
        frame.into_buf()
    }
}

impl BodyBuilder {
    /// The body, in a content coding if that is worth it.
    pub(crate) fn finish(mut self) -> Result<ResponseBody, Cold> {
        self.flush();
        let wanted = self.accepts.any();
        let coding = if wanted { content_coding::coding(&self.pieces, self.len) } else { None };
        if let Some(coding) = coding {
            return Ok(ResponseBody::new(content_coding::encode(self, coding)?, Some(coding)));
        }
        // A part that does not go out in its coding is touched after all.
        let mut parts = self.pieces.iter().filter(|piece| matches!(piece, BodySlice::CodedPart(_)));
        parts.try_for_each(|part| part.stored().map_or(Ok(()), SegmentSlice::probe_to_send))?;
        if self.pieces.len() > FRAME_PIECES && residency::memory_is_short() {
            residency::not_here()?; // short slices are copied before they are sent, which touches them
        }
        Ok(ResponseBody::new(self, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::MemoryBudget;
    use crate::shared::tests::{address, plenty};

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
            let mut buf = body(&["ab", "c", "defgh"]).next_write();
            let mut sent = Vec::new();
            while buf.has_remaining() {
                let step = step.min(buf.remaining());
                let all: Vec<u8> = buf.slices(step).flat_map(|slice| slice.to_vec()).collect();
                let mut copied = vec![0; step];
                assert_eq!(buf.copy(&mut copied), Ok(step));
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
            let mut frame = body.next_write();
            assert!(frame.remaining() < COPIED_BYTES + COPIED_BELOW, "{}", frame.remaining());
            sent.extend_from_slice(&frame.copy_to_bytes(frame.remaining()));
            frames += 1;
        }
        assert!(sent == expected, "{} bytes of {}", sent.len(), expected.len());
        assert!(frames > 2, "{frames} frames");
    }

    /// A body of a long slice and of many short ones, and its bytes.
    fn long_among_short(long: &[u8], is_shared: bool) -> (ResponseBody, Vec<u8>) {
        let mut builder = BodyBuilder::default();
        if is_shared {
            builder.push(long.len(), BodySlice::Shared(Bytes::copy_from_slice(long)));
        } else {
            builder.text().extend_from_slice(long);
            builder.flush();
        }
        let mut expected = long.to_vec();
        for number in 0..300 {
            let text = Bytes::from(format!("{number},"));
            expected.extend_from_slice(&text);
            builder.push(text.len(), BodySlice::Shared(text));
        }
        (ResponseBody::new(builder, None), expected)
    }

    #[test]
    fn long_text_is_copied_in_parts() {
        let text: Vec<u8> = (0..1_u32 << 20).map(|at| (at / 7) as u8).collect();
        for is_shared in [false, true] {
            let (mut body, expected) = long_among_short(&text, is_shared);
            let mut sent = Vec::new();
            while body.pieces.len() > FRAME_PIECES {
                let mut frame = body.next_write();
                let copied = frame.remaining(); // no slice is stored
                assert!(copied < FRAME_TEXT, "{copied} bytes");
                assert!(frame.held() <= FRAME_TEXT + FRAME_ROOM * size_of::<BodySlice>());
                sent.extend_from_slice(&frame.copy_to_bytes(copied));
            }
            assert_eq!(sent.len() + body.len(), expected.len());
            sent.extend_from_slice(&body.into_bytes());
            assert!(sent == expected);
        }
    }

    #[test]
    fn body_that_fits_has_memory_for_each_of_its_frames() {
        let text = vec![b' '; 1 << 20];
        let (mut fitting, mut refused) = (0, 0);
        for more in (0..20).map(|step| step << 14) {
            let (mut body, _) = long_among_short(&text, false);
            let memory = MemoryBudget::new(usize::MAX, body.held() + more);
            let meter = Meter::new(memory.account(address(1)));
            if !body.fits(&meter) {
                refused += 1;
                continue;
            }
            fitting += 1;
            body.keep(meter.into_reservation());
            while body.len() > 0 {
                let held = body.next_write().held() + body.held();
                assert!(body.reserve(memory.account(address(1)), held + FREE_BYTES), "{more}");
            }
        }
        assert!(fitting > 0 && refused > 0, "{fitting} {refused}");
    }

    #[test]
    fn long_list_grows_by_a_part_of_its_length() {
        let mut builder = BodyBuilder::default();
        while builder.len() < 12 << 20 {
            builder.text().extend_from_slice(&[b' '; 10_000]);
            builder.make_room();
            let (len, held) = (builder.len(), builder.held());
            assert!(len < 2 << 20 || held <= len + len / 4, "{held} for {len}");
        }
    }

    #[test]
    fn spare_room_of_a_long_text_is_given_back() {
        let memory = plenty();
        let meter = Meter::new(memory.account(address(1)));
        let mut text = Vec::with_capacity(8 << 20);
        text.resize(5 << 20, b' ');
        let mut body = ResponseBody::from(text);
        assert!(body.fits(&meter));
        body.keep(meter.into_reservation());
        body.end_line();
        let used = memory.used();
        assert!(body.held() <= used && used < 6 << 20, "{used} for {}", body.held());
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
        assert_eq!(outer.finish().unwrap().into_bytes(), b"{[1]}");
    }

    /// The begin of an answer goes if its call is left to another server after all.
    #[test]
    fn text_before_a_mark_can_be_taken_away_behind_the_cut() {
        let mut builder = BodyBuilder::default();
        builder.text().extend_from_slice(b"[");
        let start = builder.text().len();
        builder.text().extend_from_slice(b"begin");
        let mark = builder.mark();
        builder.text().extend_from_slice(b"[");
        builder.push(1, BodySlice::Shared(Bytes::from_static(b"1")));
        builder.back_to(mark);
        assert_eq!(builder.len(), 6);
        builder.text().truncate(start);
        builder.text().extend_from_slice(b"]");
        assert_eq!(builder.len(), 2);
        assert_eq!(builder.finish().unwrap().into_bytes(), b"[]");
    }
}
