//! Values that one thread writes and another reads. It decides nothing and waits for nothing.

mod client_address;
mod counters;
mod freshness;
mod ingest_budget;
mod latency;
pub(crate) mod lock;
mod memory_budget;
mod serving;
mod stage_times;
mod status;
mod upstream_values;
mod work;

pub(crate) use client_address::ClientAddress;
pub(crate) use counters::{
    MISS_REASONS, MethodLabel, MissReason, OUTCOMES, Outcome, REFUSED, TIMEOUTS, ThreadCounters,
    Timeout, WS_ENDS, WS_KINDS, WsClose, WsKind,
};
pub(crate) use ingest_budget::{IngestBudget, IngestReservation};
#[cfg(test)]
pub(crate) use latency::LATENCY_OUTCOMES;
pub(crate) use latency::{LatencySeries, add, bounds, latency_series};
#[cfg(test)]
pub(crate) use memory_budget::tests;
pub(crate) use memory_budget::{
    Account, FREE_BYTES, HOLDERS, Holder, MemoryBudget, Meter, Place, Reservation,
};
pub(crate) use serving::Serving;
pub(crate) use stage_times::{StageTimes, add_elapsed};
pub(crate) use status::{Phase, Status, UpstreamStatus};
pub(crate) use upstream_values::{CONSTANT, CURRENT};
pub(crate) use work::{Began, Class, GONE_INTERVAL, Stop, Work, has_gone};
