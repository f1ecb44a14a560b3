//! The place of a WebSocket to an upstream among those of its client's address and of all.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::settings::SocketLimits;
use crate::http::clients::{Seat, Seats};
use crate::relay::sockets::{Opening, RelaySocket};
use crate::relay::{Failure, RelayState};

/// Places of sockets, in total and of each address.
#[derive(Clone)]
pub(super) struct Places {
    permits: Arc<Semaphore>,
    seats: Arc<Seats>,
}

/// A socket of one client, and its place.
pub(crate) struct ClientSocket {
    socket: RelaySocket,
    _seat: Seat,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new(limits: &SocketLimits) -> Self {
        let permits = Arc::new(Semaphore::new(limits.total_max));
        Self { permits, seats: Seats::new(limits.address_max) }
    }

    /// Opens a socket, if there is a place.
    pub(super) fn open(
        &self,
        state: &Arc<RelayState>,
        opening: Opening,
    ) -> Result<ClientSocket, Failure> {
        let seat = self.seats.take(opening.address).ok_or(Failure::Limited)?;
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| Failure::Limited)?;
        let socket = RelaySocket::open(state, opening);
        Ok(ClientSocket { socket, _seat: seat, _permit: permit })
    }
}

impl Deref for ClientSocket {
    type Target = RelaySocket;

    fn deref(&self) -> &RelaySocket {
        &self.socket
    }
}

impl DerefMut for ClientSocket {
    fn deref_mut(&mut self) -> &mut RelaySocket {
        &mut self.socket
    }
}
