//! Listeners: a port of TCP, or a socket in the file system.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::config::ListenAddress;

/// Address of all clients of a socket in the file system.
const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A place where connections come from.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A socket in the file system, which goes with its listener unless another process keeps it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    kept: bool,
}

impl Listener {
    /// Binds to an address. Replaces the file of a socket on which no process listens.
    pub(crate) async fn bind(address: &ListenAddress) -> io::Result<Self> {
        match address {
            ListenAddress::Tcp { host, port } => {
                Ok(Self::Tcp(TcpListener::bind((host.as_str(), *port)).await?))
            }
            ListenAddress::Unix(path) => {
                // The file of a socket outlives a killed process, and no other can bind to it.
                remove_stale(path)?;
                let file = SocketFile { path: path.clone(), kept: false };
                Ok(Self::Unix(UnixListener::bind(path)?, file))
            }
        }
    }

    /// Takes a socket of TCP that another process bound and keeps.
    pub(crate) fn kept_tcp(listener: StdTcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener).map(Self::Tcp)
    }

    /// Takes a socket in the file system that another process bound and keeps.
    pub(crate) fn kept_unix(listener: StdUnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let path = listener.local_addr()?.as_pathname().map(Path::to_owned).unwrap_or_default();
        Ok(Self::Unix(UnixListener::from_std(listener)?, SocketFile { path, kept: true }))
    }

    /// Returns the address, with the port that it got.
    pub(crate) fn address(&self) -> io::Result<ListenAddress> {
        match self {
            Self::Tcp(listener) => Ok(listener.local_addr()?.into()),
            Self::Unix(_, file) => Ok(ListenAddress::Unix(file.path.clone())),
        }
    }

    /// Returns true if only this machine reaches it. The address decides: any name may lead to this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::Tcp(listener) => {
                let address = listener.local_addr();
                address.is_ok_and(|address| address.ip().to_canonical().is_loopback())
            }
            Self::Unix(..) => true,
        }
    }

    /// Accepts a connection if there is one, or has the task woken when there is.
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(context),
            Self::Unix(listener, _) => {
                listener.poll_accept(context).map(|accepted| Ok((as_tcp(accepted?.0)?, LOCAL)))
            }
        }
    }
}

/// Accepts a connection at any of these listeners. The one at `turn` goes first, so that none waits for
/// another that has many.
pub(crate) async fn accept(
    listeners: &[Listener],
    turn: usize,
) -> io::Result<(TcpStream, SocketAddr)> {
    let (before, from) = listeners.split_at(turn % listeners.len().max(1));
    poll_fn(|context| {
        let accepted = from.iter().chain(before).map(|listener| listener.poll_accept(context));
        accepted.into_iter().find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// Takes a socket for one of TCP. Both are read, written and watched by the same system calls. Options
/// that only TCP has fail, and neve does without them.
fn as_tcp(stream: UnixStream) -> io::Result<TcpStream> {
    TcpStream::from_std(OwnedFd::from(stream.into_std()?).into())
}

/// Removes the file of a socket on which no process listens.
fn remove_stale(path: &Path) -> io::Result<()> {
    // Not through a link: the file that it leads to may be of others.
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => Err(io::ErrorKind::AlreadyExists.into()),
        Ok(_) => match StdUnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            // Another failure does not say that no process listens: rights may lack, or its kind differs.
            _ => Err(io::ErrorKind::AddrInUse.into()),
        },
        Err(_) => Ok(()), // it does not exist, or binding says why not
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path); // the next start removes it otherwise
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[tokio::test]
    async fn socket_that_nobody_listens_on_is_replaced_and_no_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let (stale, other) = (dir.path().join("stale"), dir.path().join("other"));
        drop(StdUnixListener::bind(&stale).expect("a new path"));
        let listener = Listener::bind(&ListenAddress::Unix(stale.clone())).await;
        assert!(listener.is_ok_and(|_| stale.exists()));
        let _other = UnixDatagram::bind(&other).expect("a new path");
        let failed = Listener::bind(&ListenAddress::Unix(other.clone())).await;
        let kind = failed.map(|_| ()).map_err(|error| error.kind());
        assert_eq!(kind, Err(io::ErrorKind::AddrInUse));
        assert!(other.exists(), "it is of another program");
    }
}
