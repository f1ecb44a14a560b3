//! Reads a second from the object store, and the share of each address.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use metrics::counter;

use crate::shared::lock::lock;
use crate::shared::{Allowance, ClientAddress};

/// Addresses whose shares are remembered before those that are whole again are forgotten.
const ADDRESSES_MAX: usize = 4096;
/// Time after which a share is whole again.
const WHOLE_AFTER: Duration = Duration::from_secs(1);

/// Reads that are left. One address uses at most half.
pub(super) struct ReadRate {
    a_second: f64,
    left: Mutex<Left>,
}

struct Left {
    all: Allowance,
    addresses: HashMap<ClientAddress, (Allowance, Instant)>,
}

impl ReadRate {
    pub(super) fn new(a_second: f64) -> Self {
        let all = Allowance::new(a_second, Instant::now());
        Self { a_second, left: Mutex::new(Left { all, addresses: HashMap::new() }) }
    }

    /// Takes a read for an address. False if none is left, which is counted. What neve reads by itself is never
    /// refused.
    pub(super) fn take(&self, address: Option<ClientAddress>) -> bool {
        let refused = self.take_at(address, Instant::now()).err();
        if let Some(reason) = refused {
            counter!("neve_archive_refused_reads_total", "reason" => reason).increment(1);
        }
        refused.is_none()
    }

    fn take_at(&self, address: Option<ClientAddress>, now: Instant) -> Result<(), &'static str> {
        let mut left = lock(&self.left);
        if let Some(address) = address {
            if left.addresses.len() >= ADDRESSES_MAX {
                left.addresses.retain(|_, (_, used)| now.duration_since(*used) < WHOLE_AFTER);
            }
            let share = || (Allowance::new(self.a_second / 2.0, now), now);
            let (share, used) = left.addresses.entry(address).or_insert_with(share);
            *used = now;
            share.take(1, now).map_err(|_| "share")?;
        }
        let taken = left.all.take(1, now).map_err(|_| "budget");
        if address.is_some() { taken } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn at(last: u16) -> ClientAddress {
        let [low, high] = last.to_le_bytes();
        ClientAddress::from(IpAddr::from([10, 0, high, low]))
    }

    #[test]
    fn address_uses_half_of_the_reads() {
        let (rate, now) = (ReadRate::new(10.0), Instant::now());
        let taken = |address, now| (0..100).map_while(|_| rate.take_at(address, now).ok()).count();
        assert_eq!((taken(Some(at(1)), now), rate.take_at(Some(at(1)), now)), (5, Err("share")));
        assert_eq!((taken(Some(at(2)), now), taken(Some(at(3)), now)), (5, 0));
        assert_eq!(rate.take_at(Some(at(3)), now), Err("budget"));
        assert_eq!(taken(None, now + WHOLE_AFTER), 100, "neve itself");
        assert_eq!(rate.take_at(Some(at(3)), now + WHOLE_AFTER), Err("budget"));
    }

    #[test]
    fn addresses_that_read_nothing_are_forgotten() {
        let (rate, now) = (ReadRate::new(1e9), Instant::now());
        (0..5000).for_each(|last| _ = rate.take_at(Some(at(last)), now));
        assert_eq!(lock(&rate.left).addresses.len(), 5000, "all of them read in this second");
        let _ = rate.take_at(Some(at(1)), now + WHOLE_AFTER);
        assert_eq!(lock(&rate.left).addresses.len(), 1);
    }
}
