//! Reads and bytes a second from the object store, and the share of each address.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use metrics::gauge;

use super::read_gate::Payer;
use crate::shared::lock::lock;
use crate::shared::{Allowance, ClientAddress};

/// Addresses whose shares are remembered before those that are whole again are forgotten.
const ADDRESSES_MAX: usize = 4096;
/// Unit in which bytes are counted.
const BYTES_UNIT: u64 = 1024;

/// Rates of the settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadRates {
    /// Reads a second.
    pub(crate) reads: u32,
    /// Bytes a second.
    pub(crate) bytes: u64,
}

/// Reads and bytes that are left. One address uses at most half.
pub(super) struct ReadRate {
    rates: ReadRates,
    left: Mutex<Left>,
}

struct Left {
    all: Share,
    addresses: HashMap<ClientAddress, Share>,
}

/// Reads and bytes that are left to one address, or to all.
struct Share {
    reads: Allowance,
    bytes: Allowance,
}

impl Share {
    fn new(rates: ReadRates, part: f64, now: Instant) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more digits")]
        let units = (rates.bytes / BYTES_UNIT) as f64;
        let reads = Allowance::new(f64::from(rates.reads) * part, now);
        Self { reads, bytes: Allowance::new(units * part, now) }
    }

    fn is_ready(&mut self, now: Instant) -> bool {
        self.reads.ready(now).is_ok() && self.bytes.ready(now).is_ok()
    }

    /// Takes reads of so many units together. Those beyond what is left are a debt, which later reads wait for.
    fn take(&mut self, (reads, units): (u32, u32), now: Instant) {
        let _ = self.reads.take(reads, now); // the caller has looked
        let _ = self.bytes.take(units, now);
    }

    /// True if reads of so many units together leave half of a second's worth.
    fn spares(&mut self, (reads, units): (u32, u32), now: Instant) -> bool {
        self.reads.spares(reads, now) && self.bytes.spares(units, now)
    }

    /// True if it lets reads of so many units pass. Those ahead must leave half of a second's worth.
    fn lets(&mut self, payer: Payer, amount: (u32, u32), now: Instant) -> bool {
        match payer {
            Payer::Ahead(_) => self.spares(amount, now),
            Payer::Neve | Payer::Client(_) => self.is_ready(now),
        }
    }

    fn is_whole(&mut self, now: Instant) -> bool {
        self.reads.is_whole(now) && self.bytes.is_whole(now)
    }
}

impl ReadRate {
    pub(super) fn new(rates: ReadRates) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a gauge needs no more digits")]
        let bytes = rates.bytes as f64;
        gauge!("neve_archive_rate_limit_reads").set(rates.reads);
        gauge!("neve_archive_rate_limit_bytes").set(bytes);
        let all = Share::new(rates, 1.0, Instant::now());
        Self { rates, left: Mutex::new(Left { all, addresses: HashMap::new() }) }
    }

    /// Bytes of a quarter of a second. The debt of a read of so many is paid soon.
    pub(super) fn read_bytes_max(&self) -> u64 {
        self.rates.bytes / 4
    }

    /// Takes reads of so many bytes together, or says which bound refuses it. What neve reads by itself is never refused, and
    /// its bytes do not count. A read ahead makes no debt, and leaves half of a second's worth to requests.
    pub(super) fn take(
        &self,
        payer: Payer,
        (reads, bytes): (u64, u64),
    ) -> Result<(), &'static str> {
        self.take_at(payer, (reads, bytes), Instant::now())
    }

    fn take_at(&self, payer: Payer, reads: (u64, u64), now: Instant) -> Result<(), &'static str> {
        let amount = amount_of(reads);
        let Left { all, addresses } = &mut *lock(&self.left);
        let Some(address) = payer.address() else {
            let _ = all.reads.take(amount.0, now);
            return Ok(());
        };
        forget_whole(addresses, now);
        let share = addresses.entry(address).or_insert_with(|| Share::new(self.rates, 0.5, now));
        if !share.lets(payer, amount, now) {
            return Err("share");
        }
        if !all.lets(payer, amount, now) {
            return Err("budget");
        }
        // Only now: a read that is refused takes of neither.
        share.take(amount, now);
        all.take(amount, now);
        Ok(())
    }
}

/// Number of reads, and the units that count for their bytes.
fn amount_of((reads, bytes): (u64, u64)) -> (u32, u32) {
    let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    (narrow(reads), narrow(bytes.div_ceil(BYTES_UNIT)))
}

/// Forgets addresses with their whole share if there are many: they lose nothing with their entries.
fn forget_whole(addresses: &mut HashMap<ClientAddress, Share>, now: Instant) {
    if addresses.len() >= ADDRESSES_MAX {
        addresses.retain(|_, share| !share.is_whole(now));
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(last: u16) -> ClientAddress {
        let [low, high] = last.to_le_bytes();
        ClientAddress::from(IpAddr::from([10, 0, high, low]))
    }

    fn at(last: u16) -> Payer {
        Payer::Client(address(last))
    }

    #[test]
    fn address_uses_half_of_the_reads() {
        let (rate, now) = (ReadRate::new(ReadRates { reads: 10, bytes: 1 << 40 }), Instant::now());
        let taken =
            |payer, now| (0..100).map_while(|_| rate.take_at(payer, (1, 1), now).ok()).count();
        assert_eq!((taken(at(1), now), rate.take_at(at(1), (1, 1), now)), (5, Err("share")));
        assert_eq!((taken(at(2), now), taken(at(3), now)), (5, 0));
        assert_eq!(rate.take_at(at(3), (1, 1), now), Err("budget"));
        assert_eq!(taken(Payer::Neve, now + SECOND), 100, "neve itself");
        assert_eq!(rate.take_at(at(3), (1, 1), now + SECOND), Err("budget"));
    }

    #[test]
    fn address_uses_half_of_the_bytes_and_pays_for_a_long_read_later() {
        let (rate, now) =
            (ReadRate::new(ReadRates { reads: 1000, bytes: 8 << 20 }), Instant::now());
        let read =
            |address, bytes, after: Duration| rate.take_at(at(address), (1, bytes), now + after);
        assert_eq!(rate.take_at(Payer::Neve, (1, 1 << 40), now), Ok(()), "neve itself");
        assert_eq!(read(1, 6 << 20, Duration::ZERO), Ok(()), "of 4 MiB");
        assert_eq!(read(1, 1, Duration::ZERO), Err("share"));
        assert_eq!(read(2, 3 << 20, Duration::ZERO), Ok(()), "a debt of all");
        assert_eq!(read(3, 1, Duration::ZERO), Err("budget"));
        assert_eq!(read(1, 1, SECOND / 4), Err("share"));
        assert_eq!(read(1, 1, SECOND), Ok(()));
    }

    #[test]
    fn addresses_that_read_nothing_are_forgotten() {
        let (rate, now) =
            (ReadRate::new(ReadRates { reads: 1_000_000, bytes: 1 << 40 }), Instant::now());
        (0..5000).for_each(|last| _ = rate.take_at(at(last), (1, 1 << 20), now));
        assert_eq!(lock(&rate.left).addresses.len(), 5000, "all of them read in this second");
        let _ = rate.take_at(at(1), (1, 1), now + SECOND);
        assert_eq!(lock(&rate.left).addresses.len(), 1);
    }

    #[test]
    fn address_with_a_debt_is_remembered() {
        let (rate, now) =
            (ReadRate::new(ReadRates { reads: 1_000_000, bytes: 1 << 20 }), Instant::now());
        assert_eq!(rate.take_at(at(1), (1, 64 << 20), now), Ok(()));
        (2..5000).for_each(|last| _ = rate.take_at(at(last), (1, 1), now));
        let _ = rate.take_at(at(2), (1, 1), now + 2 * SECOND);
        assert_eq!(rate.take_at(at(1), (1, 1), now + 2 * SECOND), Err("share"));
    }

    #[test]
    fn read_ahead_makes_no_debt_and_leaves_reads_to_requests() {
        let (rate, now) = (ReadRate::new(ReadRates { reads: 8, bytes: 1 << 20 }), Instant::now());
        let ahead = |last, bytes, now| rate.take_at(Payer::Ahead(address(last)), (1, bytes), now);
        assert_eq!(ahead(1, 4 << 20, now), Err("share"), "it would be a debt");
        assert_eq!(ahead(1, 256 << 10, now), Ok(()), "half of the share");
        assert_eq!(ahead(1, 1, now), Err("share"));
        assert_eq!(rate.take_at(at(1), (1, 256 << 10), now), Ok(()), "a request");
        assert_eq!(ahead(2, 1, now), Err("budget"), "half of all is taken");
        assert_eq!(rate.take_at(at(2), (1, 1), now), Ok(()), "a request of another address");
        let reads = (0..8).map_while(|_| ahead(3, 1, now + SECOND).ok()).count();
        assert_eq!(reads, 2, "half of the reads of an address");
    }
}
