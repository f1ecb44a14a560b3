//! The body of any answer: made whole, or coming in pieces from a task of its own.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::copied::Copied;

/// A body.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// Nearly always.
    Whole(Copied),
    /// For mirrors.
    Pieces(Pieces),
}

/// A body that comes in pieces.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(super) pieces: mpsc::Receiver<Bytes>,
    /// Bytes still to come, if that is known. Should fewer come, the connection is cut, so that
    /// nobody takes a part for the whole.
    pub(super) left: Option<u64>,
}

impl Outgoing {
    /// Bytes that are known to be sent.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Whole(body) => body.len(),
            Self::Pieces(_) => 0, // counted as they come
        }
    }
}

impl Pieces {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let piece = std::task::ready!(self.pieces.poll_recv(context));
        if let (Some(left), Some(piece)) = (&mut self.left, &piece) {
            *left = left.saturating_sub(piece.len() as u64);
        }
        Poll::Ready(piece)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.get_mut() {
            Self::Whole(body) => body.poll(context),
            Self::Pieces(body) => body.poll(context),
        };
        piece.map(|piece| Some(Ok(Frame::data(piece?))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.len() == 0,
            Self::Pieces(body) => body.left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => SizeHint::with_exact(body.len() as u64),
            Self::Pieces(body) => body.left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
