//! Memory of a connection of the full path: received bytes without a response, and unsent bytes.

use std::io;
use std::sync::Arc;
use std::task::Poll;

use crate::shared::{Account, ClientAddress, FREE_BYTES, Holder, MemoryBudget, Reservation};

/// Reservations of a connection.
pub(super) struct SocketMemory {
    memory: Arc<MemoryBudget>,
    /// Address of the other side.
    pub(super) address: ClientAddress,
    /// Bytes that came since the last response, and how many of them hyper keeps at most.
    pub(super) came: usize,
    pub(super) came_max: usize,
    /// Reservation for received bytes. It only grows, as hyper's buffers do.
    pub(super) read_held: Option<Reservation>,
    /// Reservation for bytes that hyper could not write.
    unsent_held: Option<Reservation>,
    /// True if there was no memory for received bytes.
    pub(super) refused: bool,
}

impl SocketMemory {
    pub(super) fn new(memory: Arc<MemoryBudget>, address: ClientAddress, came_max: usize) -> Self {
        let (read_held, unsent_held) = (None, None);
        Self { memory, address, came: 0, came_max, read_held, unsent_held, refused: false }
    }

    /// Account of the client.
    pub(super) fn account(&self) -> Account<'_> {
        self.memory.account(self.address)
    }

    /// Returns true if there is memory for the received bytes. hyper does not have `before` of them yet.
    pub(super) fn fits(&mut self, before: usize) -> bool {
        let came = self.came.min(self.came_max) + before;
        if came <= FREE_BYTES {
            return true;
        }
        // A quarter more: buffers double, and for a moment the old one exists beside the new one.
        let held = (came + came / 4).next_multiple_of(FREE_BYTES);
        let account = self.memory.account(self.address);
        self.refused = !account.hold(&mut self.read_held, Holder::Head, held);
        !self.refused
    }

    /// Notes the outcome of a write of `bytes` to `client`, or else to the other side. Returns false if
    /// there is no memory for those that it does not take.
    pub(super) fn keeps(
        &mut self,
        client: Option<ClientAddress>,
        bytes: usize,
        written: &Poll<io::Result<usize>>,
    ) -> bool {
        match written {
            Poll::Ready(Ok(len)) if *len == bytes => self.unsent_held = None,
            // The caller keeps the bytes that the socket does not take, until the client
            // reads.
            Poll::Pending if bytes > FREE_BYTES => {
                let account = self.memory.account(client.unwrap_or(self.address));
                return account.hold(&mut self.unsent_held, Holder::Unread, bytes);
            }
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn bytes_that_the_client_does_not_take_need_memory_until_it_does() {
        let budget = MemoryBudget::new(4 * FREE_BYTES, 4 * FREE_BYTES);
        let address: ClientAddress = IpAddr::from([127, 0, 0, 1]).into();
        let mut socket = SocketMemory::new(Arc::clone(&budget), address, FREE_BYTES);
        assert!(socket.keeps(None, FREE_BYTES, &Poll::Pending) && budget.used() == 0);
        assert!(socket.keeps(None, 3 * FREE_BYTES, &Poll::Pending));
        assert_eq!(budget.used(), 3 * FREE_BYTES);
        assert!(!socket.keeps(None, 5 * FREE_BYTES, &Poll::Pending), "more than there is");
        assert!(socket.keeps(None, 100, &Poll::Ready(Ok(100))) && budget.used() == 0);
    }
}
