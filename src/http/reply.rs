//! A reply's bytes on their way out: a chain of buffers that hyper hands to one `writev`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, SizeHint};
use neve_store::{RecordRef, SegmentSlice};

use super::encoded::{self, Accepts, Part};
use crate::packed::{self, Coding};

/// A piece of a body.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// Written for this reply.
    Text(Bytes),
    /// Bytes of a mapped segment, which stays mapped until they are sent.
    Stored(SegmentSlice),
    /// The same, which is there in a content coding too.
    Part(Box<Part>),
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Stored(slice) => slice.as_ref(),
            Self::Part(part) => part.plain.as_ref(),
        }
    }
}

/// Collects a body. Text that follows text becomes one chunk.
#[derive(Default)]
pub(crate) struct Builder {
    chunks: VecDeque<Chunk>,
    text: Vec<u8>,
    len: usize,
    accepts: Accepts,
}

impl Builder {
    /// A body for a client that takes these codings.
    pub(crate) fn new(accepts: Accepts) -> Self {
        Self { accepts, ..Self::default() }
    }

    /// Room for text; what is appended to it is part of the body.
    pub(crate) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    pub(crate) fn stored(&mut self, slice: SegmentSlice) {
        if slice.is_empty() {
            return;
        }
        self.flush();
        self.len += slice.len();
        self.chunks.push_back(Chunk::Stored(slice));
    }

    /// A whole part of a record, in a content coding if there is one that the client takes.
    pub(crate) fn part(&mut self, record: &RecordRef, which: usize, plain: SegmentSlice) {
        let coding = Coding::ALL.into_iter().find_map(|coding| {
            if !self.accepts.takes(coding) {
                return None;
            }
            Some((coding, packed::find(record, which, coding)?))
        });
        match coding {
            Some((coding, packed)) => {
                self.flush();
                self.len += plain.len();
                self.chunks.push_back(Chunk::Part(Box::new(Part::new(plain, coding, packed))));
            }
            None => self.stored(plain), // nearly always
        }
    }

    /// Appends all of another body.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.flush();
        other.flush();
        self.len += other.len;
        self.chunks.append(&mut other.chunks);
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.len + self.text.len()
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            let text = Bytes::from(std::mem::take(&mut self.text));
            self.len += text.len();
            self.chunks.push_back(Chunk::Text(text));
        }
    }

    pub(crate) fn finish(mut self) -> ReplyBody {
        self.flush();
        let coding =
            if self.accepts.any() { encoded::coding(&self.chunks, self.len) } else { None };
        let Some(coding) = coding else {
            let buf = ReplyBuf { chunks: self.chunks, at: 0, remaining: self.len };
            return ReplyBody { buf: Some(buf), coding: None };
        };
        let chunks = encoded::encode(self.chunks, coding);
        let remaining = chunks.iter().map(|chunk| chunk.as_ref().len()).sum();
        ReplyBody { buf: Some(ReplyBuf { chunks, at: 0, remaining }), coding: Some(coding) }
    }
}

/// A body that comes in one frame.
#[derive(Debug, Default)]
pub(crate) struct ReplyBody {
    buf: Option<ReplyBuf>,
    coding: Option<Coding>,
}

impl From<Bytes> for ReplyBody {
    fn from(text: Bytes) -> Self {
        let remaining = text.len();
        let buf = ReplyBuf { chunks: VecDeque::from([Chunk::Text(text)]), at: 0, remaining };
        Self { buf: Some(buf), coding: None }
    }
}

impl ReplyBody {
    /// The content coding that it is in, if any.
    pub(crate) fn coding(&self) -> Option<Coding> {
        self.coding
    }

    /// The whole body in one piece.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        let chunks = self.buf.into_iter().flat_map(|buf| buf.chunks);
        chunks.for_each(|chunk| bytes.extend_from_slice(chunk.as_ref()));
        bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.buf.as_ref().map_or(0, |buf| buf.remaining)
    }
}

impl Body for ReplyBody {
    type Data = ReplyBuf;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ReplyBuf>, Infallible>>> {
        Poll::Ready(self.buf.take().filter(ReplyBuf::has_remaining).map(|buf| Ok(Frame::data(buf))))
    }

    fn is_end_stream(&self) -> bool {
        self.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

/// The chunks that are not sent yet.
#[derive(Debug)]
pub(crate) struct ReplyBuf {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are sent.
    at: usize,
    remaining: usize,
}

impl Buf for ReplyBuf {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |chunk| &chunk.as_ref()[self.at..])
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut at = self.at;
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(&chunk.as_ref()[at..]);
            (at, count) = (0, count + 1);
        }
        count
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
            self.at = 0;
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buf(parts: &[&'static str]) -> ReplyBuf {
        let chunks = parts.iter().map(|part| Chunk::Text(Bytes::from_static(part.as_bytes())));
        let remaining = parts.iter().map(|part| part.len()).sum();
        ReplyBuf { chunks: chunks.collect(), at: 0, remaining }
    }

    #[test]
    fn any_way_of_sending_gives_the_same_bytes() {
        for step in 1..9 {
            let mut buf = buf(&["ab", "c", "defgh"]);
            let mut sent = Vec::new();
            while buf.has_remaining() {
                let step = step.min(buf.remaining());
                let mut slices = [IoSlice::new(&[]); 3];
                let count = buf.chunks_vectored(&mut slices);
                let all: Vec<u8> =
                    slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                sent.extend_from_slice(&all[..step]);
                buf.advance(step);
            }
            assert_eq!(sent, b"abcdefgh", "in steps of {step}");
        }
    }

    #[test]
    fn fewer_slices_than_chunks_are_filled_from_the_front() {
        let buf = buf(&["ab", "c", "d"]);
        let mut slices = [IoSlice::new(&[]); 2];
        assert_eq!(buf.chunks_vectored(&mut slices), 2);
        assert_eq!((&*slices[0], &*slices[1]), (&b"ab"[..], &b"c"[..]));
    }
}
