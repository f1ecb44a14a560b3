//! End of a connection.

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

use super::message_reader::Socket;
use crate::http::socket::NO_MEMORY;
use crate::shared::WsClose;

/// Time that a client has to leave after the close frame.
const LINGER: Duration = Duration::from_secs(2);
/// Bytes that are discarded at a time meanwhile.
const WASTE: usize = 16 << 10;

/// Reason why a connection ends.
#[derive(Debug)]
pub(crate) enum CloseReason {
    /// The network ended it.
    Gone(Error),
    /// The client ended it with a close frame, and gets one with the same code, if it had any.
    Closed(Option<CloseCode>),
    /// The client gets the reason in a close frame.
    Told(WsClose, CloseCode, Utf8Bytes),
    /// The connection ends without a close frame, as at the node after malformed input.
    Silently(WsClose),
}

impl From<Error> for CloseReason {
    fn from(error: Error) -> Self {
        match error {
            Error::Capacity(CapacityError::MessageTooLong { .. }) => {
                Self::told(WsClose::TooLarge, CloseCode::Size, "")
            }
            Error::Utf8(_) => Self::told(WsClose::Protocol, CloseCode::Invalid, ""),
            // The client has left without a close frame: there is no one to tell.
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
                Self::Silently(WsClose::Client)
            }
            // A close frame of one byte has no code.
            Error::ConnectionClosed | Error::Protocol(ProtocolError::InvalidCloseSequence) => {
                Self::Closed(None)
            }
            Error::Protocol(error) => {
                Self::told(WsClose::Protocol, CloseCode::Protocol, words(&error))
            }
            Error::Io(error) if error.kind() == NO_MEMORY => Self::no_memory(),
            error => Self::Gone(error),
        }
    }
}

impl CloseReason {
    pub(crate) fn told(why: WsClose, code: CloseCode, reason: impl Into<Utf8Bytes>) -> Self {
        Self::Told(why, code, reason.into())
    }

    /// Makes the reason for a client that needs more memory than there is.
    pub(crate) fn no_memory() -> Self {
        let reason = "memory for clients is used up; try again later";
        Self::told(WsClose::Memory, CloseCode::Again, reason)
    }

    /// Makes the reason for a client whose response would repeat text that is not UTF-8.
    pub(crate) fn not_utf8() -> Self {
        Self::told(WsClose::Protocol, CloseCode::Invalid, "the response is not UTF-8")
    }

    /// Makes the reason for a client whose key was removed.
    pub(crate) fn key() -> Self {
        Self::told(WsClose::Key, CloseCode::Policy, "API key: missing or unknown")
    }

    /// Returns the label under which it counts.
    pub(crate) fn reason(&self) -> WsClose {
        match self {
            Self::Told(why, ..) | Self::Silently(why) => *why,
            Self::Gone(Error::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
                WsClose::WriteTimeout
            }
            Self::Gone(_) | Self::Closed(_) => WsClose::Client,
        }
    }

    /// Ends the connection. The socket's time-out cuts off a client that does not read the close frame.
    pub(crate) async fn close(self, socket: &mut Socket) {
        let closed = match self {
            Self::Gone(error) => return debug!(%error, "WebSocket ended"),
            Self::Closed(code) => {
                socket.get_mut().write_all(&close_frame(code)).await.map_err(Error::Io)
            }
            Self::Silently(_) => socket.flush().await,
            Self::Told(_, code, reason) => {
                debug!(?code, %reason, "WebSocket closed by neve");
                socket.close(Some(CloseFrame { code, reason })).await
            }
        };
        if let Err(error) = closed {
            debug!(%error, "WebSocket closed uncleanly");
        }
        let _ = timeout(LINGER, linger(socket)).await; // it ends either way
    }
}

/// The answer to a close frame. tungstenite would repeat the reason, and the node does not (gorilla/websocket,
/// `conn.go`, `SetCloseHandler`).
fn close_frame(code: Option<CloseCode>) -> Vec<u8> {
    let code =
        code.map(u16::from).map_or_else(Vec::new, |code| vec![(code >> 8) as u8, code as u8]);
    // FIN with the opcode of a close, and no mask, as a server has none (RFC 6455, 5.1 and 5.2).
    [&[0x88, code.len() as u8], &code[..]].concat()
}

/// Words of a protocol error as the node has them (gorilla/websocket, `conn.go`, `advanceFrame`). Of several errors the
/// node names all. It names each reserved bit, too, which tungstenite does not tell.
fn words(error: &ProtocolError) -> String {
    let words = match error {
        ProtocolError::NonZeroReservedBits => "reserved bits set",
        ProtocolError::ControlFrameTooBig => "len > 125 for control",
        ProtocolError::FragmentedControlFrame => "FIN not set on control",
        ProtocolError::ExpectedFragment(_) => "data before FIN",
        ProtocolError::UnexpectedContinueFrame => "continuation after FIN",
        ProtocolError::UnmaskedFrameFromClient => "bad MASK",
        ProtocolError::InvalidOpcode(opcode) => return format!("bad opcode {opcode}"),
        other => return other.to_string(),
    };
    words.to_owned()
}

/// Discards bytes that still come. A close with unread bytes would reset the connection, and the
/// client could lose the close frame.
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
        let io = |kind: io::ErrorKind| CloseReason::from(Error::Io(kind.into())).reason();
        assert_eq!(io(io::ErrorKind::TimedOut), WsClose::WriteTimeout);
        assert_eq!(io(io::ErrorKind::ConnectionReset), WsClose::Client);
        assert_eq!(CloseReason::from(Error::ConnectionClosed).reason(), WsClose::Client);
        let long = Error::Capacity(CapacityError::MessageTooLong { size: 2, max_size: 1 });
        assert_eq!(CloseReason::from(long).reason(), WsClose::TooLarge);
        let bare = Error::Protocol(ProtocolError::ResetWithoutClosingHandshake);
        assert_eq!(CloseReason::from(bare).reason(), WsClose::Client);
        let refused = CloseReason::from(Error::Io(NO_MEMORY.into()));
        assert_eq!(refused.reason(), WsClose::Memory);
        let unmasked = Error::Protocol(ProtocolError::UnmaskedFrameFromClient);
        assert_eq!(CloseReason::from(unmasked).reason(), WsClose::Protocol);
    }
}
