//! The choice of an upstream for a socket, and the handshake.

use std::time::Instant;

use hyper::StatusCode;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Error;

use super::event::{Opening, SocketEnd};
use super::metered::{Coming, Metered, NO_MEMORY};
use crate::client::{NotOpened, WebSocketClient};
use crate::relay::{ATTEMPTS_MAX, Candidate, Failure, RelayState, UpstreamGate};
use crate::shared::{Holder, Reservation};

/// Bytes that a socket reads at a time.
const READ_BYTES: usize = 4 << 10;
/// Bytes of a socket besides the message that comes: buffers, and those of TLS.
const BASE: usize = 48 << 10;

/// An open socket, its upstream, and the meter of its messages.
pub(super) struct Connected {
    pub(super) socket: WebSocketStream<Metered>,
    pub(super) candidate: Candidate,
    pub(super) coming: Coming,
}

/// Opens a socket to the upstream that is best for the first call, or to the next one.
pub(super) async fn connect(state: &RelayState, opening: &Opening) -> Result<Connected, SocketEnd> {
    let (mut failure, mut failures) = (Failure::NoUpstream, 0);
    let now = Instant::now();
    let rank = |gate: &UpstreamGate| gate.socket_rank(now);
    for candidate in state.candidates(opening.head, &opening.facts, rank, now) {
        let Some(client) = client(state, &candidate) else { continue };
        if let Err(refused) = state.enter_handshake(&candidate, opening.address, Instant::now()) {
            // The failure of an upstream that was asked says more than the limit of another.
            failure = if failures == 0 { refused } else { failure };
            continue;
        }
        let account = opening.memory.account(opening.address);
        // Before the handshake: the upstream may send from then on.
        let held = account.reserve(Holder::Relay, BASE).ok_or(SocketEnd::NoMemory)?;
        match open(state, opening, &client, held).await {
            Ok((socket, coming)) => {
                state.gate(candidate.place).note_handshake(None, Instant::now());
                return Ok(Connected { socket, candidate, coming });
            }
            // The client's memory, of which the upstream knows nothing.
            Err(NotOpened::Socket(Error::Io(error))) if error.kind() == NO_MEMORY => {
                return Err(SocketEnd::NoMemory);
            }
            Err(why) => failure = failed(state, candidate.place, &why),
        }
        failures += 1;
        if failures >= ATTEMPTS_MAX {
            break;
        }
    }
    Err(SocketEnd::Failed(failure))
}

/// The client of an upstream; `None` if it has no WebSocket.
fn client(state: &RelayState, candidate: &Candidate) -> Option<WebSocketClient> {
    let endpoint = &state.endpoints[candidate.place];
    Some(WebSocketClient {
        address: endpoint.ws.clone()?,
        headers: endpoint.headers.clone(),
        tls: state.tls.clone(),
        connect_timeout: state.connect_timeout,
        message_bytes_max: state.config.sockets.message_bytes_max,
        read_bytes: Some(READ_BYTES),
    })
}

async fn open(
    state: &RelayState,
    opening: &Opening,
    client: &WebSocketClient,
    held: Reservation,
) -> Result<(WebSocketStream<Metered>, Coming), NotOpened> {
    let coming = Coming::default();
    let metered = |io| Metered::new(io, held, BASE, coming.clone());
    let socket = client.open(opening.hops.value(&state.hop), metered).await?;
    // The bytes so far were those of the handshake, and of no message.
    coming.ends();
    Ok((socket, coming))
}

/// Notes why a handshake failed.
fn failed(state: &RelayState, place: usize, why: &NotOpened) -> Failure {
    let failure = match why {
        NotOpened::TimedOut => Failure::TimedOut,
        NotOpened::Socket(Error::Http(response)) => match response.status() {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                state.pause_handshakes(place, response.headers());
                Failure::Limited
            }
            status => Failure::Status(status.as_u16()),
        },
        NotOpened::Socket(_) => Failure::Unreachable,
    };
    state.gate(place).note_handshake(Some(failure), Instant::now());
    failure
}
