//! A part of a body that is sent at once: a chain of buffers for one vectored write.

use std::io::IoSlice;
use std::mem;
use std::ops::Range;

use bytes::Buf;
use neve_store::SegmentSlice;
use neve_store::residency::Cold;

use super::slice::{BodySlice, BodySlices};

/// The slices that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct WriteBuf {
    pieces: BodySlices,
    text: Vec<u8>,
    /// The first slice that is not sent.
    next: usize,
    /// Bytes of it that are sent.
    at: usize,
    remaining: usize,
}

impl WriteBuf {
    /// Slices of `remaining` bytes, and the text that some of them are of.
    pub(super) fn new(pieces: BodySlices, text: Vec<u8>, remaining: usize) -> Self {
        Self { pieces, text, next: 0, at: 0, remaining }
    }

    /// Appends to `out` the text that it begins with, if that is at most `max` bytes.
    pub(crate) fn give_text(&mut self, out: &mut Vec<u8>, max: usize) {
        if let Some(BodySlice::Text(range)) = self.pieces.get(self.next)
            // The whole range is given: a part that was sent would go out twice.
            && self.at == 0
            && range.len() <= max
        {
            out.extend_from_slice(&self.text[range.clone()]);
            (self.next, self.remaining) = (self.next + 1, self.remaining - range.len());
        }
    }

    /// Looks at the stored ones among the next so many bytes.
    pub(crate) fn probe(&self, bytes_max: usize) -> Result<(), Cold> {
        self.stored_next(bytes_max).try_for_each(|(slice, range)| slice.probe_in(range))
    }

    /// Copies the next bytes into `room`, and returns their number, if all of them are in memory. Stored bytes
    /// are not touched while [`memory_is_short`](neve_store::residency::memory_is_short).
    pub(crate) fn copy(&self, room: &mut [u8]) -> Result<usize, Cold> {
        let mut copied = 0;
        for (piece, range) in self.ahead(room.len()) {
            let into = &mut room[copied..copied + range.len()];
            copied += range.len();
            let Some(slice) = piece.stored() else {
                into.copy_from_slice(&piece.bytes(&self.text)[range]);
                continue;
            };
            // Cold fails the whole copy: bytes are sent in order, so a gap is of no use.
            slice.copy_in(range, into)?;
        }
        Ok(copied)
    }

    /// Waits until they are in memory.
    pub(crate) fn load(&self, bytes_max: usize) {
        self.stored_next(bytes_max).for_each(|(slice, range)| slice.load_in(range));
    }

    /// Stored slices among the next so many bytes.
    fn stored_next(&self, bytes_max: usize) -> impl Iterator<Item = (&SegmentSlice, Range<usize>)> {
        self.ahead(bytes_max).filter_map(|(piece, range)| Some((piece.stored()?, range)))
    }

    /// The next so many bytes, to be sent.
    pub(crate) fn slices(&self, bytes_max: usize) -> impl Iterator<Item = IoSlice<'_>> {
        let next = self.ahead(bytes_max);
        next.map(|(piece, range)| IoSlice::new(&piece.bytes(&self.text)[range]))
    }

    /// The next so many bytes as slices, with the range in each.
    fn ahead(&self, bytes_max: usize) -> impl Iterator<Item = (&BodySlice, Range<usize>)> {
        let (mut from, mut left) = (self.at, bytes_max);
        self.pieces[self.next..].iter().map_while(move |piece| {
            if left == 0 {
                return None;
            }
            let len = piece.bytes(&self.text).len().min(from.saturating_add(left));
            // Only the first slice may be sent in part.
            let range = mem::take(&mut from)..len;
            left -= range.len();
            Some((piece, range))
        })
    }

    /// Bytes that it takes in memory, without those that are stored or shared.
    pub(crate) fn held(&self) -> usize {
        self.text.capacity() + self.pieces.capacity() * size_of::<BodySlice>()
    }

    /// Slices that are not sent whole.
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
