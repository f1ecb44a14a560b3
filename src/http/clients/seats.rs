//! A number of things that clients may have open, with a share for each address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::shared::ClientAddress;
use crate::shared::lock::lock;

/// Counts of open things by address.
#[derive(Debug)]
pub(crate) struct Seats {
    /// Highest number of one address.
    most: AtomicUsize,
    taken: Mutex<HashMap<ClientAddress, usize>>,
}

/// A seat, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    address: ClientAddress,
}

impl Seats {
    /// At most `most` for each address.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.into(), taken: Mutex::default() })
    }

    /// Sets another bound. Seats beyond it stay taken until they are dropped.
    pub(crate) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Takes one more for `address`; `None` if it has its share.
    pub(crate) fn take(self: &Arc<Self>, address: ClientAddress) -> Option<Seat> {
        let mut taken = self.lock();
        let count = taken.get(&address).copied().unwrap_or(0);
        // Relaxed: a bound that a reload has just set may hold one connection later.
        if count >= self.most.load(Ordering::Relaxed) {
            return None;
        }
        taken.insert(address, count + 1);
        Some(Seat { seats: Arc::clone(self), address })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientAddress, usize>> {
        lock(&self.taken)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        if let Entry::Occupied(mut count) = taken.entry(self.address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove(); // as many addresses are kept as have something open
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn address_has_its_share_and_gives_it_back() {
        let at = |last: u8| ClientAddress::from(IpAddr::from([10, 0, 0, last]));
        let seats = Seats::new(2);
        let taken = [seats.take(at(1)), seats.take(at(1)), seats.take(at(2))];
        assert!(taken.iter().all(Option::is_some));
        assert!(seats.take(at(1)).is_none());
        drop(taken);
        assert!(seats.lock().is_empty());
        assert!(seats.take(at(1)).is_some());
    }

    #[test]
    fn other_bound_holds_for_the_next_seat() {
        let at = ClientAddress::from(IpAddr::from([10, 0, 0, 1]));
        let seats = Seats::new(2);
        let taken = [seats.take(at), seats.take(at)];
        seats.set_most(1);
        assert!(seats.take(at).is_none());
        seats.set_most(3);
        assert!(taken.iter().all(Option::is_some) && seats.take(at).is_some());
    }

    #[test]
    fn address_without_a_seat_is_not_remembered() {
        let seats = Seats::new(0);
        assert!(seats.take(ClientAddress::from(IpAddr::from([10, 0, 0, 1]))).is_none());
        assert!(seats.lock().is_empty());
    }
}
