//! Nodes to fetch from: admission, heads, limits, and the choice of one for each height.

mod head_listener;
mod limits;
mod monitor;
mod pool;
mod probe;
mod state;

pub(crate) use head_listener::{Announced, HeadListener};
pub(crate) use limits::RateLimiter;
pub(crate) use monitor::UpstreamMonitor;
pub(crate) use pool::{FetchNeed, FetchPermit, PoolSlot, PoolState, Priority, UpstreamPool};
pub(crate) use probe::{BlockName, rules_of};
pub(crate) use state::{LATE, Upstream};
