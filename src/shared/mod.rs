//! Values that several threads use, and the bounds and kinds of work for a request. Nothing here waits.

mod allowance;
mod client_address;
mod counters;
mod freshness;
mod ingest_budget;
mod latency;
pub(crate) mod lock;
mod memory_budget;
mod serving;
mod status;
mod upstream_values;
mod work;

pub(crate) use allowance::{Allowance, TokenBucket};
pub(crate) use client_address::ClientAddress;
pub(crate) use counters::{
    MISS_REASONS, MethodLabel, MissReason, OUTCOMES, Outcome, REFUSED, TIMEOUTS, ThreadCounters,
    Timeout, WS_ENDS, WS_KINDS, WsClose, WsKind,
};
pub(crate) use freshness::HeadMiss;
pub(crate) use ingest_budget::{IngestBudget, IngestReservation};
#[cfg(test)]
pub(crate) use latency::LATENCY_OUTCOMES;
pub(crate) use latency::{LatencySeries, RecentTimes, add, bounds, latency_series};
#[cfg(test)]
pub(crate) use memory_budget::tests;
pub(crate) use memory_budget::{
    Account, FREE_BYTES, FilterPlace, HOLDERS, Holder, MemoryBudget, Meter, RESPONSE_FREE_BYTES,
    Reservation,
};
pub(crate) use serving::Serving;
pub(crate) use status::{
    Phase, PushStatus, StageTimes, Status, UpstreamStatus, add_elapsed, unproven_head,
};
pub(crate) use upstream_values::{CONSTANT, CURRENT};
pub(crate) use work::{Began, Class, GONE_INTERVAL, Stop, Work, has_gone};
