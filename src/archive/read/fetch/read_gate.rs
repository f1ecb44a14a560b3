//! Bounds of reads in flight from the object store: their number, their bytes, and their time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::shared::ClientAddress;
use crate::shared::lock::lock;

/// Reads in flight.
pub(super) const READS_MAX: usize = 64;
/// Bytes of the reads in flight together.
const BYTES_MAX: usize = 64 << 20;
/// Unit in which they are counted.
const BYTES_UNIT: usize = 64 << 10;
const UNITS_MAX: usize = BYTES_MAX / BYTES_UNIT;
/// Units of one address: half. A read counts as at least as many as leave it half of the reads.
const ADDRESS_UNITS_MAX: usize = UNITS_MAX / 2;
const READ_UNITS_MIN: usize = UNITS_MAX / READS_MAX;
/// Addresses whose units are remembered before those without a read are forgotten.
const ADDRESSES_MAX: usize = 1024;
/// Time that one read may take, and the slowest transfer that adds to it.
const READ_TIME_MAX: Duration = Duration::from_secs(3);
const BYTES_PER_SECOND_MIN: u64 = 2_000_000;

/// Time that a read of so many bytes may take.
pub(super) fn read_time_max(bytes: u64) -> Duration {
    READ_TIME_MAX + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

/// Entrance to the object store.
pub(super) struct ReadGate {
    reads: Semaphore,
    units: Semaphore,
    addresses: Mutex<HashMap<ClientAddress, Arc<Semaphore>>>,
    /// Time that a read waits for its place.
    wait_max: Duration,
}

/// Purpose of a read: it says whose share of places and rates the read takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payer {
    /// neve itself: a filter.
    Neve,
    /// A request of a client.
    Client(ClientAddress),
    /// A later request of a client, perhaps. Such a read takes only what requests leave.
    Ahead(ClientAddress),
}

impl Payer {
    /// Address whose share a read takes.
    pub(crate) fn address(self) -> Option<ClientAddress> {
        match self {
            Self::Neve => None,
            Self::Client(address) | Self::Ahead(address) => Some(address),
        }
    }
}

/// Place of a read, until it is dropped.
pub(crate) struct ReadPlace<'g> {
    _own: Option<OwnedSemaphorePermit>,
    _all: [SemaphorePermit<'g>; 2],
}

impl Default for ReadGate {
    fn default() -> Self {
        Self::new(READ_TIME_MAX)
    }
}

impl ReadGate {
    /// A gate at which a read waits for at most so long.
    pub(super) fn new(wait_max: Duration) -> Self {
        let (reads, units) = (Semaphore::new(READS_MAX), Semaphore::new(UNITS_MAX));
        Self { reads, units, addresses: Mutex::default(), wait_max }
    }

    /// Waits for a place for a read of so many bytes. `None` if that takes too long.
    pub(super) async fn enter(&self, bytes: u64, payer: Payer) -> Option<ReadPlace<'_>> {
        timeout(self.wait_max, self.place(bytes, payer)).await.ok().flatten()
    }

    async fn place(&self, bytes: u64, payer: Payer) -> Option<ReadPlace<'_>> {
        // A read of more than all of them has all.
        let units = bytes.div_ceil(BYTES_UNIT as u64).min(UNITS_MAX as u64) as usize;
        let own = match payer.address().map(|address| self.units_of(address)) {
            None => None,
            Some(all) => {
                let units = units.clamp(READ_UNITS_MIN, ADDRESS_UNITS_MAX) as u32;
                Some(all.acquire_many_owned(units).await.ok()?)
            }
        };
        // Behind the own share: an address that waits for that holds nothing of the others.
        let units = self.units.acquire_many(units as u32).await.ok()?;
        Some(ReadPlace { _own: own, _all: [units, self.reads.acquire().await.ok()?] })
    }

    fn units_of(&self, address: ClientAddress) -> Arc<Semaphore> {
        let mut addresses = lock(&self.addresses);
        if addresses.len() >= ADDRESSES_MAX {
            // A read that has units, or waits for them, holds the semaphore.
            addresses.retain(|_, units| Arc::strong_count(units) > 1);
        }
        let new = || Arc::new(Semaphore::new(ADDRESS_UNITS_MAX));
        Arc::clone(addresses.entry(address).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures_util::FutureExt;
    use tokio::task::unconstrained;

    use super::*;

    #[tokio::test]
    async fn reads_under_way_are_bounded_in_number_and_in_bytes() {
        let gate = ReadGate::default();
        let enter = |bytes| unconstrained(gate.enter(bytes, Payer::Neve)).now_or_never().flatten();
        let small: Vec<_> = std::iter::from_fn(|| enter(1)).collect();
        assert_eq!(small.len(), READS_MAX);
        drop(small);
        let large: Vec<_> = std::iter::from_fn(|| enter(8 << 20)).collect();
        assert_eq!(large.len(), BYTES_MAX / (8 << 20));
        drop(large);
        let all = enter(1 << 30);
        assert!(all.is_some() && enter(1).is_none());
    }

    #[tokio::test]
    async fn address_has_half_of_the_places() {
        let gate = ReadGate::default();
        let enter = |bytes, last| {
            let address = ClientAddress::from(IpAddr::from([10, 0, 0, last]));
            unconstrained(gate.enter(bytes, Payer::Client(address))).now_or_never().flatten()
        };
        let small: Vec<_> = std::iter::from_fn(|| enter(1, 1)).collect();
        assert_eq!(small.len(), READS_MAX / 2);
        assert!(enter(1, 2).is_some());
        drop(small);
        let large = [enter(BYTES_MAX as u64 / 2, 1), enter(1, 1), enter(BYTES_MAX as u64 / 2, 2)];
        assert_eq!(large.map(|place| place.is_some()), [true, false, true]);
    }
}
