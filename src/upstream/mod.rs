//! Nodes to fetch from: admission, heads, limits, and the choice of one for each height.

mod fetch_need;
mod head_listener;
mod limits;
mod monitor;
mod node_info;
mod pool;
mod pool_state;
mod probe;
mod rank;
mod state;
mod upgrades;

pub(crate) use fetch_need::{FetchNeed, Priority};
pub(crate) use head_listener::{Announced, HeadListener, height};
pub(crate) use limits::RateLimiter;
pub(crate) use monitor::UpstreamMonitor;
pub(crate) use node_info::{NodeInfo, watch_upgrades};
pub(crate) use pool::{AfterFailure, FetchPermit, PoolSlot, UpstreamPool};
pub(crate) use pool_state::PoolState;
pub(crate) use probe::{BlockName, rules_of};
#[cfg(test)]
pub(crate) use state::tests;
pub(crate) use state::{LATE, Upstream};
pub(crate) use upgrades::{NOTICE, NetworkUpgrade, UPGRADES, time_left};
