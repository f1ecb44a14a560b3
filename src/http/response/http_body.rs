//! The body of any answer: made whole, or coming in chunks from a task of its own.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::copied_body::CopiedBody;
use crate::body::ResponseBody;
use crate::shared::{ClientAddress, MemoryBudget, ThreadCounters};

/// Body of a response on the full path.
#[derive(Debug)]
pub(crate) enum HttpBody {
    /// A response whose length is known, as nearly all are.
    Whole(CopiedBody),
    /// A stream of files or records for mirrors.
    Stream(StreamBody),
    /// From an upstream, or another body that is wrapped for the access log or for HTTP/2.
    Streamed(Streamed),
}

/// A body that comes from elsewhere. After an error the connection is cut.
pub(crate) struct Streamed(pub(crate) Pin<Box<dyn Body<Data = Bytes, Error = io::Error> + Send>>);

impl fmt::Debug for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streamed")
    }
}

/// A body that comes in chunks.
#[derive(Debug)]
pub(crate) struct StreamBody {
    pub(crate) pieces: mpsc::Receiver<Bytes>,
    /// Bytes still to come, if that is known. If fewer come, the connection is cut, so that the client
    /// does not take a part for the whole.
    pub(crate) left: Option<u64>,
}

impl HttpBody {
    /// Counts the bytes that are sent of a body, and names the client whose memory the rest of it counts
    /// as.
    pub(crate) fn charge(
        &mut self,
        counters: &Arc<ThreadCounters>,
        memory: &Arc<MemoryBudget>,
        address: ClientAddress,
    ) {
        // The others bound their own memory: a mirror's chunk by chunk, a relayed one by its
        // reservation.
        if let Self::Whole(body) = self {
            body.count(counters);
            body.charge(memory, address);
        }
    }
}

/// A response that is made whole.
pub(crate) fn whole(response: Response<ResponseBody>) -> Response<HttpBody> {
    response.map(|body| HttpBody::Whole(CopiedBody::new(body)))
}

impl StreamBody {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let piece = std::task::ready!(self.pieces.poll_recv(context));
        if let (Some(left), Some(piece)) = (&mut self.left, &piece) {
            *left = left.saturating_sub(piece.len() as u64);
        }
        Poll::Ready(piece)
    }
}

impl Body for HttpBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = match self.get_mut() {
            Self::Whole(body) => body.poll(context),
            Self::Stream(body) => body.poll(context),
            Self::Streamed(body) => return body.0.as_mut().poll_frame(context),
        };
        piece.map(|piece| Some(Ok(Frame::data(piece?))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.len() == 0,
            Self::Stream(body) => body.left == Some(0),
            Self::Streamed(body) => body.0.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => SizeHint::with_exact(body.len() as u64),
            Self::Stream(body) => body.left.map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Streamed(body) => body.0.size_hint(),
        }
    }
}
