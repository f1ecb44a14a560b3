//! A body on its way out through hyper: copied, piece by piece, as it is sent.
//!
//! hyper keeps what a socket does not take for as long as its client likes, and touches it then: what is
//! stored may have left memory by that time, and the thread would wait for the disk. So it gets copies.
//! What is not in memory when its turn comes is copied on a thread that may wait.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use neve_store::residency;
use tokio::task::{JoinHandle, spawn_blocking};

use super::reply::{ReplyBody, ReplyBuf};

/// What is copied at once; hyper keeps that, and as much as it takes for a head besides.
const WINDOW: usize = 64 << 10;
/// What is asked for when some of it has to be waited for.
const ASKED: usize = 1 << 20;

/// A body.
#[derive(Debug)]
pub(crate) struct Copied {
    /// Bytes that hyper did not get.
    left: usize,
    rest: Rest,
}

/// Where what is left of it is.
#[derive(Debug)]
enum Rest {
    Here(Box<Uncopied>),
    /// On a thread that may wait for the disk.
    Away(JoinHandle<(Box<Uncopied>, Bytes)>),
    /// Nowhere: that thread could not.
    Nowhere,
}

impl Copied {
    pub(super) fn new(body: ReplyBody) -> Self {
        let (left, frame) = (body.len(), ReplyBuf::default());
        Self { left, rest: Rest::Here(Box::new(Uncopied { frame, body })) }
    }

    /// Bytes that are left of it.
    pub(crate) fn len(&self) -> usize {
        self.left
    }

    /// The next copy; none at the end. Should it come before that, the connection is cut.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if let Rest::Here(uncopied) = &mut self.rest
            && let Some(bytes) = uncopied.copy()
        {
            return self.give(bytes);
        }
        self.rest = match std::mem::replace(&mut self.rest, Rest::Nowhere) {
            Rest::Here(uncopied) => Rest::Away(spawn_blocking(|| uncopied.copy_loading())),
            rest => rest,
        };
        let Rest::Away(away) = &mut self.rest else { return Poll::Ready(None) };
        let Ok((uncopied, bytes)) = ready!(Pin::new(away).poll(context)) else {
            self.rest = Rest::Nowhere; // the pool takes nothing more when the server is about to end
            return Poll::Ready(None);
        };
        self.rest = Rest::Here(uncopied);
        self.give(bytes)
    }

    fn give(&mut self, bytes: Bytes) -> Poll<Option<Bytes>> {
        self.left -= bytes.len();
        Poll::Ready(Some(bytes))
    }
}

/// What is not copied yet.
#[derive(Debug)]
struct Uncopied {
    frame: ReplyBuf,
    /// What comes behind the frame.
    body: ReplyBody,
}

impl Uncopied {
    /// Copies what comes next, unless some of it is not in memory.
    fn copy(&mut self) -> Option<Bytes> {
        if !self.frame.has_remaining() {
            let body = &self.body;
            residency::if_resident(|| body.look())?;
            self.frame = self.body.frame();
        }
        let (frame, mut room) = (&self.frame, vec![0; self.frame.remaining().min(WINDOW)]);
        let copied = residency::if_sendable(|| frame.copy(&mut room)).flatten()?;
        self.frame.advance(copied);
        Some(room.into())
    }

    /// The same on a thread that may wait for the disk.
    fn copy_loading(mut self: Box<Self>) -> (Box<Self>, Bytes) {
        let bytes = residency::loading(|| {
            if !self.frame.has_remaining() {
                self.frame = self.body.frame();
            }
            self.frame.look(ASKED);
            self.frame.copy_to_bytes(self.frame.remaining().min(WINDOW))
        });
        (self, bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::super::out::tests::{LONG, cold_body, have_pages_go};
    use super::super::reply::Builder;
    use super::*;

    /// All that comes, and how often it had to be waited for.
    async fn collect(mut copied: Copied) -> (Vec<u8>, usize) {
        let (mut all, mut waited) = (Vec::new(), 0);
        let next = |copied: &mut Copied, waited: &mut usize, context: &mut Context<'_>| {
            let polled = copied.poll(context);
            *waited += usize::from(polled.is_pending());
            polled
        };
        while let Some(bytes) = poll_fn(|context| next(&mut copied, &mut waited, context)).await {
            assert!(!bytes.is_empty() && bytes.len() <= WINDOW);
            all.extend_from_slice(&bytes);
        }
        assert_eq!(copied.len(), 0);
        (all, waited)
    }

    #[tokio::test]
    async fn what_is_not_in_memory_is_waited_for_elsewhere() {
        let (body, slices, bytes) = cold_body(LONG);
        let (all, waited) = collect(Copied::new(body)).await;
        assert!(all == bytes, "{} bytes of {}", all.len(), bytes.len());
        assert!(waited > 0, "it was all in memory");
        let mut again = Builder::default();
        slices.into_iter().for_each(|slice| again.stored(slice));
        let (all, waited) = collect(Copied::new(again.finish())).await;
        assert!(all == bytes && waited == 0);
    }

    #[tokio::test]
    async fn so_is_it_while_pages_go() {
        have_pages_go();
        let (body, _slices, bytes) = cold_body(LONG);
        let (all, waited) = collect(Copied::new(body)).await;
        assert!(all == bytes && waited > 0, "{} bytes of {}", all.len(), bytes.len());
    }

    #[tokio::test]
    async fn a_body_of_nothing_ends_at_once() {
        let (all, waited) = collect(Copied::new(Builder::default().finish())).await;
        assert!(all.is_empty() && waited == 0);
    }
}
