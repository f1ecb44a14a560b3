//! The socket of a connection of HTTP/2: meters the frames that come, gives hyper few requests at once, and
//! gives up on a client that takes no bytes.

use std::future::Future;
use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::line_time::LineTime;
use super::streams::OpenStreams;
use crate::http::socket::{LINGER, poll_discard};

/// Bytes of the preface.
const PREFACE_BYTES: usize = 24;
/// Bytes of the head of a frame (RFC 9113, 4.1).
const HEAD_BYTES: usize = 9;
/// Frames of a connection, beyond those that come with requests, that only make work: PRIORITY,
/// `RST_STREAM`, SETTINGS, PING.
const FREE_FRAMES: u64 = 200;
/// Such frames that each request may bring along. A client that resets every stream it opens, as in
/// CVE-2023-44487, brings one; so it may reset every second one.
const FRAMES_A_REQUEST: u64 = 4;
/// Requests of a connection that hyper may refuse by itself, beyond as many trailers as requests. It keeps
/// something of a malformed one until the connection ends.
const REFUSED_MAX: u64 = 32;
/// Streams that a client may open before it knows how many it may have: as many as RFC 9113, 6.5.2 recommends to
/// allow.
const STREAMS_UNKNOWN: u32 = 100;
/// Setting of the window of new streams (RFC 9113, 6.5.2), and the bytes of a setting.
const INITIAL_WINDOW: [u8; 2] = [0, 4];
const SETTING_BYTES: usize = 6;
/// Bytes that the kernel takes before it has sent those that it has.
const UNSENT_MAX: u32 = 128 << 10;
/// Requests that hyper reads before those that it has are begun. Until then their headers are not counted.
const HEADS_AT_ONCE: usize = 4;

/// Meter of the frames that a client sends.
#[derive(Debug, Default)]
struct FrameMeter {
    /// Bytes that are to be skipped.
    skip: usize,
    head: [u8; HEAD_BYTES],
    /// Bytes of the head that came.
    came: usize,
    /// True in a frame of SETTINGS.
    in_settings: bool,
    setting: [u8; SETTING_BYTES],
    /// Bytes of the setting that came.
    setting_came: usize,
    /// Least window that the client gave new streams, if it said so.
    window: Option<u32>,
    requests: u64,
    /// Requests since the last pause.
    heads: usize,
    /// Frames that only make work; a reset counts as many.
    idle: u64,
    /// Such frames that a reset counts as.
    reset: u64,
}

impl FrameMeter {
    fn new() -> Self {
        Self { skip: PREFACE_BYTES, reset: 2 * FRAMES_A_REQUEST, ..Self::default() }
    }

    /// Takes bytes that came; returns how many hyper may have before the next pause.
    fn takes(&mut self, came: &[u8]) -> usize {
        let mut bytes = came;
        // hyper decodes headers as soon as it has them, and they take memory that is counted only
        // when their request begins. So it gets no more of them before that.
        while !bytes.is_empty() && self.heads <= HEADS_AT_ONCE {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            if self.in_settings {
                bytes[..skipped].iter().for_each(|byte| self.settings(*byte));
            }
            bytes = &bytes[skipped..];
            let part = (HEAD_BYTES - self.came).min(bytes.len());
            self.head[self.came..self.came + part].copy_from_slice(&bytes[..part]);
            self.came += part;
            bytes = &bytes[part..];
            if self.came == HEAD_BYTES {
                self.frame();
            }
        }
        came.len() - bytes.len()
    }

    /// Reads a byte of SETTINGS.
    fn settings(&mut self, byte: u8) {
        self.setting[self.setting_came] = byte;
        self.setting_came = (self.setting_came + 1) % SETTING_BYTES;
        if self.setting_came == 0 && self.setting.starts_with(&INITIAL_WINDOW) {
            let value =
                self.setting[2..].iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
            self.window = Some(self.window.map_or(value, |least| least.min(value)));
        }
    }

    /// True if too many frames only make work.
    fn is_flooded(&self) -> bool {
        self.idle > FREE_FRAMES + FRAMES_A_REQUEST * self.requests
    }

    /// True once if hyper has enough requests, the last of them not whole.
    fn pauses(&mut self) -> bool {
        let pauses = self.heads > HEADS_AT_ONCE;
        if pauses {
            // The head that was one too many has come: it is the first of the next turn.
            self.heads = 1;
        }
        pauses
    }

    fn frame(&mut self) {
        let [a, b, c, kind, flags, ..] = self.head;
        self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.came = 0;
        (self.in_settings, self.setting_came) = (kind == 4, 0);
        match kind {
            1 => (self.requests, self.heads) = (self.requests + 1, self.heads + 1), // HEADERS
            3 => self.idle += self.reset,                                           // RST_STREAM
            6 if flags & 1 == 1 => {} // acknowledges a PING of neve's, which comes for the life of a connection
            2 | 4 | 6 => self.idle += 1, // PRIORITY, SETTINGS, PING
            0 if self.skip == 0 => self.idle += 1, // DATA without any
            _ => {}
        }
    }
}

/// Streams that hyper refuses of a client that does not know yet that it may have so many.
pub(super) fn refused_before_settings(streams_max: u32) -> u32 {
    STREAMS_UNKNOWN.saturating_sub(streams_max)
}

/// A socket that reads on after its last byte.
pub(super) struct Http2Socket {
    io: TcpStream,
    /// Bytes that were read before.
    before: Bytes,
    meter: FrameMeter,
    streams: Arc<OpenStreams>,
    line: Arc<LineTime>,
    /// Requests that hyper may refuse.
    refused_max: u64,
    write_timeout: Duration,
    /// Set while the client takes no bytes, or says nothing after the last one.
    stalled: Option<Pin<Box<Sleep>>>,
    /// True behind the last byte.
    is_shut: bool,
}

impl Http2Socket {
    pub(super) fn new(
        io: TcpStream,
        before: Bytes,
        streams: Arc<OpenStreams>,
        line: Arc<LineTime>,
        write_timeout: Duration,
    ) -> Self {
        // A client takes a PING, and its turn among streams, in time only if the kernel has little before it.
        let _ = SockRef::from(&io).set_tcp_notsent_lowat(UNSENT_MAX);
        let (meter, refused_max, stalled, is_shut) = (FrameMeter::new(), REFUSED_MAX, None, false);
        Self { io, before, meter, streams, line, refused_max, write_timeout, stalled, is_shut }
    }

    /// Sets the number of streams that the client may have open.
    pub(super) fn streams_max(mut self, streams_max: u32) -> Self {
        self.refused_max = REFUSED_MAX + u64::from(refused_before_settings(streams_max));
        self
    }

    /// Lets a trusted front reset each request that it opens: all its clients share the connection, and one of them
    /// that breaks off must not end those of the others.
    pub(super) fn proxied(mut self, proxied: bool) -> Self {
        if proxied {
            self.meter.reset = FRAMES_A_REQUEST;
        }
        self
    }

    fn wrote<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.line.runs(written.is_ready(), Instant::now());
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        ready!(self.poll_stalled(context, self.write_timeout));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Reads bytes that were read before, or else from the network.
    fn poll_bytes(
        &mut self,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.before.is_empty() {
            return Pin::new(&mut self.io).poll_read(context, buf);
        }
        let len = self.before.len().min(buf.remaining());
        buf.put_slice(&self.before.split_to(len));
        Poll::Ready(Ok(()))
    }

    /// Fails if the client has sent too many frames that only make work.
    fn check_frames(&self) -> io::Result<()> {
        let refused = self.meter.requests > 2 * self.streams.opened() + self.refused_max;
        if refused || self.meter.is_flooded() {
            return Err(io::Error::other("too many frames without a request"));
        }
        Ok(())
    }

    /// Waits until nothing has happened for so long.
    fn poll_stalled(&mut self, context: &mut Context<'_>, limit: Duration) -> Poll<()> {
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        stalled.as_mut().poll(context)
    }

    /// Reads on after the last byte until the client closes. It reads what the kernel still has, and says so: a
    /// closed socket would answer with a reset, and the client would lose the rest.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(comes) = poll_discard(&self.io, context) {
            if !comes {
                return Poll::Ready(());
            }
            self.stalled = None;
        }
        // Without streams the client needs no time for a response.
        let ended = self.streams.idle_since().filter(|since| since.elapsed() >= self.write_timeout);
        self.poll_stalled(context, ended.map_or(self.write_timeout, |_| LINGER))
    }
}

impl AsyncRead for Http2Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.meter.pauses() {
            context.waker().wake_by_ref(); // hyper takes what it has read first
            return Poll::Pending;
        }
        ready!(self.streams.poll_begun(context));
        let start = buf.filled().len();
        ready!(self.poll_bytes(context, buf))?;
        let end = start + self.meter.takes(&buf.filled()[start..]);
        if end < buf.filled().len() {
            // hyper must not see bytes that it may not have yet; the socket cannot take them back.
            self.before = [&buf.filled()[end..], &self.before].concat().into();
            buf.set_filled(end);
        }
        self.meter.window.into_iter().for_each(|window| self.streams.gives_window(window));
        Poll::Ready(self.check_frames())
    }
}

impl AsyncWrite for Http2Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, buf);
        self.wrote(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, bufs);
        self.wrote(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper polls again until it ends: the FIN goes out once.
        if !self.is_shut {
            ready!(Pin::new(&mut self.io).poll_shutdown(context))?;
            (self.is_shut, self.stalled) = (true, None);
        }
        self.poll_linger(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn kernel_takes_little_ahead_of_a_client_that_reads_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (_client, (io, _)) = (client.expect("it listens"), accepted.expect("it connects"));
        io.writable().await.expect("nothing is written");
        let limit = Duration::from_secs(100);
        let mut socket = Http2Socket::new(io, Bytes::new(), Arc::default(), Arc::default(), limit);
        let (bytes, mut taken) = (vec![0; 64 << 10], 0);
        poll_fn(|context| {
            while let Poll::Ready(len) = Pin::new(&mut socket).poll_write(context, &bytes) {
                taken += len.expect("it is open");
            }
            Poll::Ready(())
        })
        .await;
        assert!((1..1 << 20).contains(&taken), "{taken}");
    }

    fn frame(kind: u8, len: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, len, kind, 0, 0, 0, 0, 1];
        frame.resize(HEAD_BYTES + usize::from(len), 6);
        frame
    }

    fn takes(frames: &[Vec<u8>], piece: usize) -> bool {
        is_taken_by(FrameMeter::new(), frames, piece)
    }

    fn is_taken_by(mut meter: FrameMeter, frames: &[Vec<u8>], piece: usize) -> bool {
        let bytes = [vec![4; PREFACE_BYTES], frames.concat()].concat();
        for mut piece in bytes.chunks(piece) {
            while !piece.is_empty() {
                piece = &piece[meter.takes(piece)..];
                meter.pauses();
            }
        }
        !meter.is_flooded()
    }

    #[test]
    fn hyper_gets_few_requests_at_once() {
        for piece in [1, 7, 1 << 20] {
            let bytes = [vec![4; PREFACE_BYTES], vec![frame(1, 30); 20].concat()].concat();
            let (mut meter, mut whole) = (FrameMeter::new(), Vec::new());
            for mut piece in bytes.chunks(piece) {
                while !piece.is_empty() {
                    piece = &piece[meter.takes(piece)..];
                    if meter.pauses() {
                        whole.push(meter.requests - 1);
                    }
                }
            }
            assert_eq!(whole, [4, 8, 12, 16], "{piece}");
        }
    }

    #[test]
    fn frames_that_only_make_work_are_bounded_however_they_are_cut() {
        let free = usize::try_from(FREE_FRAMES).unwrap();
        for piece in [1, 7, 9, 10, 1 << 20] {
            for kind in [2, 4, 6] {
                assert!(takes(&vec![frame(kind, 6); free], piece), "{kind}");
                assert!(!takes(&vec![frame(kind, 6); free + 1], piece), "{kind}");
            }
            assert!(!takes(&vec![frame(0, 0); free + 1], piece), "DATA without any");
            let mut acknowledged = frame(6, 8);
            acknowledged[4] = 1;
            assert!(takes(&vec![acknowledged; 10 * free], piece), "PINGs of neve's");
            assert!(takes(&vec![frame(0, 4); 10 * free], piece), "a body");
            assert!(takes(&vec![frame(8, 4); 10 * free], piece), "windows");
        }
    }

    #[test]
    fn window_of_settings_is_read_however_they_are_cut() {
        let head = [0, 0, 18, 4, 0, 0, 0, 0, 0];
        let settings = [[0, 3, 0, 4, 0, 4], [0, 4, 0x7f, 1, 2, 3], [0, 4, 0x7f, 2, 0, 0]].concat();
        // A body is no SETTINGS, and an acknowledgment has none.
        let acknowledged = vec![0, 0, 0, 4, 1, 0, 0, 0, 0];
        let body = vec![0, 0, 6, 0, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0];
        let bytes = [vec![4; PREFACE_BYTES], head.to_vec(), settings, acknowledged, body].concat();
        for piece in [1, 5, 1 << 20] {
            let mut meter = FrameMeter::new();
            bytes.chunks(piece).for_each(|piece| assert_eq!(meter.takes(piece), piece.len()));
            assert_eq!(meter.window, Some(0x7f01_0203), "{piece}");
        }
    }

    #[test]
    fn client_may_reset_every_second_stream_and_not_all() {
        let (open, reset) = (frame(1, 9), frame(3, 4));
        let half = vec![[open.clone(), open.clone(), reset.clone()].concat(); 10_000];
        assert!(takes(&half, 1 << 20));
        let all = vec![[open, reset.clone()].concat(); 10_000];
        assert!(!takes(&all, 1 << 20));
        let of_front = || FrameMeter { reset: FRAMES_A_REQUEST, ..FrameMeter::new() };
        assert!(is_taken_by(of_front(), &all, 1 << 20));
        assert!(!is_taken_by(of_front(), &vec![reset; 100], 1 << 20), "of no request");
    }
}
