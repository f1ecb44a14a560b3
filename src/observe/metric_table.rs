//! The table of metrics. The descriptions in /metrics and docs/reference/metrics.md come from it.

use metrics::Unit;

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// Grows from 0.
    Counter,
    /// Grows from 0 by fractions. The recorder's counters are whole numbers, so it is a gauge
    /// there.
    Sum,
    /// A present value.
    Gauge,
    /// Times, counted by their length.
    Histogram,
}

/// A metric of /metrics: its type, name, unit, labels and HELP text.
pub(crate) struct Metric {
    pub kind: MetricKind,
    pub name: &'static str,
    pub unit: Unit,
    /// Names of the labels, and the values of each: words with a space between, or a sentence in
    /// parentheses.
    pub labels: &'static [(&'static str, &'static str)],
    /// Meaning, without the labels.
    pub meaning: &'static str,
}

/// Meaning and labels of a metric of the table in one sentence.
pub(crate) fn help_of(name: &str) -> String {
    METRICS.iter().find(|metric| metric.name == name).map(Metric::help).unwrap_or_default()
}

impl Metric {
    /// Meaning and labels in one sentence.
    pub(crate) fn help(&self) -> String {
        let label = |(name, values): &(&str, &str)| {
            let is_open = values.starts_with('(');
            if is_open {
                (*name).to_owned()
            } else {
                format!("{name} ({})", values.replace(' ', ", "))
            }
        };
        let labels: Vec<_> = self.labels.iter().map(label).collect();
        if labels.is_empty() {
            return self.meaning.to_owned();
        }
        format!("{}, by {}", self.meaning, labels.join(" and "))
    }
}

macro_rules! metrics {
    ($(
        $kind:ident $unit:ident $name:literal [$($label:literal: $values:expr),*] $meaning:literal
    )*) => {
        &[$(Metric {
            kind: MetricKind::$kind,
            name: $name,
            unit: Unit::$unit,
            labels: &[$(($label, $values)),*],
            meaning: $meaning,
        }),*]
    };
}

const UPSTREAM: &str = "(scheme, host and port of the upstream)";
const METHOD: &str = "(name of a JSON-RPC method; `other` for a name that no node knows)";
const TIMED: &str = "(name of a JSON-RPC method that neve serves, or of state, execution, transactions to send, or a trace; `other` for any other name)";
const MISSES: &str = "not_served below_range above_head unknown_hash empty stale_head catching_up no_value unknown_filter unreadable in_batch no_memory";
const CALL: &str = "(name of the JSON-RPC method)";
const KEY: &str = "(name of the key in the file of --keys)";
const STATUS: &str = "(HTTP status code)";
const KINDS: &str = "new_heads logs relayed";
const POOLS: &str = "cold_read unpack search";
const CALL_ERRORS: &str =
    "unreachable timeout throttled not_served http_status too_large invalid_json rpc_error";
const RELAYED: &str = "ok no_upstream limited unreachable timeout http_status too_large invalid_json no_length secret not_served loop abandoned";
const HEDGE: &str = "won lost failed no_budget no_upstream abandoned";
const BROADCAST: &str = "ok rejected no_upstream limited unreachable timeout http_status too_large invalid_json no_length secret not_served";
const FAULTS: &str = "(a reason of `neve_upstream_call_errors_total` or `neve_blocks_rejected_total`, or `stalled`, \
     `missing_height`, `wrong_chain`, `disagrees`, `inconsistent`, `false_head`, `withdrew`)";
const TEXT_REASONS: &str = "receipts_text block_form signature quantity total_difficulty block_differs receipts_differ too_large";
const UNPACKABLE: &str = "block receipts hash_index log_index file read_back input";
const REJECTIONS: &str = "(the failed proof: see below)";

/// Every metric that /metrics can show.
pub(crate) const METRICS: &[Metric] = metrics! {
    Counter Count "neve_rpc_calls_total" ["method": METHOD, "outcome": "hit error miss"]
        "JSON-RPC calls, those of batches included"
    Counter Count "neve_rpc_misses_total" ["method": METHOD, "reason": MISSES]
        "Misses of JSON-RPC calls"
    Histogram Seconds "neve_rpc_call_duration_seconds"
        ["method": TIMED, "outcome": "hit error miss relay"]
        "Times from the receipt of a JSON-RPC call to its response, the same for all calls that one wake-up of a thread answers"
    Counter Count "neve_http_requests_total" []
        "HTTP requests to the main listener"
    Counter Count "neve_http_responses_total" ["status": STATUS]
        "HTTP responses of the main listener, without those to connections that it refuses"
    Counter Count "neve_http_fast_requests_total" []
        "HTTP requests that the fast path answered"
    Counter Count "neve_http_offloaded_requests_total" []
        "HTTP requests that a blocking thread answered"
    Counter Count "neve_http_refused_requests_total"
        ["reason": "bad_request host path method too_large media_type expectation headers transfer_coding busy failed"]
        "HTTP requests refused before JSON-RPC"
    Counter Bytes "neve_http_response_bytes_total" []
        "Bytes of HTTP response bodies"
    Counter Count "neve_http_connection_timeouts_total" ["reason": "idle write"]
        "Connections closed because the client sent no request or did not read"
    Gauge Count "neve_http_connections" []
        "Open connections of the main listener"
    Gauge Count "neve_offload_queued_requests" ["pool": POOLS]
        "Requests that wait for a blocking thread"
    Counter Count "neve_offload_refused_requests_total" ["pool": POOLS]
        "Requests refused because the queue for a blocking thread was full"
    Gauge Count "neve_ws_connections" []
        "Open WebSocket connections"
    Gauge Count "neve_ws_subscriptions" ["kind": KINDS]
        "Open WebSocket subscriptions"
    Counter Count "neve_ws_notifications_total" ["kind": KINDS]
        "WebSocket notifications sent"
    Counter Count "neve_ws_closed_connections_total"
        ["reason": "client lagging write_timeout ping_timeout too_large memory busy protocol malformed unreadable drain key upstream"]
        "WebSocket connections closed"
    Gauge Bytes "neve_client_reserved_bytes" []
        "Memory that clients make neve hold, of --client-bytes-total-max"
    Counter Count "neve_client_refused_reservations_total" ["reason": "header body message response unread filter relay"]
        "Reservations refused because the memory for clients was used up"
    Counter Count "neve_key_requests_total" ["key": KEY, "outcome": "ok limited method"]
        "HTTP requests and WebSocket messages with an API key"
    Counter Count "neve_key_calls_total" ["key": KEY]
        "JSON-RPC calls with an API key, and other requests"
    Counter Count "neve_key_unknown_requests_total" []
        "HTTP requests without a known API key, where one is needed"
    Counter Count "neve_access_log_lines_total" ["outcome": "written dropped failed"]
        "Lines for the access log: dropped because the queue was full, failed because they could not be written"
    Counter Count "neve_relay_requests_total" ["outcome": RELAYED]
        "Requests relayed to upstreams"
    Counter Count "neve_relay_broadcasts_total" ["outcome": BROADCAST]
        "Transactions of --relay-broadcast, each counted for each upstream"
    Counter Count "neve_relay_hedges_total" ["outcome": HEDGE]
        "Relayed reads that were due for a second upstream"
    Gauge Count "neve_relay_in_flight_requests" []
        "Relayed requests in flight"
    Gauge Count "neve_relay_websocket_connections" []
        "Open WebSocket connections to upstreams for relayed subscriptions"
    Counter Bytes "neve_relay_response_bytes_total" []
        "Bytes of relayed responses"
    Histogram Seconds "neve_relay_duration_seconds" []
        "Times of relayed requests, up to the last byte of the response"
    Gauge Count "neve_first_height" []
        "Lowest served height"
    Gauge Count "neve_head_height" []
        "Highest served height"
    Gauge Seconds "neve_head_age_seconds" []
        "Seconds between the time of the head's block and the system clock; absent if no upstream is followed"
    Gauge Count "neve_settled_height" []
        "Highest served height whose receipts a header commits to; absent after a start until an upstream answers"
    Gauge Count "neve_unsettled_heights" []
        "Served heights above neve_settled_height; absent after a start until an upstream answers"
    Gauge Count "neve_lag_heights" []
        "Heights between the head and the upstream head"
    Gauge Count "neve_upstream_head_height" []
        "Highest upstream head with a proven header or a stored block"
    Gauge Seconds "neve_upstream_silence_seconds" []
        "Seconds since an upstream in use last answered; absent if no upstream is followed"
    Gauge Count "neve_upstream_ws_connected" []
        "1 while an upstream announces heads over WebSocket, 0 while neve polls"
    Counter Count "neve_upstream_ws_connections_total" []
        "WebSocket connections opened to upstreams"
    Gauge Count "neve_upstream_up" ["upstream": UPSTREAM]
        "1 while neve fetches from the upstream, else 0"
    Counter Count "neve_upstream_call_errors_total" ["method": CALL, "reason": CALL_ERRORS]
        "Calls to upstreams that failed"
    Counter Count "neve_upstream_faults_total" ["upstream": UPSTREAM, "reason": FAULTS]
        "Faults for which neve paused, penalized or ejected an upstream"
    Counter Count "neve_upstream_blocks_total" ["upstream": UPSTREAM]
        "Proven heights that came from the upstream"
    Counter Count "neve_upstream_latest_mismatches_total" ["upstream": UPSTREAM]
        "Requests by the tag latest that returned another block than the announced head"
    Counter Count "neve_upstream_disagreements_total" []
        "Block hashes that the upstreams of a quorum did not confirm"
    Gauge Seconds "neve_upstream_unknown_upgrade_seconds" []
        "Time until the first scheduled upgrade that a node has and this neve does not know; 0 from then on, +Inf without one"
    Counter Count "neve_upstream_rejected_values_total" ["method": CALL, "reason": "malformed too_large type"]
        "Values that only the upstream knows, rejected because of their form"
    Counter Bytes "neve_upstream_received_bytes_total" []
        "Bytes of response bodies from upstreams"
    Gauge Count "neve_upstream_concurrency_limit" ["upstream": UPSTREAM]
        "Heights that neve may have in flight to the upstream"
    Gauge Count "neve_upstream_in_flight_heights" ["upstream": UPSTREAM]
        "Heights requested from the upstream and not yet answered"
    Gauge Seconds "neve_upstream_mean_response_seconds" ["upstream": UPSTREAM]
        "Recent mean time of the upstream's responses during catch-up and backfill"
    Histogram Seconds "neve_upstream_response_duration_seconds" []
        "Times of upstream responses with a block and its receipts during catch-up and backfill"
    Gauge Count "neve_mirror_stream_connected" []
        "1 while the mirror source streams records, else 0"
    Counter Count "neve_mirror_received_records_total" []
        "Records received from the stream of the mirror source"
    Counter Count "neve_mirror_received_segments_total" ["outcome": "accepted rejected"]
        "Segments and packed files received from the mirror source"
    Counter Bytes "neve_mirror_received_segment_bytes_total" []
        "Bytes of segments and packed files received from the mirror source"
    Counter Count "neve_archive_received_segments_total" ["outcome": "accepted rejected changed absent failed"]
        "Segments received from the archive; changed: their bytes do not match the digest in their name"
    Counter Bytes "neve_archive_received_segment_bytes_total" []
        "Bytes of segments received from the archive"
    Counter Count "neve_archive_proven_segments_total" ["outcome": "proven rejected failed"]
        "Segments below the served range that were to be proven for clients; rejected: also those over \
         --archive-proof-bytes-max; failed: they could not be read"
    Counter Count "neve_archive_reads_total" ["kind": "segment span pages filter terms manifest"]
        "Reads from the archive for requests; manifest: probes of a store that failed"
    Counter Bytes "neve_archive_read_bytes_total" []
        "Bytes read from the archive for requests"
    Counter Count "neve_archive_read_errors_total" ["reason": "absent changed timeout denied failed paused"]
        "Reads from the archive that failed; paused: not begun, because earlier ones had failed"
    Histogram Seconds "neve_archive_read_duration_seconds" ["kind": "segment span pages filter terms"]
        "Times of reads from the archive for requests"
    Counter Count "neve_archive_hedges_total" []
        "Second reads from the archive, because the first took longer than 95 % of the last ones"
    Counter Count "neve_archive_hedges_won_total" []
        "Second reads from the archive that ended before the first"
    Counter Count "neve_archive_refused_reads_total" ["reason": "budget share queue queue_share wait files"]
        "Reads from the archive beyond --archive-reads-per-second, --archive-read-bytes-per-second (budget) or the half of one \
         address (share); queue: too many waited, of all or of one address; wait: waited for too long; files: requests had too many \
         segments open"
    Gauge Count "neve_archive_rate_limit_reads" []
        "Reads from the archive that requests may cause in a second, --archive-reads-per-second"
    Gauge Bytes "neve_archive_rate_limit_bytes" []
        "Bytes of such reads in a second, --archive-read-bytes-per-second"
    Gauge Count "neve_archive_breaker_state" []
        "Breaker of reads from the archive: 0 closed, 1 open, 2 half open, which is a probe in flight"
    Counter Count "neve_archive_breaker_openings_total" []
        "Times that the breaker of reads from the archive opened"
    Counter Count "neve_archive_prefetched_segments_total" []
        "Archived segments that neve read whole, because a client read in order or many requests needed them"
    Counter Count "neve_archive_cache_pages_total" ["outcome": "hit miss"]
        "Pages of the archive that requests needed; hit: no read was needed"
    Counter Count "neve_archive_refused_pages_total" []
        "Pages of the archive that differ from their digests, and filters that no writer makes"
    Gauge Bytes "neve_archive_cache_bytes" []
        "Disk used by pages of the archive"
    Counter Count "neve_archive_requests_total" ["operation": "get put list delete", "outcome": "done failed"]
        "Requests to the object store of the archive"
    Counter Bytes "neve_archive_request_bytes_total" ["operation": "get put list delete"]
        "Bytes of objects that requests to the object store moved"
    Histogram Seconds "neve_archive_request_duration_seconds" ["operation": "get put list delete"]
        "Times of requests to the object store of the archive"
    Counter Count "neve_archive_pushes_total" ["outcome": "done failed"]
        "Pushes of packed files to the archive"
    Gauge Count "neve_archive_push_failing" []
        "1 if the last push to the archive failed"
    Gauge Count "neve_archive_bad_files" []
        "Packed files that the last push left out: damaged, unreadable or of another length"
    Gauge Count "neve_archive_backlog_heights" []
        "Packed heights that the archive lacks"
    Gauge Bytes "neve_archive_backlog_bytes" []
        "Bytes of packed files that the archive lacks"
    Gauge Bytes "neve_archive_held_bytes" []
        "Bytes of segments that the retention drops and eviction keeps for the archive"
    Gauge Bytes "neve_archive_held_limit_bytes" []
        "Bytes of --retain-unpushed-bytes: beyond them, segments are evicted without a copy"
    Counter Count "neve_archive_lost_heights_total" []
        "Heights evicted before they were in the archive"
    Gauge Seconds "neve_archive_manifest_put_timestamp_seconds" []
        "Time at which the manifest of the archive was put, by the clock of the store"
    Gauge Count "neve_mirror_connections" []
        "Open downloads and streams of mirrors, of --mirrors-max; absent without --serve-mirrors"
    Counter Bytes "neve_mirror_sent_bytes_total" []
        "Bytes of segments, packed files and records sent to mirrors"
    Counter Count "neve_mirror_sent_records_total" []
        "Records sent to mirrors"
    Counter Count "neve_evidence_files_total" []
        "Files written under evidence/"
    Sum Seconds "neve_ingest_stage_seconds_total" ["stage": "fetch prove assemble write"]
        "Seconds spent in a stage of ingest, added over all threads"
    Gauge Bytes "neve_ingest_reserved_bytes" []
        "Memory reserved for heights in flight, of --ingest-bytes-max"
    Gauge Bytes "neve_ingest_queue_bytes" []
        "Bytes of records that wait for the writer thread"
    Counter Count "neve_blocks_stored_total" []
        "Heights appended above the head"
    Counter Count "neve_blocks_backfilled_total" []
        "Heights published below the first one"
    Counter Count "neve_blocks_rejected_total" ["reason": REJECTIONS]
        "Heights whose upstream data failed a proof"
    Counter Count "neve_blocks_withdrawn_total" []
        "Published heights withdrawn because a later header disproved them"
    Counter Count "neve_blocks_evicted_total" []
        "Heights deleted by the retention rule"
    Counter Count "neve_settlements_unproven_total" []
        "Headers that settle heights whose receipts the store does not have"
    Gauge Count "neve_backfill_remaining_heights" []
        "Heights that backfill has still to fetch, as far as retention will keep them; NaN without an estimate"
    Counter Bytes "neve_store_written_bytes_total" []
        "Bytes of records written, those of backfill included"
    Counter Count "neve_logs_stored_total" []
        "Logs in the records written, those of backfill included"
    Histogram Seconds "neve_store_fsync_duration_seconds" []
        "Times of fsync calls for appended records"
    Gauge Bytes "neve_store_bytes" []
        "Disk used by the store, reserved space included"
    Gauge Count "neve_store_segments" []
        "Segment files that are served"
    Gauge Count "neve_store_packed_heights" []
        "Served heights in packed files"
    Gauge Bytes "neve_store_packed_bytes" []
        "Disk used by packed files"
    Counter Bytes "neve_store_unpacked_bytes_total" []
        "Bytes that reads of packed heights unpacked"
    Counter Count "neve_store_packed_heights_total" []
        "Heights packed"
    Counter Count "neve_store_packed_texts_total" ["reason": TEXT_REASONS]
        "Packed heights of which a part is stored as it came"
    Counter Count "neve_store_unpackable_ranges_total" ["reason": UNPACKABLE]
        "Ranges that stay unpacked"
    Gauge Count "neve_store_writable" []
        "1 while the writer stores records, 0 while the disk is full or the writer has stopped"
    Counter Count "neve_store_damaged_records_total" []
        "Records and indexes found damaged"
    Gauge Count "neve_store_unrepaired_records" []
        "Damaged records that are not repaired"
    Counter Count "neve_store_repaired_records_total" []
        "Damaged records fetched again and replaced"
    Counter Count "neve_store_lost_files_total" []
        "Segment files that another program removed and neve wrote again"
    Gauge Count "neve_store_gap_heights" []
        "Heights missing between the served range and the newest quarantined segment below it"
    Gauge Count "neve_store_quarantined_files" []
        "Segment files in quarantine"
    Gauge Bytes "neve_store_quarantined_bytes" []
        "Disk used by segment files in quarantine"
    Counter Bytes "neve_store_scrubbed_bytes_total" []
        "Bytes of sealed segments and merged hash tables read by the scrubber"
    Counter Count "neve_store_scrub_passes_total" []
        "Passes of the scrubber over the whole store"
    Gauge Bytes "neve_store_locked_bytes" []
        "Bytes of the newest records that the kernel keeps in memory"
    Gauge Bytes "neve_program_locked_bytes" []
        "Bytes of the program and its libraries that the kernel keeps in memory"
    Gauge Bytes "neve_store_bound_bytes" []
        "Bytes of --retain-bytes, beyond which neve deletes the oldest heights"
    Gauge Seconds "neve_store_time_to_full_seconds" []
        "Time until the store reaches its bound, or the disk its reserve, at the pace of the newest blocks; +Inf if it is not known"
    Gauge Bytes "neve_disk_free_bytes" []
        "Free bytes of the file system with the data directory"
    Gauge Bytes "neve_memory_anonymous_bytes" []
        "Resident memory without mapped files"
    Gauge Bytes "process_resident_memory_bytes" []
        "Resident memory, mapped files included"
    Gauge Bytes "process_virtual_memory_bytes" []
        "Virtual memory, mapped files included"
    Sum Seconds "process_cpu_seconds_total" []
        "CPU time of the process, in user and in system mode"
    Gauge Count "process_open_fds" []
        "Open file descriptors"
    Gauge Count "process_max_fds" []
        "Highest number of open file descriptors"
    Gauge Seconds "process_start_time_seconds" []
        "Start of the process, in seconds since 1970"
    Counter Count "neve_major_page_faults_total" []
        "Page faults that waited for the disk"
    Gauge Count "neve_build_info" ["version": "(version of the program)"]
        "1, for the running version of neve"
    Counter Count "neve_log_dropped_lines_total" []
        "Log lines dropped because standard error was not read in time"
    Counter Count "neve_log_repeated_lines_total" []
        "Warnings and errors left out of the log because they repeated within a second"
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::reference;
    use crate::shared::HOLDERS;
    use crate::shared::{
        LATENCY_OUTCOMES, MISS_REASONS, OUTCOMES, REFUSED, TIMEOUTS, WS_ENDS, WS_KINDS,
    };

    fn values(name: &str, label: &str) -> Vec<&'static str> {
        let metric = METRICS.iter().find(|metric| metric.name == name).expect("it is there");
        let (_, values) = metric.labels.iter().find(|(own, _)| *own == label).expect("it is there");
        values.split(' ').collect()
    }

    #[test]
    fn label_values_are_those_that_the_threads_count() {
        assert_eq!(values("neve_rpc_calls_total", "outcome"), OUTCOMES);
        assert_eq!(values("neve_rpc_call_duration_seconds", "outcome"), LATENCY_OUTCOMES);
        let missed = values("neve_rpc_misses_total", "reason");
        assert_eq!(missed, MISS_REASONS.map(|(_, name)| name));
        let refused = values("neve_http_refused_requests_total", "reason");
        assert_eq!(refused, REFUSED.map(|(_, name)| name));
        let timeouts = values("neve_http_connection_timeouts_total", "reason");
        assert_eq!(timeouts, TIMEOUTS.map(|(_, name)| name));
        let closed = values("neve_ws_closed_connections_total", "reason");
        assert_eq!(closed, WS_ENDS.map(|(_, name)| name));
        assert_eq!(values("neve_ws_subscriptions", "kind"), WS_KINDS.map(|(_, name)| name));
        let holders = values("neve_client_refused_reservations_total", "reason");
        assert_eq!(holders, HOLDERS.map(|(_, name)| name));
    }

    #[test]
    fn name_ends_with_the_unit_and_the_kind() {
        for metric in METRICS {
            let counts = matches!(metric.kind, MetricKind::Counter | MetricKind::Sum);
            assert_eq!(metric.name.ends_with("_total"), counts, "{}", metric.name);
            let name = metric.name.trim_end_matches("_total");
            let unit = match metric.unit {
                Unit::Bytes => "_bytes",
                Unit::Seconds => "_seconds",
                _ => "",
            };
            assert!(name.ends_with(unit), "{}", metric.name);
            let times = metric.kind == MetricKind::Histogram;
            assert_eq!(name.ends_with("_duration_seconds"), times, "{}", metric.name);
        }
    }

    #[test]
    fn page_of_metrics_is_generated_from_the_table() {
        reference::check("metrics.md", &reference::metrics());
    }
}
