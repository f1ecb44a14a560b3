//! Rate of the relayed requests to one upstream. Pure: the time comes from the caller.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::shared::ClientAddress;
use crate::upstream::RateLimiter;

/// Part of the rate that is the share of an address.
const SHARE: f64 = 0.25;
/// Time after which addresses that have their whole share again are forgotten.
pub(super) const FORGET: Duration = Duration::from_secs(1);

/// Rate of the relayed requests to an upstream, with a share for each address. Beyond its share an address gets
/// what others leave: a lone client, or a front that names no clients, has nearly all of the rate.
pub(in crate::relay) struct SharedPace {
    limiter: RateLimiter,
    /// Requests that each address made of its share, and the time of the last one.
    pub(super) used: HashMap<ClientAddress, (f64, Instant)>,
    forgot: Instant,
}

impl SharedPace {
    pub(super) fn new(limiter: RateLimiter, now: Instant) -> Self {
        Self { limiter, used: HashMap::new(), forgot: now }
    }

    /// True if an address may make a request now.
    pub(super) fn allows(&mut self, address: ClientAddress, now: Instant) -> bool {
        let Some(rate) = self.limiter.rate() else { return true };
        let share = rate * SHARE;
        let is_within = self.used(address, share, now) + 1.0 <= share.max(1.0);
        // Another address finds a whole share. A rate of up to one request a second has none to leave.
        let others = if is_within { 0.0 } else { share.min((rate - 1.0).max(0.0)) };
        self.limiter.wait_for(1.0 + others, now).is_zero()
    }

    /// Notes that an address made a request.
    pub(in crate::relay) fn made(&mut self, address: ClientAddress, now: Instant) {
        self.limiter.made(1);
        let Some(rate) = self.limiter.rate() else { return };
        let share = rate * SHARE;
        if now.saturating_duration_since(self.forgot) >= FORGET {
            self.used.retain(|_, used| used_now(*used, share, now) > 0.0);
            self.forgot = now;
        }
        // No more than the share is owed: an address that stops soon has it again.
        let used = (self.used(address, share, now) + 1.0).min(share.max(1.0));
        self.used.insert(address, (used, now));
    }

    /// Requests that an address made of a share of so many a second.
    fn used(&self, address: ClientAddress, share: f64, now: Instant) -> f64 {
        self.used.get(&address).map_or(0.0, |used| used_now(*used, share, now))
    }
}

fn used_now((used, at): (f64, Instant), share: f64, now: Instant) -> f64 {
    (used - now.saturating_duration_since(at).as_secs_f64() * share).max(0.0)
}
