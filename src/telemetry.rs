//! The one table of metrics, and logging.

use std::io::IsTerminal;
use std::sync::Arc;

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use neve_jsonrpc::Method;
use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::tally::{OUTCOMES, Outcome, Tally};

/// How a metric behaves.
#[derive(Clone, Copy)]
enum Kind {
    /// It only grows.
    Counter,
    /// It is what it is now.
    Gauge,
}
use Kind::{Counter, Gauge};

/// Every metric: kind, name, unit, meaning. docs/OPERATING.md prints it.
const METRICS: &[(Kind, &str, Unit, &str)] = &[
    (
        Counter,
        "neve_rpc_calls_total",
        Unit::Count,
        "JSON-RPC calls, batched ones included, by method and outcome (hit, error, miss)",
    ),
    (Counter, "neve_http_requests_total", Unit::Count, "HTTP requests"),
    (
        Counter,
        "neve_http_refused_total",
        Unit::Count,
        "HTTP requests refused before JSON-RPC: path, method, content type, size",
    ),
    (Counter, "neve_http_reply_bytes_total", Unit::Bytes, "Bytes of reply bodies"),
    (
        Counter,
        "neve_http_timeouts_total",
        Unit::Count,
        "Connections closed because the client was idle or did not read",
    ),
    (Gauge, "neve_http_connections", Unit::Count, "Open connections"),
    (Gauge, "neve_first_height", Unit::Count, "Lowest height served"),
    (Gauge, "neve_head_height", Unit::Count, "Highest height served"),
    (
        Gauge,
        "neve_verified_height",
        Unit::Count,
        "Highest height whose receipts a header has proven",
    ),
    (
        Gauge,
        "neve_unverified_heights",
        Unit::Count,
        "Served heights above it, which a later header will settle",
    ),
    (Gauge, "neve_upstream_head_height", Unit::Count, "The upstream's head"),
    (Gauge, "neve_lag_heights", Unit::Count, "Heights between the two heads"),
    (
        Gauge,
        "neve_upstream_silence_seconds",
        Unit::Seconds,
        "Time since the upstream last answered",
    ),
    (
        Gauge,
        "neve_upstream_ws_live",
        Unit::Count,
        "1 while heads come by WebSocket, 0 while they are polled for",
    ),
    (
        Counter,
        "neve_upstream_errors_total",
        Unit::Count,
        "Calls to the upstream that failed, by method and reason",
    ),
    (Counter, "neve_upstream_ws_connects_total", Unit::Count, "WebSocket connections opened"),
    (Counter, "neve_blocks_stored_total", Unit::Count, "Heights published"),
    (
        Counter,
        "neve_blocks_refused_total",
        Unit::Count,
        "Blocks and receipts that were refused, by reason",
    ),
    (
        Counter,
        "neve_blocks_withdrawn_total",
        Unit::Count,
        "Published heights taken back because a later header disproved them",
    ),
    (
        Counter,
        "neve_proofs_missing_total",
        Unit::Count,
        "Headers that settle heights whose receipts are not here, and so prove nothing",
    ),
    (Counter, "neve_blocks_evicted_total", Unit::Count, "Heights evicted"),
    (
        Gauge,
        "neve_store_bytes",
        Unit::Bytes,
        "Disk used by the store, what is allocated ahead included",
    ),
    (Gauge, "neve_store_segments", Unit::Count, "Segment files"),
    (Gauge, "neve_disk_free_bytes", Unit::Bytes, "Free disk where the store is"),
    (
        Gauge,
        "neve_store_writable",
        Unit::Count,
        "0 while the disk is full or the writer has stopped",
    ),
    (Gauge, "neve_queue_bytes", Unit::Bytes, "Bytes of blocks that wait for the disk"),
    (
        Gauge,
        "process_resident_memory_bytes",
        Unit::Bytes,
        "Resident memory, mapped segments included",
    ),
    (Gauge, "neve_memory_anonymous_bytes", Unit::Bytes, "Resident memory apart from mapped files"),
    (
        Gauge,
        "neve_major_page_faults",
        Unit::Count,
        "Page faults that went to the disk since the start",
    ),
    (Gauge, "neve_build_info", Unit::Count, "1, with the version as a label"),
];

/// Installs the recorder and describes every metric.
pub(crate) fn install() -> Option<PrometheusHandle> {
    let handle = PrometheusBuilder::new().install_recorder().ok()?;
    for (kind, name, unit, meaning) in METRICS {
        match kind {
            Counter => describe_counter!(*name, *unit, *meaning),
            Gauge => describe_gauge!(*name, *unit, *meaning),
        }
    }
    gauge!("neve_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Some(handle)
}

/// Adds up what the serving threads have counted.
pub(crate) fn publish(tallies: &[Arc<Tally>]) {
    let methods = Method::ALL.iter().copied().map(Some).chain([None]);
    for method in methods {
        let label = method.map_or("other", Method::name);
        for (outcome, name) in
            [Outcome::Hit, Outcome::Error, Outcome::Miss].into_iter().zip(OUTCOMES)
        {
            let sum = tallies.iter().map(|tally| tally.calls(method, outcome)).sum::<u64>();
            if sum > 0 {
                counter!("neve_rpc_calls_total", "method" => label, "outcome" => name)
                    .absolute(sum);
            }
        }
    }
    let sum = |count: fn(&Tally) -> &std::sync::atomic::AtomicU64| {
        let load = |tally: &Arc<Tally>| count(tally).load(std::sync::atomic::Ordering::Relaxed);
        tallies.iter().map(load).sum::<u64>()
    };
    counter!("neve_http_requests_total").absolute(sum(|tally| &tally.requests));
    counter!("neve_http_refused_total").absolute(sum(|tally| &tally.refused));
    counter!("neve_http_reply_bytes_total").absolute(sum(|tally| &tally.bytes));
    counter!("neve_http_timeouts_total").absolute(sum(|tally| &tally.timeouts));
}

/// Starts logging to standard error.
pub(crate) fn log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if let Err(error) = started {
        eprintln!("neve: logging is set up already: {error}");
    }
}
