//! neve as an operator sees it: health, metrics, log, progress, and what the kernel says of the process.
//!
//! It knows no HTTP.

pub(crate) mod access_log;
#[cfg(test)]
mod alert_table;
#[cfg(test)]
mod alerts;
mod capacity;
#[cfg(test)]
mod dashboard;
pub(crate) mod head_age;
mod health;
mod latencies;
pub(crate) mod log;
mod metric_table;
pub(crate) mod metrics;
pub(crate) mod page;
pub(crate) mod process;
pub(crate) mod progress;

pub(crate) use capacity::{CapacityBounds, DiskBounds, MirrorPlaces};
pub(crate) use health::{Admin, Pages};
pub(crate) use metric_table::help_of;
#[cfg(test)]
pub(crate) use metric_table::{METRICS, Metric, MetricKind};
pub(crate) use metrics::MetricsPage;
