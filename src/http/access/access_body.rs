//! A response, and its body, whose end is that of the entry.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body, Frame, SizeHint};

use super::entry::AccessEntry;
use crate::http::response::{HttpBody, Streamed};

/// Returns the id of a request with its response, and has the entry end with the body.
pub(crate) fn answer(
    entry: &Arc<AccessEntry>,
    mut response: Response<HttpBody>,
) -> Response<HttpBody> {
    entry.answers(&mut response);
    // No line waits for the end of the body then, and hyper gets the slices without a box around
    // them.
    if !entry.is_logged() {
        return response;
    }
    response.map(|body| {
        let body = AccessBody { body, entry: Arc::clone(entry), sent: 0 };
        HttpBody::Streamed(Streamed(Box::pin(body)))
    })
}

/// A body, and the entry that counts its bytes.
struct AccessBody {
    body: HttpBody,
    entry: Arc<AccessEntry>,
    sent: u64,
}

impl Drop for AccessBody {
    fn drop(&mut self) {
        // hyper drops a body at its end, and also when the client has gone.
        self.entry.ends(self.sent, self.body.is_end_stream());
    }
}

impl Body for AccessBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let polled = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &polled {
            self.sent += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
