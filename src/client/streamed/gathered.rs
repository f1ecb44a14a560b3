//! A stream that sends short messages as one slice.
//!
//! `writev` goes through the kernel's generic file code (docs/decisions/0025). To copy the head and the body of a
//! call beside each other costs less.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};

/// Bytes of a message that is copied. Nearly all calls are shorter, with the head of their request.
const GATHERED_BYTES: usize = 1 << 10;

/// A stream that sends slices of at most [`GATHERED_BYTES`] together as one.
pub(super) struct Gathered<S>(pub(super) S);

impl<S: Read + Unpin> Read for Gathered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buf)
    }
}

impl<S: Write + Unpin> Write for Gathered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        let stream = Pin::new(&mut self.0);
        if len > GATHERED_BYTES {
            return stream.poll_write_vectored(context, bufs);
        }
        let mut all = [0; GATHERED_BYTES];
        let mut rest = &mut all[..];
        for buf in bufs {
            let (place, after) = rest.split_at_mut(buf.len());
            place.copy_from_slice(buf);
            rest = after;
        }
        stream.poll_write(context, &all[..len])
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Bytes of each write, and true if it had several slices.
    #[derive(Default)]
    struct Writes(Vec<(usize, bool)>);

    impl Write for Writes {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            let is_long = buf.len() == GATHERED_BYTES;
            assert!(
                is_long || buf.iter().zip(0u8..).all(|(byte, at)| *byte == at),
                "in their order"
            );
            self.0.push((buf.len(), false));
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let len = bufs.iter().map(|buf| buf.len()).sum();
            self.0.push((len, true));
            Poll::Ready(Ok(len))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn short_slices_are_sent_as_one_and_long_ones_as_they_are() {
        let mut stream = Gathered(Writes::default());
        let mut context = Context::from_waker(Waker::noop());
        let long = [0; GATHERED_BYTES];
        let most = &long[1..];
        for slices in [&[&[0, 1][..], &[], &[2, 3, 4]][..], &[most, &[0]], &[&long, &[1]], &[]] {
            let slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
            let len: usize = slices.iter().map(|slice| slice.len()).sum();
            let written = Pin::new(&mut stream).poll_write_vectored(&mut context, &slices);
            assert!(matches!(written, Poll::Ready(Ok(all)) if all == len));
        }
        let [at, over] = [(GATHERED_BYTES, false), (GATHERED_BYTES + 1, true)];
        assert_eq!(stream.0.0, [(5, false), at, over, (0, false)]);
    }
}
