//! Collects the bytes of a response.

use neve_record::coding::Coding;
use neve_record::precompressed;
use neve_store::residency::Cold;
use neve_store::{RecordRef, SegmentSlice};

use super::accept_encoding::AcceptEncoding;
use super::slice::{BodySlice, BodySlices, CodedPart};
use super::write_buf::WriteBuf;

/// Enough for what is written around a stored part.
const TEXT_ROOM: usize = 96;
/// Most answers are text, a stored part and text again.
const PIECES_ROOM: usize = 3;

/// Length from which a text grows by a quarter, and not to twice its length.
const LONG_TEXT: usize = 1 << 20;

/// An end that a body had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pieces: usize,
    text: usize,
    loose: usize,
    len: usize,
}

/// Collects a body. Text that follows text becomes one slice.
#[derive(Debug, Default)]
pub(crate) struct BodyBuilder {
    pub(super) pieces: BodySlices,
    pub(super) text: Vec<u8>,
    /// Place where the text begins that is no slice yet.
    loose: usize,
    /// Bytes of the slices.
    pub(super) len: usize,
    pub(super) accepts: AcceptEncoding,
}

impl BodyBuilder {
    /// A body of about so many answers, for a client that takes these codings.
    pub(crate) fn new(answers: usize, accepts: AcceptEncoding) -> Self {
        let pieces = Vec::with_capacity(answers * PIECES_ROOM);
        let text = Vec::with_capacity(answers * TEXT_ROOM);
        Self { pieces, text, accepts, ..Self::default() }
    }

    /// Text of the body, to append to. The caller may take away only the bytes that were appended since the
    /// last stored part.
    pub(crate) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Makes space for more text of a list, if its text is long: all of the space counts for the client.
    pub(crate) fn make_room(&mut self) {
        let (len, room) = (self.text.len(), self.text.capacity() - self.text.len());
        if len >= LONG_TEXT && room < len / 16 {
            self.text.reserve_exact(len / 4);
        }
    }

    /// Appends stored bytes, which are sent from where they lie.
    pub(crate) fn stored(&mut self, slice: SegmentSlice) -> Result<(), Cold> {
        if slice.is_unpacked() {
            // A copy is counted by the budget of clients, and does not keep the whole height in memory.
            self.text.extend_from_slice(slice.as_ref());
        } else if !slice.is_empty() {
            slice.probe_to_send()?;
            self.push(slice.len(), BodySlice::Stored(slice));
        }
        Ok(())
    }

    /// Another element of a list of slices. Those that lie behind one another become one slice:
    /// lists of logs have tens of thousands of them.
    pub(crate) fn next_stored(&mut self, slice: SegmentSlice) -> Result<(), Cold> {
        // Text since the last slice would stand between the two: only neighbors are joined.
        if self.loose == self.text.len()
            && let Some(BodySlice::Stored(last)) = self.pieces.last_mut()
            && last.join(b',', &slice)
        {
            self.len += 1 + slice.len();
            Ok(())
        } else {
            self.text.push(b',');
            self.stored(slice)
        }
    }

    /// A whole part of a record, in a content coding if there is one that the client takes.
    pub(crate) fn part(
        &mut self,
        record: &RecordRef,
        which: usize,
        plain: SegmentSlice,
    ) -> Result<(), Cold> {
        if !self.accepts.any() {
            return self.stored(plain); // nearly always
        }
        for coding in Coding::ALL.into_iter().filter(|coding| self.accepts.takes(*coding)) {
            if let Some(packed) = precompressed::find(record, which, coding)? {
                packed.blocks.probe()?;
                let len = plain.len();
                let part = CodedPart::new(plain, coding, packed);
                self.push(len, BodySlice::CodedPart(Box::new(part)));
                return Ok(());
            }
        }
        self.stored(plain)
    }

    /// Returns the end of the body, to which [`Self::back_to`] can cut it. It makes no slice: the caller may still
    /// take away the text before it.
    pub(crate) fn mark(&self) -> Mark {
        let Self { loose, len, .. } = *self;
        Mark { pieces: self.pieces.len(), text: self.text.len(), loose, len }
    }

    /// Takes away all that was appended since the mark.
    pub(crate) fn back_to(&mut self, mark: Mark) {
        self.pieces.truncate(mark.pieces);
        self.text.truncate(mark.text);
        (self.loose, self.len) = (mark.loose, mark.len);
    }

    /// Appends all of another body.
    pub(crate) fn append(&mut self, mut other: Self) {
        // Own text that is no slice yet becomes one, or it would come behind the other's slices.
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

    pub(super) fn push(&mut self, len: usize, piece: BodySlice) {
        self.flush();
        self.len += len;
        self.pieces.push(piece);
    }

    pub(super) fn flush(&mut self) {
        if self.loose < self.text.len() {
            let range = self.loose..self.text.len();
            self.len += range.len();
            self.loose = range.end;
            self.pieces.push(BodySlice::Text(range));
        }
    }

    /// The slices, and the text that some of them are of.
    pub(crate) fn into_pieces(mut self) -> (BodySlices, Vec<u8>) {
        self.flush();
        (self.pieces, self.text)
    }

    /// All of it in one frame.
    pub(super) fn into_buf(mut self) -> WriteBuf {
        self.flush();
        let (pieces, text) = (self.pieces, self.text);
        WriteBuf::new(pieces, text, self.len)
    }
}
