//! Metrics that many threads count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::time::{MissedTickBehavior, interval};

use super::latencies;
use super::metric_table::{METRICS, Metric, MetricKind};
use crate::shared::{
    HOLDERS, MISS_REASONS, MemoryBudget, MethodLabel, OUTCOMES, REFUSED, TIMEOUTS, ThreadCounters,
    WS_ENDS, WS_KINDS,
};

/// Bounds of the buckets of histograms.
const SECONDS: [f64; 16] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

/// Installs the recorder and describes every metric.
pub(crate) fn install() -> Option<PrometheusHandle> {
    let mut times = METRICS.iter().filter(|metric| metric.kind == MetricKind::Histogram);
    let builder = times.try_fold(PrometheusBuilder::new(), |builder, metric| {
        builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), &SECONDS)
    });
    let handle = builder.ok()?.install_recorder().ok()?;
    for metric in METRICS {
        match metric.kind {
            MetricKind::Counter => describe_counter!(metric.name, metric.unit, metric.help()),
            MetricKind::Gauge | MetricKind::Sum => {
                describe_gauge!(metric.name, metric.unit, metric.help());
            }
            MetricKind::Histogram => describe_histogram!(metric.name, metric.unit, metric.help()),
        }
    }
    begin();
    gauge!("neve_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    gauge!("process_start_time_seconds").set(now.as_secs_f64());
    Some(handle)
}

/// Renderer of /metrics.
pub(crate) struct MetricsPage {
    pub(crate) recorder: PrometheusHandle,
    /// Renders the metrics of API keys, if there are keys.
    pub(crate) keys: Option<Box<dyn Fn() -> String + Send + Sync>>,
}

impl MetricsPage {
    /// Renders the page. A sum is a gauge of the recorder and a counter of Prometheus.
    pub(crate) fn render(&self, thread_counters: &[Arc<ThreadCounters>]) -> String {
        let sums = METRICS.iter().filter(|metric| metric.kind == MetricKind::Sum);
        let page = self.recorder.render() + &latencies::render(thread_counters);
        let page = sums.fold(page, |page, Metric { name, .. }| {
            page.replace(&format!("# TYPE {name} gauge"), &format!("# TYPE {name} counter"))
        });
        page + &self.keys.as_ref().map(|render| render()).unwrap_or_default()
    }
}

/// Gauges with a series for each upstream.
const OF_UPSTREAMS: [&str; 4] = [
    "neve_upstream_concurrency_limit{",
    "neve_upstream_in_flight_heights{",
    "neve_upstream_mean_response_seconds{",
    "neve_upstream_up{",
];

/// Leaves out the gauges of upstreams that a reload replaced: the recorder keeps them, and an alert of one
/// that was down would never end. Their counters stay.
pub(crate) fn without_replaced(page: &str, upstreams: &[&str]) -> String {
    let labels: Vec<_> = upstreams.iter().map(|name| format!("upstream=\"{name}\"")).collect();
    let is_current = |line: &&str| {
        !OF_UPSTREAMS.iter().any(|gauge| line.starts_with(gauge))
            || labels.iter().any(|label| line.contains(&**label))
    };
    page.split_inclusive('\n').filter(is_current).collect()
}

/// Begins each counter without labels at 0: a counter that appears with its first event has no increase.
fn begin() {
    for metric in METRICS {
        if metric.kind == MetricKind::Counter && metric.labels.is_empty() {
            counter!(metric.name).increment(0);
        }
    }
    for outcome in ["accepted", "rejected"] {
        counter!("neve_mirror_received_segments_total", "outcome" => outcome).increment(0);
        counter!("neve_archive_received_segments_total", "outcome" => outcome).increment(0);
    }
    counter!("neve_archive_proven_segments_total", "outcome" => "rejected").increment(0);
}

/// Publishes what clients make neve hold.
#[expect(clippy::cast_precision_loss, reason = "gauges are doubles")]
pub(crate) fn publish_memory(memory: &MemoryBudget) {
    gauge!("neve_client_reserved_bytes").set(memory.used() as f64);
    for (holder, name) in HOLDERS {
        counter!("neve_client_refused_reservations_total", "reason" => name)
            .absolute(memory.refused(holder));
    }
}

/// Adds up what the serving threads have counted.
pub(crate) fn publish(thread_counters: &[Arc<ThreadCounters>]) {
    // Sums are set, not added: a second scrape at the same time must not count them twice.
    publish_calls(thread_counters);
    publish_misses(thread_counters);
    let sum = |count: fn(&ThreadCounters) -> &std::sync::atomic::AtomicU64| {
        let load = |counters: &Arc<ThreadCounters>| {
            count(counters).load(std::sync::atomic::Ordering::Relaxed)
        };
        thread_counters.iter().map(load).sum::<u64>()
    };
    let (full, fast) = (sum(|counters| &counters.requests), sum(|counters| &counters.plain));
    counter!("neve_http_requests_total").absolute(full + fast);
    counter!("neve_http_fast_requests_total").absolute(fast);
    counter!("neve_http_response_bytes_total").absolute(sum(|counters| &counters.bytes));
    counter!("neve_http_offloaded_requests_total").absolute(sum(|counters| &counters.handed_over));
    publish_responses(thread_counters);
    publish_refusals(thread_counters);
    publish_websockets(thread_counters);
}

fn publish_calls(thread_counters: &[Arc<ThreadCounters>]) {
    // Series begin with their first event, because methods times outcomes would be hundreds of
    // empty ones.
    for (method, label) in MethodLabel::all() {
        for (outcome, name) in OUTCOMES.into_iter().enumerate() {
            let sum =
                thread_counters.iter().map(|counters| counters.calls(method, outcome)).sum::<u64>();
            if sum > 0 {
                counter!("neve_rpc_calls_total", "method" => label, "outcome" => name)
                    .absolute(sum);
            }
        }
    }
}

fn publish_misses(thread_counters: &[Arc<ThreadCounters>]) {
    for (method, label) in MethodLabel::all() {
        for (reason, name) in MISS_REASONS {
            let missed = thread_counters.iter().map(|counters| counters.misses(method, reason));
            let sum = missed.sum::<u64>();
            if sum > 0 {
                counter!("neve_rpc_misses_total", "method" => label, "reason" => name)
                    .absolute(sum);
            }
        }
    }
}

/// Responses by status, each from the first one on.
fn publish_responses(thread_counters: &[Arc<ThreadCounters>]) {
    let mut sums = BTreeMap::<u16, u64>::new();
    for (status, count) in thread_counters.iter().flat_map(|counters| counters.responses()) {
        *sums.entry(status).or_default() += count;
    }
    for (status, sum) in sums.into_iter().filter(|(_, sum)| *sum > 0) {
        counter!("neve_http_responses_total", "status" => status.to_string()).absolute(sum);
    }
}

/// Refused requests, and connections closed because a wait ran out.
fn publish_refusals(thread_counters: &[Arc<ThreadCounters>]) {
    for (at, (_, reason)) in REFUSED.iter().enumerate() {
        let sum = thread_counters.iter().map(|counters| counters.refused()[at]).sum::<u64>();
        counter!("neve_http_refused_requests_total", "reason" => *reason).absolute(sum);
    }
    for (wait, reason) in TIMEOUTS {
        let sum = thread_counters.iter().map(|counters| counters.timeouts(wait)).sum::<u64>();
        counter!("neve_http_connection_timeouts_total", "reason" => reason).absolute(sum);
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are doubles")]
fn publish_websockets(thread_counters: &[Arc<ThreadCounters>]) {
    let sum = |count: &dyn Fn(&ThreadCounters) -> u64| {
        thread_counters.iter().map(|counters| count(counters)).sum::<u64>()
    };
    gauge!("neve_ws_connections").set(sum(&ThreadCounters::ws_open) as f64);
    for (kind, name) in WS_KINDS {
        let open = sum(&|counters| counters.ws_subscriptions(kind));
        gauge!("neve_ws_subscriptions", "kind" => name).set(open as f64);
        let sent = sum(&|counters| counters.ws_notifications(kind));
        counter!("neve_ws_notifications_total", "kind" => name).absolute(sent);
    }
    for (why, name) in WS_ENDS {
        counter!("neve_ws_closed_connections_total", "reason" => name)
            .absolute(sum(&|counters| counters.ws_ended(why)));
    }
}

/// Samples of a histogram stay in memory until they are counted, which a scrape does, and this.
pub(crate) const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Runs the recorder's upkeep for ever, because samples add up until a scrape.
pub(crate) async fn keep_up(every: Duration, upkeep: impl Fn()) {
    let mut tick = interval(every);
    // One upkeep takes all samples that wait: several at once would find none.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        upkeep();
    }
}

#[cfg(test)]
mod tests {
    use metrics::{histogram, with_local_recorder};
    use tokio::time::timeout;

    use super::*;
    use crate::observe::process::Memory;

    const ROUNDS: u64 = 32;
    const SAMPLES: u64 = 1 << 20;
    const LIMIT: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn samples_that_nobody_scrapes_are_counted_and_freed() {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full("times".to_owned()), &SECONDS)
            .expect("there are buckets")
            .build_recorder();
        let handle = recorder.handle();
        let (ran, mut runs) = tokio::sync::watch::channel(());
        let upkeep = tokio::spawn(keep_up(Duration::from_millis(1), move || {
            handle.run_upkeep();
            ran.send_replace(());
        }));
        let before = Memory::now().expect("of this process").anonymous;
        for _ in 0..ROUNDS {
            let times = with_local_recorder(&recorder, || histogram!("times"));
            (0..SAMPLES).for_each(|_| times.record(0.01));
            runs.mark_unchanged();
            timeout(LIMIT, runs.changed()).await.expect("it runs").expect("for ever");
        }
        let grown = Memory::now().expect("of this process").anonymous.saturating_sub(before);
        upkeep.abort();
        let all = ROUNDS * SAMPLES * size_of::<f64>() as u64;
        assert!(grown < all / 2, "{grown} of {all} bytes are held");
        let count = format!("times_count {}", ROUNDS * SAMPLES);
        assert!(recorder.handle().render().contains(&count));
    }

    #[test]
    fn gauges_of_replaced_upstreams_are_left_out_and_their_counters_stay() {
        let page = "# TYPE neve_upstream_up gauge\nneve_upstream_up{upstream=\"http://a\"} 0\n\
                    neve_upstream_up{upstream=\"http://b\"} 1\n\
                    neve_upstream_requests_total{upstream=\"http://a\"} 3\n";
        let shown = without_replaced(page, &["http://b"]);
        assert_eq!(shown, page.replace("neve_upstream_up{upstream=\"http://a\"} 0\n", ""));
    }
}
