//! How a connection ends.

use std::io;
use std::time::Duration;

use futures_util::SinkExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Utf8Bytes};
use tracing::debug;

use super::incoming::NO_ROOM;
use super::session::Socket;
use crate::tally::WsEnd;

/// How long a client may take to go once it was told.
const LINGER: Duration = Duration::from_secs(2);
/// What is thrown away at a time meanwhile.
const WASTE: usize = 16 << 10;

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum Ended {
    /// The network ended it.
    Gone(Error),
    /// The client ended it, and is answered.
    Closed,
    /// It is told why, in a close frame.
    Told(WsEnd, CloseCode, Utf8Bytes),
    /// Without a close frame, as the node ends what it cannot read.
    Silently(WsEnd),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        match error {
            Error::Capacity(CapacityError::MessageTooLong { .. }) => {
                Self::told(WsEnd::Size, CloseCode::Size, "")
            }
            Error::Utf8(_) => Self::told(WsEnd::Protocol, CloseCode::Invalid, ""),
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
                Self::Silently(WsEnd::Client)
            }
            Error::Protocol(error) => {
                Self::told(WsEnd::Protocol, CloseCode::Protocol, error.to_string())
            }
            Error::ConnectionClosed => Self::Closed,
            Error::Io(error) if error.kind() == NO_ROOM => Self::told(
                WsEnd::Room,
                CloseCode::Again,
                "messages take all the memory that they may; try again later",
            ),
            error => Self::Gone(error),
        }
    }
}

impl Ended {
    pub(super) fn told(why: WsEnd, code: CloseCode, reason: impl Into<Utf8Bytes>) -> Self {
        Self::Told(why, code, reason.into())
    }

    /// What it counts as.
    pub(super) fn reason(&self) -> WsEnd {
        match self {
            Self::Told(why, ..) | Self::Silently(why) => *why,
            Self::Gone(Error::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
                WsEnd::Unread
            }
            Self::Gone(_) | Self::Closed => WsEnd::Client,
        }
    }

    /// Ends the connection. A client that does not even read this is cut off by the socket's
    /// time-out.
    pub(super) async fn close(self, socket: &mut Socket) {
        let closed = match self {
            Self::Gone(error) => return debug!(%error, "a WebSocket ended"),
            Self::Closed | Self::Silently(_) => socket.flush().await,
            Self::Told(_, code, reason) => {
                debug!(?code, %reason, "a WebSocket is ended");
                socket.close(Some(CloseFrame { code, reason })).await
            }
        };
        if let Err(error) = closed {
            debug!(%error, "a WebSocket did not close cleanly");
        }
        let _ = timeout(LINGER, linger(socket)).await; // there is nothing more to be done
    }
}

/// Throws away what still comes. Closing with something unread would reset the connection, and
/// the client might lose what it was told.
async fn linger(socket: &mut Socket) -> io::Result<()> {
    let io = socket.get_mut().io();
    io.shutdown().await?;
    let mut waste = vec![0; WASTE];
    while io.read(&mut waste).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_reasons() {
        let io = |kind: io::ErrorKind| Ended::from(Error::Io(kind.into())).reason();
        assert_eq!(io(io::ErrorKind::TimedOut), WsEnd::Unread);
        assert_eq!(io(io::ErrorKind::ConnectionReset), WsEnd::Client);
        assert_eq!(Ended::from(Error::ConnectionClosed).reason(), WsEnd::Client);
        let long = Error::Capacity(CapacityError::MessageTooLong { size: 2, max_size: 1 });
        assert_eq!(Ended::from(long).reason(), WsEnd::Size);
        let bare = Error::Protocol(ProtocolError::ResetWithoutClosingHandshake);
        assert_eq!(Ended::from(bare).reason(), WsEnd::Client);
        let refused = Ended::from(Error::Io(NO_ROOM.into()));
        assert_eq!(refused.reason(), WsEnd::Room);
        let unmasked = Error::Protocol(ProtocolError::UnmaskedFrameFromClient);
        assert_eq!(Ended::from(unmasked).reason(), WsEnd::Protocol);
    }
}
