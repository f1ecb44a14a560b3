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

/// Tries before it asks whether the socket is ready: a socket that was just registered is ready and
/// not known to be, and hyper drops what it has not sent when a client that asks for an upgrade is
/// refused.
pub(crate) fn poll_send(
    stream: &TcpStream,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let mut sent = send(stream, slices);
    while sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        ready!(stream.poll_write_ready(context))?;
        sent = stream.try_io(Interest::WRITABLE, || send(stream, slices));
    }
    Poll::Ready(sent)
}

/// Sends with `sendmsg`. The usual way is `writev`, which goes through what all files have in
/// common and so looks at memory of each socket that nothing else touches (docs/decisions/0025).
pub(crate) fn send(stream: impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut nothing_besides = SendAncillaryBuffer::default();
    loop {
        match sendmsg(&stream, slices, &mut nothing_besides, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map_err(io::Error::from),
        }
    }
}

/// True if it takes bytes now. If not, it is told of when it does (`tcp_poll` sees to that).
pub(crate) fn takes_more(stream: impl AsFd) -> io::Result<bool> {
    let mut asked = [PollFd::new(&stream, PollFlags::OUT)];
    poll(&mut asked, Some(&Timespec::default()))?;
    Ok(!asked[0].revents().is_empty())
}
