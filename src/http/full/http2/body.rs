//! The body of a response over HTTP/2.
//!
//! hyper takes a piece whole as soon as the client's window takes a byte of it, and keeps it until the client
//! has taken all. So each piece holds its memory until hyper drops it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::send_memory::{FIRST_PIECE_BYTES, SendMemory, StreamPieces, Taken, piece_bytes};
use super::streams::{Http2Stream, OpenStream};
use crate::http::access::AccessEntry;
use crate::http::response::{HttpBody, Streamed};
use crate::shared::{ClientAddress, Reservation};

/// Bytes that hyper gets at once. The clock of a stream sees how the client takes them.
const PIECE: usize = 16 << 10;
/// Memory of a piece besides its bytes, in hyper's hands.
const PIECE_BYTES: usize = 512;

/// A stream that gets its response.
pub(super) struct Responding {
    pub(super) stream: Arc<Http2Stream>,
    pub(super) memory: Arc<SendMemory>,
    pub(super) address: ClientAddress,
    pub(super) open: OpenStream,
    pub(super) entry: Option<Arc<AccessEntry>>,
}

impl Responding {
    /// Wraps the body of the response. `first` is memory for its first piece; all of it ends with the body.
    pub(super) fn wrap(
        self,
        body: HttpBody,
        first: Taken,
        memory_of_stream: Option<Reservation>,
    ) -> HttpBody {
        let Self { stream, memory, address, open, entry } = self;
        // The clock starts here: hyper polls no body for which the client has no window.
        stream.sends();
        let may_wait = body.size_hint().upper().is_none_or(|len| len > u64::from(open.window()));
        let wrapped = Http2Body {
            body,
            rest: Bytes::new(),
            first: Some(first),
            besides: FIRST_PIECE_BYTES,
            ends_apart: may_wait,
            is_given: false,
            stream,
            pieces: StreamPieces::new(memory),
            address,
            entry,
            _memory_of_stream: memory_of_stream,
            _open: open,
        };
        HttpBody::Streamed(Streamed(Box::pin(wrapped)))
    }
}

/// The body of a stream's response.
struct Http2Body {
    body: HttpBody,
    /// Bytes that hyper gets next.
    rest: Bytes,
    /// Memory of the first piece.
    first: Option<Taken>,
    /// Memory of the next piece besides its bytes.
    besides: usize,
    /// True if the end goes out when the client has taken all before. hyper lets go of a stream with its end,
    /// and nothing can reset it from then on. A response that fits the client's first window always has space there.
    ends_apart: bool,
    /// True if hyper has all but the end.
    is_given: bool,
    stream: Arc<Http2Stream>,
    pieces: Arc<StreamPieces>,
    address: ClientAddress,
    entry: Option<Arc<AccessEntry>>,
    _memory_of_stream: Option<Reservation>,
    _open: OpenStream,
}

impl Http2Body {
    /// Takes memory for the next piece.
    fn poll_memory(&mut self, context: &Context<'_>) -> Poll<io::Result<Taken>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Ok(first));
        }
        let bytes = piece_bytes(&self.body) + self.besides;
        self.pieces.memory().poll_next(self.address, bytes, context)
    }

    /// Waits until the end may go out.
    fn poll_end(&mut self, context: &Context<'_>) -> Poll<()> {
        // A short body fits into the client's window whole, so its end cannot wait.
        if !self.ends_apart {
            return Poll::Ready(());
        }
        self.is_given = true;
        self.pieces.poll_taken(context)
    }

    /// Holds data for hyper with its memory, of which some is taken already.
    fn hold(&mut self, data: Bytes, mut taken: Taken) -> io::Result<()> {
        let bytes = data.len() + self.besides;
        if !taken.resize(bytes) {
            // A mirror's piece that is longer than usual: nothing else was promised.
            drop(taken);
            let again = self.pieces.memory().take(self.address, bytes);
            taken = again.ok_or(io::ErrorKind::QuotaExceeded)?;
        }
        self.besides = PIECE_BYTES;
        self.rest = self.pieces.hold(data, taken);
        Ok(())
    }

    /// Takes the next bytes of the body; returns what is no data.
    fn poll_body(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        while self.rest.is_empty() {
            if self.is_given || self.body.is_end_stream() {
                return self.poll_end(context).map(|()| None);
            }
            let taken = ready!(self.poll_memory(context))?;
            let polled = ready!(Pin::new(&mut self.body).poll_frame(context));
            match polled.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) if data.is_empty() => {}
                Some(Ok(data)) => self.hold(data, taken)?,
                Some(Err(frame)) => return Poll::Ready(Some(Ok(frame))),
                // hyper would send an end, and the client would take a part for the whole.
                None if self.body.size_hint().lower() > 0 => {
                    return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                None => return self.poll_end(context).map(|()| None),
            }
        }
        let len = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(len)))))
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = self.poll_body(context);
        if polled.is_ready() {
            self.stream.sends();
        } else {
            self.stream.waits(&self.pieces);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        // hyper sends the end with the last piece if it is told, so an end that goes apart is not
        // told.
        !self.ends_apart && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

impl Drop for Http2Body {
    fn drop(&mut self) {
        let is_left = self.ends_apart && self.pieces.are_held();
        self.entry.iter().filter(|_| is_left).for_each(|entry| entry.note_left());
        self.pieces.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::task::Waker;
    use std::time::Duration;

    use hyper::Response;
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::super::streams::OpenStreams;
    use super::*;
    use crate::body::ResponseBody;
    use crate::config::settings::Deadlines;
    use crate::http::response::{StreamBody, whole};
    use crate::shared::MemoryBudget;

    /// A response to a client.
    struct Sent {
        body: HttpBody,
        stream: Arc<Http2Stream>,
        /// Pieces that the client did not take.
        pieces: Vec<Bytes>,
        /// Times before and after it was made or last polled.
        polled: [Instant; 2],
    }

    impl Sent {
        /// A response of this length. Its client has the memory of its connection only.
        fn new(len: usize) -> Self {
            Self::of(response(len), &MemoryBudget::new(1, 1))
        }

        fn of(body: HttpBody, budget: &Arc<MemoryBudget>) -> Self {
            Self::on(&SendMemory::new(budget), body)
        }

        /// A response on a connection of this memory.
        fn on(memory: &Arc<SendMemory>, body: HttpBody) -> Self {
            let (begin, memory) = (Instant::now(), Arc::clone(memory));
            let (stream, streams) =
                (Http2Stream::new(Arc::clone(memory.line())), Arc::new(OpenStreams::default()));
            let address = ClientAddress::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let first = memory.take_first(address, &body).expect("enough for any first piece");
            let open = streams.open();
            let responding =
                Responding { stream: Arc::clone(&stream), memory, address, open, entry: None };
            let body = responding.wrap(body, first, None);
            Self { body, stream, pieces: Vec::new(), polled: [begin, Instant::now()] }
        }

        /// Polls until there is nothing more; true if that is the end.
        fn poll(&mut self) -> bool {
            let begin = Instant::now();
            let ends = self.take_pieces();
            self.polled = [begin, Instant::now()];
            ends
        }

        fn take_pieces(&mut self) -> bool {
            let mut context = Context::from_waker(Waker::noop());
            while let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(&mut context) {
                let Some(frame) = frame else { return true };
                self.pieces.extend(frame.expect("no error").into_data());
                if self.body.is_end_stream() {
                    return true;
                }
            }
            false
        }

        fn late_at(&self) -> Option<Instant> {
            let (idle, write) = (Duration::from_secs(100), Duration::from_secs(4));
            self.stream.late_at(Deadlines { idle, write })
        }

        /// True if the stream is late so many seconds after the last poll, however long that took.
        fn is_late_after(&self, seconds: u64) -> bool {
            let [first, last] = self.polled.map(|time| time + Duration::from_secs(seconds));
            self.late_at().is_some_and(|late| (first..=last).contains(&late))
        }
    }

    fn response(len: usize) -> HttpBody {
        whole(Response::new(ResponseBody::from(vec![7; len]))).into_body()
    }

    #[test]
    fn stream_that_waits_for_memory_is_late_if_its_own_piece_is_left() {
        let mut sent = Sent::new(200_000);
        assert!(sent.is_late_after(4));
        assert!(!sent.poll() && sent.pieces.len() == 4);
        assert!(sent.is_late_after(16));
        let late = sent.late_at();
        assert!(
            !sent.poll() && sent.late_at() == late,
            "another look does not set the clock again"
        );
        sent.pieces.clear();
        assert!(!sent.poll() && sent.pieces.len() == 4, "memory is back");
    }

    #[test]
    fn stream_that_waits_for_the_pieces_of_others_is_not_late() {
        let memory = SendMemory::new(&MemoryBudget::new(1, 1));
        let (sender, pieces) = mpsc::channel(1);
        let mut waiting = Sent::on(&memory, HttpBody::Stream(StreamBody { pieces, left: None }));
        sender.try_send(Bytes::from_static(b"x")).expect("one piece");
        assert!(!waiting.poll() && waiting.pieces.len() == 1);
        assert!(waiting.is_late_after(16), "the next part does not come, and this one stays");
        waiting.pieces.clear();
        assert_eq!(waiting.late_at(), None, "the client has taken all that there is");
        let mut other = Sent::on(&memory, response(60_000));
        assert!(other.poll());
        sender.try_send(Bytes::from_static(b"x")).expect("one piece");
        assert!(!waiting.poll() && waiting.late_at().is_none(), "memory is with the other");
        other.pieces.clear();
        assert!(!waiting.poll() && waiting.pieces.len() == 1, "memory is back");
    }

    #[test]
    fn response_that_breaks_off_is_an_error() {
        let (sender, pieces) = mpsc::channel(1);
        sender.try_send(Bytes::from_static(b"part")).expect("one piece");
        drop(sender);
        let body = HttpBody::Stream(StreamBody { pieces, left: Some(5) });
        let mut sent = Sent::of(body, &MemoryBudget::new(1, 1));
        let mut context = Context::from_waker(Waker::noop());
        let mut next = || Pin::new(&mut sent.body).poll_frame(&mut context);
        assert!(matches!(next(), Poll::Ready(Some(Ok(_)))));
        assert!(matches!(next(), Poll::Ready(Some(Err(_)))));
    }

    #[test]
    fn long_piece_of_a_mirror_is_counted_whole() {
        let (sender, pieces) = mpsc::channel(1);
        sender.try_send(Bytes::from(vec![7; 256 << 10])).expect("one piece");
        let budget = MemoryBudget::new(1 << 20, 1 << 20);
        let mut sent = Sent::of(HttpBody::Stream(StreamBody { pieces, left: None }), &budget);
        assert!(!sent.poll() && sent.pieces.len() == 16);
        assert_eq!(budget.used(), (256 << 10) + FIRST_PIECE_BYTES);
        sent.pieces.clear();
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn end_of_a_long_response_waits_for_its_pieces() {
        let mut short = Sent::new(60_000);
        assert!(short.poll() && short.is_late_after(4));
        let mut long = Sent::new(65_536);
        assert!(!long.poll() && long.pieces.len() == 4);
        assert!(long.is_late_after(16));
        long.pieces.truncate(1);
        assert!(!long.poll(), "a piece is not taken");
        long.pieces.clear();
        assert!(long.poll());
    }
}
