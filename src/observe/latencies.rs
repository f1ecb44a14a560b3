//! The histogram of call times as text of /metrics: the recorder has no way to take sums of threads.

use std::fmt::Write;
use std::sync::Arc;

use super::metric_table::help_of;
use crate::shared::{LatencySeries, ThreadCounters, bounds, latency_series};

/// Name of the histogram.
pub(crate) const LATENCIES: &str = "neve_rpc_call_duration_seconds";

/// Renders the histogram; nothing before the first call.
pub(crate) fn render(thread_counters: &[Arc<ThreadCounters>]) -> String {
    let threads: Vec<_> = thread_counters.iter().map(|counters| &counters.latencies).collect();
    let series = latency_series(&threads);
    let mut page = String::new();
    if series.is_empty() {
        return page;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(page, "# HELP {LATENCIES} {}", help_of(LATENCIES));
    let _ = writeln!(page, "# TYPE {LATENCIES} histogram");
    series.iter().for_each(|one| write_series(&mut page, one));
    page.push('\n');
    page
}

fn write_series(page: &mut String, series: &LatencySeries) {
    let LatencySeries { method, outcome, counts, nanoseconds } = series;
    let labels = format!("method=\"{method}\",outcome=\"{outcome}\"");
    let mut sum = 0;
    for (count, bound) in counts.iter().zip(bounds()) {
        sum += count;
        let le = seconds(bound);
        let _ = writeln!(page, "{LATENCIES}_bucket{{{labels},le=\"{le}\"}} {sum}");
    }
    // The last bucket has no bound: it is the rest above all others.
    sum += counts.last().copied().unwrap_or(0);
    let _ = writeln!(page, "{LATENCIES}_bucket{{{labels},le=\"+Inf\"}} {sum}");
    let _ = writeln!(page, "{LATENCIES}_sum{{{labels}}} {}", seconds(*nanoseconds));
    let _ = writeln!(page, "{LATENCIES}_count{{{labels}}} {sum}");
}

#[expect(clippy::cast_precision_loss, reason = "samples of Prometheus are doubles")]
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use neve_jsonrpc::Method;

    use super::*;
    use crate::shared::Outcome;

    #[test]
    fn buckets_add_up_over_threads_and_nothing_is_shown_before_the_first_call() {
        let threads = [Arc::<ThreadCounters>::default(), Arc::default()];
        assert_eq!(render(&threads), "");
        let method = Method::BlockReceipts.into();
        threads[0].time(method, Outcome::Hit, Duration::from_micros(10));
        threads[1].time(method, Outcome::Hit, Duration::from_micros(30));
        threads[1].time(method, Outcome::Hit, Duration::from_mins(1));
        let page = render(&threads);
        let labels = "method=\"eth_getBlockReceipts\",outcome=\"hit\"";
        for (series, value) in [
            (format!("bucket{{{labels},le=\"0.000016384\"}}"), "1"),
            (format!("bucket{{{labels},le=\"0.000032768\"}}"), "2"),
            (format!("bucket{{{labels},le=\"17.179869184\"}}"), "2"),
            (format!("bucket{{{labels},le=\"+Inf\"}}"), "3"),
            (format!("sum{{{labels}}}"), "60.00004"),
            (format!("count{{{labels}}}"), "3"),
        ] {
            let line = format!("{LATENCIES}_{series} {value}\n");
            assert!(page.contains(&line), "{line}{page}");
        }
        assert_eq!(page.matches("# TYPE").count(), 1);
    }
}
