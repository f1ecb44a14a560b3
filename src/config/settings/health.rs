//! Conditions of /ready, and calls that depend on an old head.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use clap::ValueEnum;

use crate::config::error::ConfigError;
use crate::config::network::Network;
use crate::config::setting::{Group, Setting, age, count, duration, one_of};
use crate::config::units::AgeLimit;
use crate::config::values::Values;

/// Settings of /ready.
pub(super) const HEALTH: Group = Group {
    title: "Readiness",
    settings: &[
        Setting::new(
            "ready-lag-max",
            count("0", "1000000000000000"),
            "Blocks behind the upstream. Beyond it: /ready returns 503.",
        )
        .or("10")
        .reloads(),
        Setting::new(
            "ready-silence-max",
            duration("1s", "365d"),
            "Time that the upstream may be silent. Beyond it: /ready returns 503.",
        )
        .or("60s")
        .reloads(),
        Setting::new(
            "ready-age-max",
            age("1s", "365d"),
            "Age of the newest block, by its own time. Beyond it: /ready returns 503.",
        )
        .otherwise("60s on chain id 43114, else none: other chains may be quiet")
        .reloads(),
        Setting::new(
            "stale-heads",
            one_of::<StaleHeads>("serve|miss"),
            "Response to calls that depend on a head older than --ready-age-max: tags, \
             eth_blockNumber, open ranges, filters, subscriptions and prices. `miss` sends them \
             to a full node.",
        )
        .or("serve")
        .reloads(),
    ],
};

/// Response to calls that depend on a head that is too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum StaleHeads {
    /// Served, as a node does.
    #[default]
    Serve,
    /// Calls that depend on a stale head are misses.
    Miss,
}

/// Conditions under which /ready is 503.
#[derive(Debug, Clone, Copy)]
pub struct ReadyConfig {
    /// Blocks behind the upstream.
    pub lag_max: u64,
    /// Silence of the upstream.
    pub silence_max: Duration,
    /// Age of the head, if it was given.
    pub(crate) age_max: Option<AgeLimit>,
    /// True if calls that depend on a head of more than that age are misses.
    pub misses_stale_heads: bool,
}

/// Conditions of /ready while neve runs: a reload replaces them.
pub(crate) type LiveReady = Arc<ArcSwap<ReadyConfig>>;

/// Mainnet makes a block in about two seconds. A test network, or one's own, may be quiet for hours.
const AGE_MAX_OF_MAINNET: Duration = Duration::from_mins(1);

impl ReadyConfig {
    /// Limit of the head's age on this chain.
    pub(crate) fn age_max(&self, chain_id: u64) -> Option<Duration> {
        let default =
            (chain_id == Network::Mainnet.identity().chain_id).then_some(AGE_MAX_OF_MAINNET);
        self.age_max.map_or(default, |given| given.0)
    }
}

impl ReadyConfig {
    pub(super) fn of(values: &Values) -> Result<Self, ConfigError> {
        Ok(Self {
            lag_max: values.count("ready-lag-max")?,
            silence_max: values.duration("ready-silence-max")?,
            age_max: values.get("ready-age-max")?,
            misses_stale_heads: values.word::<StaleHeads>("stale-heads")? == StaleHeads::Miss,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_age_is_limited_by_default_on_mainnet_only() {
        let ready = |age_max: Option<&str>| ReadyConfig {
            lag_max: 10,
            silence_max: Duration::from_mins(1),
            age_max: age_max.map(|text| text.parse().unwrap()),
            misses_stale_heads: false,
        };
        assert_eq!(ready(None).age_max(43114), Some(Duration::from_mins(1)));
        assert_eq!(ready(None).age_max(43113), None);
        assert_eq!(ready(Some("none")).age_max(43114), None);
        assert_eq!(ready(Some("5m")).age_max(43113), Some(Duration::from_mins(5)));
    }
}
