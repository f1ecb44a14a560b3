//! Body of an upstream's response, of which the begin has been read.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming, SizeHint};

use super::failure::Failure;

/// Bytes of a response that is read whole before it goes on: all errors of nodes are shorter.
pub(super) const SHORT_BYTES: usize = 16 << 10;

/// A body of which the begin has been read.
pub(super) struct Begun {
    begin: Bytes,
    rest: Option<Incoming>,
}

impl Begun {
    /// A body that was read whole.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self { begin: bytes, rest: None }
    }

    /// Reads a short body whole. Of a long one nothing is read if its length is declared, else as
    /// much as a short one has.
    pub(super) async fn read(mut body: Incoming) -> Result<Self, Failure> {
        if body.size_hint().exact().is_some_and(|len| len > SHORT_BYTES as u64) {
            return Ok(Self { begin: Bytes::new(), rest: Some(body) });
        }
        let (mut first, mut all) = (Bytes::new(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Failure::Unreachable)?;
            let Ok(data) = frame.into_data() else { continue }; // trailers are not relayed
            if first.is_empty() {
                first = data; // nearly always all
            } else {
                if all.is_empty() {
                    all.extend_from_slice(&first);
                }
                all.extend_from_slice(&data);
            }
            if first.len().max(all.len()) > SHORT_BYTES {
                let begin = if all.is_empty() { first } else { all.freeze() };
                return Ok(Self { begin, rest: Some(body) });
            }
        }
        Ok(Self::whole(if all.is_empty() { first } else { all.freeze() }))
    }

    /// The body, if it is short.
    pub(super) fn short(&self) -> Option<&Bytes> {
        self.rest.is_none().then_some(&self.begin)
    }

    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        if !self.begin.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.begin))));
        }
        loop {
            let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
            match ready!(Pin::new(rest).poll_frame(context)) {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    return Poll::Ready(Some(Ok(data)));
                }
                Some(Err(_)) => return Poll::Ready(Some(Err(Failure::Unreachable))),
                None => return Poll::Ready(None),
            }
        }
    }

    pub(super) fn is_end(&self) -> bool {
        self.begin.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let Some(rest) = &self.rest else { return SizeHint::with_exact(self.begin.len() as u64) };
        let (mut all, hint) = (SizeHint::new(), rest.size_hint());
        let read = self.begin.len() as u64;
        all.set_lower(hint.lower() + read);
        hint.upper().into_iter().for_each(|upper| all.set_upper(upper + read));
        all
    }
}
