//! Sending slices over a socket.

use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Sends before it asks whether the socket is ready. The runtime does not know yet that a newly
/// registered socket is writable, and hyper drops unsent bytes when it refuses an upgrade.
pub(crate) fn poll_send(
    stream: &TcpStream,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let mut sent = send(stream, slices);
    while sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        ready!(stream.poll_write_ready(context))?;
        // A failure within `try_io` clears the readiness; else the next poll would return at once.
        sent = stream.try_io(Interest::WRITABLE, || send(stream, slices));
    }
    Poll::Ready(sent)
}

/// Sends with `sendmsg`. `writev` would go through the kernel's generic file code, and touch cache
/// lines of each socket that nothing else needs (docs/decisions/0025).
pub(crate) fn send(stream: impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut nothing_besides = SendAncillaryBuffer::default();
    loop {
        match sendmsg(&stream, slices, &mut nothing_besides, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map_err(io::Error::from),
        }
    }
}

/// Returns true if the socket takes bytes now. If not, the kernel raises an event once it does
/// (`tcp_poll` arms that).
pub(crate) fn takes_more(stream: impl AsFd) -> io::Result<bool> {
    let mut asked = [PollFd::new(&stream, PollFlags::OUT)];
    // A time-out of zero: it looks and does not wait.
    poll(&mut asked, Some(&Timespec::default()))?;
    Ok(!asked[0].revents().is_empty())
}
