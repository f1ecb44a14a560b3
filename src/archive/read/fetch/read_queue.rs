//! Reads that wait for a place at the gate: bounded in number, with a share for each address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;

use crate::shared::ClientAddress;
use crate::shared::lock::lock;

/// Reads that wait at a time.
pub(super) const WAITING_MAX: usize = 512;
/// Those of one address: as many as one request may need.
pub(super) const ADDRESS_MAX: usize = WAITING_MAX / 2;

/// Reads of clients that wait.
#[derive(Default)]
pub(super) struct ReadQueue {
    waiting: Mutex<WaitingReads>,
}

#[derive(Default)]
struct WaitingReads {
    all: usize,
    addresses: HashMap<ClientAddress, usize>,
}

/// A place in the queue, until it is dropped.
pub(super) struct QueuePlace<'q> {
    queue: &'q ReadQueue,
    address: ClientAddress,
}

impl ReadQueue {
    /// Takes a place for a read of an address, or says which bound refuses it.
    pub(super) fn enter(&self, address: ClientAddress) -> Result<QueuePlace<'_>, &'static str> {
        let mut waiting = lock(&self.waiting);
        if waiting.all >= WAITING_MAX {
            return Err("queue");
        }
        let count = waiting.addresses.entry(address).or_default();
        if *count >= ADDRESS_MAX {
            return Err("queue_share");
        }
        *count += 1;
        waiting.all += 1;
        Ok(QueuePlace { queue: self, address })
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.queue.waiting);
        waiting.all -= 1;
        if let Entry::Occupied(mut count) = waiting.addresses.entry(self.address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove(); // as many addresses are kept as have a read that waits
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn queue_is_bounded_in_total_and_by_address() {
        let at = |last: u8| ClientAddress::from(IpAddr::from([10, 0, 0, last]));
        let queue = ReadQueue::default();
        let fill =
            |address| -> Vec<_> { std::iter::from_fn(|| queue.enter(address).ok()).collect() };
        let first = fill(at(1));
        assert_eq!((first.len(), queue.enter(at(1)).err()), (ADDRESS_MAX, Some("queue_share")));
        let second = fill(at(2));
        assert_eq!(first.len() + second.len(), WAITING_MAX);
        assert_eq!(queue.enter(at(3)).err(), Some("queue"));
        drop(first);
        assert_eq!(fill(at(3)).len(), ADDRESS_MAX);
        drop(second);
        assert!(lock(&queue.waiting).addresses.is_empty());
    }
}
