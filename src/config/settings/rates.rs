//! Rates: limits per second, which a reload of the settings replaces while neve runs.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::Config;

/// Rate that was given; `None` if the default holds, `Some(None)` for no limit.
type Given = Option<Option<f64>>;

/// The rates in force.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rates {
    /// Requests a second to each upstream.
    pub(crate) upstream: Given,
    /// Relayed requests a second to each upstream.
    pub(crate) relay: Given,
    /// Bytes a second that the scrubber reads; `None`: it rests.
    pub(crate) scrub: Option<u64>,
}

/// Rates that all threads read and a reload replaces.
pub(crate) type LiveRates = Arc<ArcSwap<Rates>>;

impl Rates {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            upstream: config.fetch.requests_per_second,
            relay: config.misses.relay.as_ref().and_then(|relay| relay.requests_per_second),
            scrub: config.scrub_bytes_per_second,
        }
    }
}

/// Rate of the requests to one upstream.
#[derive(Clone)]
pub(crate) struct LiveRate {
    rates: LiveRates,
    of: fn(&Rates) -> Given,
    /// Rate unless one was given.
    default: Option<f64>,
}

impl LiveRate {
    /// Rate that `of` selects, `default` unless it was given.
    pub(crate) fn new(rates: &LiveRates, of: fn(&Rates) -> Given, default: Option<f64>) -> Self {
        Self { rates: Arc::clone(rates), of, default }
    }

    /// Returns the requests a second now; `None`: no limit.
    pub(crate) fn get(&self) -> Option<f64> {
        (self.of)(&self.rates.load()).unwrap_or(self.default)
    }
}
