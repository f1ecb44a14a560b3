//! Rates and limits that a reload of the settings replaces while neve runs.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::config::Config;
use super::limits::{Deadlines, Limits};
use super::websocket::WsLimits;

/// Rate that was given; `None` if the default holds, `Some(None)` for no limit.
type GivenRate = Option<Option<f64>>;

/// The rates in force.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rates {
    /// Requests a second to each upstream.
    pub(crate) upstream: GivenRate,
    /// Relayed requests a second to each upstream.
    pub(crate) relay: GivenRate,
    /// Bytes a second that the scrubber reads; `None`: it rests.
    pub(crate) scrub: Option<u64>,
}

/// Limits of clients in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientLimits {
    pub(crate) limits: Limits,
    pub(crate) deadlines: Deadlines,
    pub(crate) ws: WsLimits,
    /// Bytes of a request's line and headers.
    pub(crate) header_bytes_max: usize,
    /// Streams of a connection of HTTP/2.
    pub(crate) connection_streams_max: u32,
}

impl ClientLimits {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            limits: config.limits,
            deadlines: config.http.deadlines,
            ws: config.http.ws,
            header_bytes_max: config.http.header_bytes_max,
            connection_streams_max: config.http.connection_streams_max,
        }
    }
}

/// Rates that all threads read and a reload replaces.
pub(crate) type LiveRates = Arc<ArcSwap<Rates>>;

impl Rates {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            upstream: config.fetch.requests_per_second,
            relay: config.misses.requests_per_second,
            scrub: config.scrub_bytes_per_second,
        }
    }
}

/// Rate of the requests to one upstream.
#[derive(Clone)]
pub(crate) struct LiveRate {
    rates: LiveRates,
    of: fn(&Rates) -> GivenRate,
    /// Rate unless one was given.
    default: Option<f64>,
}

impl LiveRate {
    /// Rate that `of` selects, `default` unless it was given.
    pub(crate) fn new(
        rates: &LiveRates,
        of: fn(&Rates) -> GivenRate,
        default: Option<f64>,
    ) -> Self {
        Self { rates: Arc::clone(rates), of, default }
    }

    /// Returns the requests a second now; `None`: no limit.
    pub(crate) fn get(&self) -> Option<f64> {
        (self.of)(&self.rates.load()).unwrap_or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--on-miss` needs a restart, and the rate does not: the relay goes on with its rate.
    #[test]
    fn rate_of_the_relay_holds_also_if_the_newer_settings_have_none() {
        let fixed = ["--config", "none", "--data-dir", "/nowhere", "--upstream", "http://node"];
        for on_miss in ["relay", "refuse"] {
            let more = ["--relay-requests-per-second", "5", "--on-miss", on_miss];
            let (config, _) = Config::from_flags(&[&fixed[..], &more].concat()).unwrap();
            assert_eq!(Rates::of(&config).relay, Some(Some(5.0)), "{on_miss}");
        }
    }
}
