//! The one table of metrics, and logging.

use std::io::IsTerminal;
use std::sync::Arc;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use neve_jsonrpc::Method;
use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::progress::Beside;
use crate::tally::{OUTCOMES, Outcome, Tally, WS_ENDS, WS_KINDS};

/// How a metric behaves.
#[derive(Clone, Copy)]
enum Kind {
    /// It only grows.
    Counter,
    /// It is what it is now.
    Gauge,
    /// Times, counted by how long they were: see [`SECONDS`].
    Histogram,
}
use Kind::{Counter, Gauge, Histogram};

/// Bounds of the buckets of histograms.
const SECONDS: [f64; 16] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

/// Every metric: kind, name, unit, meaning. docs/OPERATING.md says what to make of them.
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
    (
        Counter,
        "neve_http_handed_over_total",
        Unit::Count,
        "Requests answered away from the serving threads: cold data, long answers, filters",
    ),
    (
        Counter,
        "neve_http_plain_total",
        Unit::Count,
        "Requests of the plainest form, which cost the least: POST, a length, no Origin",
    ),
    (Gauge, "neve_http_connections", Unit::Count, "Open connections"),
    (Gauge, "neve_ws_connections", Unit::Count, "Open WebSockets, which are connections too"),
    (Gauge, "neve_ws_subscriptions", Unit::Count, "Open subscriptions, by kind (newHeads, logs)"),
    (Counter, "neve_ws_notifications_total", Unit::Count, "Notifications sent, by kind"),
    (
        Counter,
        "neve_ws_ended_total",
        Unit::Count,
        "WebSockets that ended, by reason: client, slow, unread, ping, size, room, protocol, \
         malformed, damaged, drain",
    ),
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
    (
        Counter,
        "neve_upstream_heights_total",
        Unit::Count,
        "Heights that an upstream gave and that were proven, by upstream",
    ),
    (
        Counter,
        "neve_upstream_faults_total",
        Unit::Count,
        "What was wrong with an upstream, by upstream and reason: work went elsewhere",
    ),
    (
        Counter,
        "neve_upstream_newest_missed_total",
        Unit::Count,
        "Heads that did not come for latest and were asked for by number, by upstream",
    ),
    (
        Counter,
        "neve_upstream_disagreements_total",
        Unit::Count,
        "Hashes that another upstream did not confirm (--agree)",
    ),
    (Gauge, "neve_upstream_asked", Unit::Count, "1 while heights are asked of the upstream"),
    (
        Gauge,
        "neve_upstream_window_heights",
        Unit::Count,
        "Heights that may be under way to an upstream at a time",
    ),
    (Gauge, "neve_upstream_under_way_heights", Unit::Count, "Heights that are"),
    (
        Gauge,
        "neve_upstream_answer_seconds",
        Unit::Seconds,
        "Recent mean of an upstream's answers about heights, while catching up and backfilling",
    ),
    (
        Histogram,
        "neve_upstream_answers_seconds",
        Unit::Seconds,
        "Answers about heights, while catching up and backfilling: block and receipts in one request",
    ),
    (Counter, "neve_upstream_bytes_total", Unit::Bytes, "Bodies of answers"),
    (Gauge, "neve_mirror_live", Unit::Count, "1 while records come by the stream of --mirror-from"),
    (Counter, "neve_mirror_records_total", Unit::Count, "Records that the stream brought"),
    (
        Counter,
        "neve_mirror_segments_total",
        Unit::Count,
        "Segments of --mirror-from, by outcome: taken, refused",
    ),
    (Counter, "neve_mirror_segment_bytes_total", Unit::Bytes, "Bytes of their files that came"),
    (Counter, "neve_mirrors_sent_bytes_total", Unit::Bytes, "Bytes of segments and streams sent"),
    (Counter, "neve_mirrors_sent_records_total", Unit::Count, "Records sent to mirrors"),
    (
        Counter,
        "neve_evidence_files_total",
        Unit::Count,
        "Answers that were refused, or accepted in their place, and kept under evidence/",
    ),
    (Counter, "neve_blocks_backfilled_total", Unit::Count, "Heights published below the first one"),
    (Gauge, "neve_backfill_left_heights", Unit::Count, "Heights that backfill still wants"),
    (
        Gauge,
        "neve_ingest_seconds",
        Unit::Seconds,
        "Time spent so far, over all threads, by stage: fetch (waiting included), prove, cut, write",
    ),
    (
        Gauge,
        "neve_budget_bytes",
        Unit::Bytes,
        "Room taken by blocks on their way, of --queue-bytes-max",
    ),
    (Counter, "neve_upstream_ws_connects_total", Unit::Count, "WebSocket connections opened"),
    (Counter, "neve_blocks_stored_total", Unit::Count, "Heights published"),
    (Counter, "neve_stored_bytes_total", Unit::Bytes, "Bytes of records written, history included"),
    (Counter, "neve_stored_logs_total", Unit::Count, "Logs in them"),
    (
        Histogram,
        "neve_store_syncs_seconds",
        Unit::Seconds,
        "Syncs of what was appended, beside the writer; sealing syncs too, and is in neve_ingest_seconds",
    ),
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
    (
        Gauge,
        "neve_store_locked_bytes",
        Unit::Bytes,
        "Newest bytes that stay in memory once they were asked for",
    ),
    (
        Gauge,
        "neve_program_locked_bytes",
        Unit::Bytes,
        "Bytes of the program and its libraries that stay in memory once they were used",
    ),
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
        Counter,
        "neve_major_page_faults_total",
        Unit::Count,
        "Page faults that went to the disk since the start",
    ),
    (Gauge, "neve_build_info", Unit::Count, "1, with the version as a label"),
];

/// Counters with labels: their series begin with the first of their kind.
const LABELLED: [&str; 9] = [
    "neve_rpc_calls_total",
    "neve_ws_notifications_total",
    "neve_ws_ended_total",
    "neve_upstream_errors_total",
    "neve_upstream_heights_total",
    "neve_upstream_faults_total",
    "neve_upstream_newest_missed_total",
    "neve_mirror_segments_total",
    "neve_blocks_refused_total",
];

/// Installs the recorder and describes every metric.
pub(crate) fn install() -> Option<PrometheusHandle> {
    let mut times = METRICS.iter().filter(|(kind, ..)| matches!(kind, Histogram));
    let builder = times.try_fold(PrometheusBuilder::new(), |builder, (_, name, ..)| {
        builder.set_buckets_for_metric(Matcher::Full((*name).to_owned()), &SECONDS)
    });
    let handle = builder.ok()?.install_recorder().ok()?;
    for (kind, name, unit, meaning) in METRICS {
        match kind {
            Counter => describe_counter!(*name, *unit, *meaning),
            Gauge => describe_gauge!(*name, *unit, *meaning),
            Histogram => describe_histogram!(*name, *unit, *meaning),
        }
    }
    begin();
    gauge!("neve_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Some(handle)
}

/// Has counters begin at 0: one that appears with its first event has no increase to give an alert for.
fn begin() {
    for (kind, name, ..) in METRICS {
        if matches!(kind, Counter) && !LABELLED.contains(name) {
            counter!(*name).increment(0);
        }
    }
    for outcome in ["taken", "refused"] {
        counter!("neve_mirror_segments_total", "outcome" => outcome).increment(0);
    }
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
    counter!("neve_http_plain_total").absolute(sum(|tally| &tally.plain));
    counter!("neve_http_refused_total").absolute(sum(|tally| &tally.refused));
    counter!("neve_http_reply_bytes_total").absolute(sum(|tally| &tally.bytes));
    counter!("neve_http_timeouts_total").absolute(sum(|tally| &tally.timeouts));
    counter!("neve_http_handed_over_total").absolute(sum(|tally| &tally.handed_over));
    publish_websockets(tallies);
}

#[expect(clippy::cast_precision_loss, reason = "gauges are doubles")]
fn publish_websockets(tallies: &[Arc<Tally>]) {
    let sum = |count: &dyn Fn(&Tally) -> u64| tallies.iter().map(|tally| count(tally)).sum::<u64>();
    gauge!("neve_ws_connections").set(sum(&Tally::ws_open) as f64);
    for (kind, name) in WS_KINDS {
        let open = sum(&|tally| tally.ws_subscriptions(kind));
        gauge!("neve_ws_subscriptions", "kind" => name).set(open as f64);
        let sent = sum(&|tally| tally.ws_notifications(kind));
        counter!("neve_ws_notifications_total", "kind" => name).absolute(sent);
    }
    for (why, name) in WS_ENDS {
        counter!("neve_ws_ended_total", "reason" => name)
            .absolute(sum(&|tally| tally.ws_ended(why)));
    }
}

/// Starts logging to standard error.
pub(crate) fn log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Beside)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if let Err(error) = started {
        eprintln!("neve: logging is set up already: {error}");
    }
}
