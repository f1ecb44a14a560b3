//! A body on its way out through hyper: copied, chunk by chunk, as it is sent.
//!
//! hyper keeps the bytes that a socket does not take, as long as the client does not read, and touches them
//! later. Stored bytes may have left memory by then, and the thread would wait for the disk. So hyper gets
//! copies. Bytes that are not in memory at their turn are copied on a thread that may wait.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use neve_store::residency::{self, Cold, ReadFailed};
use tokio::task::JoinHandle;

use super::disk_thread::on_disk_thread;
use crate::body::{ResponseBody, WriteBuf};
use crate::shared::{ClientAddress, FREE_BYTES, MemoryBudget, ThreadCounters, add};

/// Bytes that are copied at once; hyper keeps them, and as much as it takes for a head besides.
const WINDOW: usize = 64 << 10;
/// Bytes that are requested from the disk at once.
const ASKED: usize = 1 << 20;

/// Body that is copied chunk by chunk as hyper sends it.
#[derive(Debug)]
pub(crate) struct CopiedBody {
    /// Bytes that hyper did not get.
    left: usize,
    /// Counts what hyper gets.
    counters: Option<Arc<ThreadCounters>>,
    /// Client that gets it, if it is long.
    client: Option<(Arc<MemoryBudget>, ClientAddress)>,
    rest: Rest,
}

/// State of the bytes that are not copied yet.
#[derive(Debug)]
enum Rest {
    Here(Box<Uncopied>),
    /// On a thread that may wait for the disk.
    Away(JoinHandle<Result<(Box<Uncopied>, Bytes), ReadFailed>>),
    /// Nowhere: that thread could not.
    Nowhere,
}

impl CopiedBody {
    pub(crate) fn new(body: ResponseBody) -> Self {
        let (left, frame) = (body.len(), WriteBuf::default());
        Self {
            left,
            counters: None,
            client: None,
            rest: Rest::Here(Box::new(Uncopied { frame, body })),
        }
    }

    /// Counts the bytes that hyper gets: of a response that is dropped or has no body it gets none.
    pub(crate) fn count(&mut self, counters: &Arc<ThreadCounters>) {
        self.counters = Some(Arc::clone(counters));
    }

    /// Names the client whose memory the rest of the body counts as.
    pub(crate) fn charge(&mut self, memory: &Arc<MemoryBudget>, address: ClientAddress) {
        // Otherwise the rest fits into one copy, which each connection may have.
        if self.left > WINDOW {
            self.client = Some((Arc::clone(memory), address));
        }
    }

    /// True if there is memory for the rest of the body.
    fn fits(&mut self) -> bool {
        let (Some((memory, address)), Rest::Here(uncopied)) = (&self.client, &mut self.rest) else {
            return true;
        };
        let held = uncopied.frame.held() + uncopied.body.held();
        held <= FREE_BYTES || uncopied.body.reserve(memory.account(*address), held)
    }

    /// Bytes that are left of it.
    pub(crate) fn len(&self) -> usize {
        self.left
    }

    /// The next copy; none at the end. Should it come before that, the connection is cut.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if let Rest::Here(uncopied) = &mut self.rest
            && let Ok(bytes) = uncopied.copy()
        {
            return self.give(bytes);
        }
        self.rest = match std::mem::replace(&mut self.rest, Rest::Nowhere) {
            Rest::Here(uncopied) => Rest::Away(on_disk_thread(|| uncopied.copy_loading())),
            rest => rest,
        };
        let Rest::Away(away) = &mut self.rest else { return Poll::Ready(None) };
        let Ok(Ok((uncopied, bytes))) = ready!(Pin::new(away).poll(context)) else {
            // The disk failed, or the pool takes nothing more because the server is about to end.
            self.rest = Rest::Nowhere;
            return Poll::Ready(None);
        };
        self.rest = Rest::Here(uncopied);
        self.give(bytes)
    }

    fn give(&mut self, bytes: Bytes) -> Poll<Option<Bytes>> {
        self.left -= bytes.len();
        if let Some(counters) = &self.counters {
            add(&counters.bytes, bytes.len() as u64);
        }
        if self.left > 0 && !self.fits() {
            // The next poll then ends too early, and hyper cuts the connection.
            self.rest = Rest::Nowhere;
        }
        Poll::Ready(Some(bytes))
    }
}

/// Bytes that are not copied yet.
#[derive(Debug)]
struct Uncopied {
    frame: WriteBuf,
    /// Body behind the frame.
    body: ResponseBody,
}

impl Uncopied {
    /// Copies the next bytes, unless some of them are not in memory.
    fn copy(&mut self) -> Result<Bytes, Cold> {
        if !self.frame.has_remaining() {
            self.frame = self.body.next_write_if_resident()?;
        }
        let (frame, mut room) = (&self.frame, vec![0; self.frame.remaining().min(WINDOW)]);
        let copied = residency::if_sendable(|| frame.copy(&mut room))?;
        self.frame.advance(copied);
        Ok(room.into())
    }

    /// Does this on a thread that may wait for the disk.
    fn copy_loading(mut self: Box<Self>) -> Result<(Box<Self>, Bytes), ReadFailed> {
        if !self.frame.has_remaining() {
            self.frame = self.body.next_write_loading()?;
        }
        residency::loading(|| self.frame.probe(ASKED))?;
        let bytes = self.frame.copy_to_bytes(self.frame.remaining().min(WINDOW));
        Ok((self, bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::body::BodyBuilder;
    use crate::http::response::writer::tests::{LONG, cold_body, make_memory_short};

    /// All that comes, and how often it had to be waited for.
    async fn collect(mut copied: CopiedBody) -> (Vec<u8>, usize) {
        let (mut all, mut waited) = (Vec::new(), 0);
        let next = |copied: &mut CopiedBody, waited: &mut usize, context: &mut Context<'_>| {
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
    async fn cold_slices_are_read_on_a_blocking_thread() {
        let (body, slices, bytes) = cold_body(LONG);
        let (all, waited) = collect(CopiedBody::new(body)).await;
        assert!(all == bytes, "{} bytes of {}", all.len(), bytes.len());
        assert!(waited > 0, "it was all in memory");
        let mut again = BodyBuilder::default();
        slices.into_iter().for_each(|slice| again.stored(slice).unwrap());
        let (all, waited) = collect(CopiedBody::new(again.finish().unwrap())).await;
        assert!(all == bytes && waited == 0);
    }

    #[tokio::test]
    async fn cold_slices_are_read_on_a_blocking_thread_while_memory_is_short() {
        make_memory_short();
        let (body, _slices, bytes) = cold_body(LONG);
        let (all, waited) = collect(CopiedBody::new(body)).await;
        assert!(all == bytes && waited > 0, "{} bytes of {}", all.len(), bytes.len());
    }

    #[tokio::test]
    async fn a_body_of_nothing_ends_at_once() {
        let (all, waited) = collect(CopiedBody::new(ResponseBody::default())).await;
        assert!(all.is_empty() && waited == 0);
    }
}
