//! Lines of `neve status` about calls, from the text of /metrics.

use std::collections::BTreeMap;

/// Bucket bounds in seconds, as texts in ascending order, and the calls up to each.
type Buckets = Vec<(String, u64)>;

/// Methods whose times are shown, the most frequent first.
const METHODS_SHOWN: usize = 8;

/// Returns the lines about times and reasons of misses, as far as there are any.
pub(super) fn call_lines(metrics: &str) -> String {
    let lines = [("times", times(metrics)), ("misses", misses(metrics))];
    let shown = lines.into_iter().filter_map(|(name, text)| Some((name, text?)));
    let by_method = method_times(metrics).into_iter().map(|text| ("method", text));
    let lines = shown.chain(by_method).map(|(name, text)| format!("{name:<12} {text}\n"));
    lines.collect::<Vec<_>>().concat()
}

/// Returns a line for each of the most frequent methods and outcomes.
fn method_times(metrics: &str) -> Vec<String> {
    let mut groups: BTreeMap<(&str, &str), Buckets> = BTreeMap::new();
    for (labels, value) in series(metrics, BUCKETS) {
        let of = |name| label(labels, name);
        if let (Some(method), Some(outcome), Some(bound)) = (of("method"), of("outcome"), of("le"))
        {
            groups.entry((method, outcome)).or_default().push((bound.to_owned(), value));
        }
    }
    let calls = |buckets: &Buckets| buckets.last().map_or(0, |(_, all)| *all);
    let mut groups: Vec<_> = groups.into_iter().filter(|(_, one)| calls(one) > 0).collect();
    groups.sort_by_key(|(_, buckets)| std::cmp::Reverse(calls(buckets)));
    let line = |((method, outcome), buckets): ((&str, &str), Buckets)| {
        let [half, most] = [50, 99].map(|share| below(&buckets, share));
        let calls = calls(&buckets);
        Some(format!("{method} {outcome}: {calls}, half up to {}, 99 % up to {}", half?, most?))
    };
    groups.into_iter().take(METHODS_SHOWN).filter_map(line).collect()
}

/// Begin of the lines with buckets of times.
const BUCKETS: &str = "neve_rpc_call_duration_seconds_bucket{";

/// Returns the misses by reason, the most frequent first; `None` before the first one.
fn misses(metrics: &str) -> Option<String> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (labels, value) in series(metrics, "neve_rpc_misses_total{") {
        let sum = sums.entry(label(labels, "reason")?).or_default();
        *sum = sum.saturating_add(value);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    let shown: Vec<_> = sums.iter().map(|(reason, sum)| format!("{sum} {reason}")).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// Returns the bounds below which half and 99 of 100 hits took; `None` before the first one.
fn times(metrics: &str) -> Option<String> {
    let mut buckets = Buckets::new();
    for (labels, value) in series(metrics, BUCKETS) {
        if label(labels, "outcome") != Some("hit") {
            continue;
        }
        let bound = label(labels, "le")?;
        match buckets.iter_mut().find(|(known, _)| known == bound) {
            Some((_, sum)) => *sum = sum.saturating_add(value),
            None => buckets.push((bound.to_owned(), value)),
        }
    }
    let [half, most] = [50, 99].map(|share| below(&buckets, share));
    Some(format!("half of the hits up to {}, 99 % up to {}", half?, most?))
}

/// Values of the series whose lines begin so, with the labels of each.
fn series<'m>(metrics: &'m str, begin: &'m str) -> impl Iterator<Item = (&'m str, u64)> {
    metrics.lines().filter_map(move |line| {
        let (labels, value) = line.strip_prefix(begin)?.rsplit_once("} ")?;
        Some((labels, value.parse().ok()?))
    })
}

/// Returns the value of a label. Values of the labels that are read have no quotes. Another program
/// may have the port: only plain letters reach the terminal.
fn label<'l>(labels: &'l str, name: &str) -> Option<&'l str> {
    let (_, rest) = labels.split_once(&format!("{name}=\""))?;
    let (value, _) = rest.split_once('"')?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_.+-".contains(&b);
    (value.len() <= 32 && value.bytes().all(is_plain)).then_some(value)
}

/// Returns the first bound up to which this share of all calls took, in percent.
fn below(buckets: &Buckets, share: u64) -> Option<String> {
    // Buckets of Prometheus add up: the last one has all calls.
    let all = buckets.last().filter(|(_, all)| *all > 0)?.1;
    let needed = all.saturating_mul(share).div_ceil(100);
    let (bound, _) = buckets.iter().find(|(_, sum)| *sum >= needed)?;
    let seconds: f64 = bound.parse().ok()?;
    Some(match seconds {
        seconds if seconds.is_infinite() => "more than 17 s".to_owned(),
        seconds if seconds < 0.001 => format!("{:.0} µs", seconds * 1e6),
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{seconds:.1} s"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_the_bounds_of_the_shares_over_all_methods() {
        let bucket = |method: &str, outcome: &str, le: &str, count: u64| {
            format!(
                "neve_rpc_call_duration_seconds_bucket{{method=\"{method}\",outcome=\"{outcome}\",le=\"{le}\"}} {count}\n"
            )
        };
        let metrics = bucket("a", "hit", "0.000016384", 1)
            + &bucket("a", "hit", "0.001048576", 1)
            + &bucket("a", "hit", "+Inf", 1)
            + &bucket("b", "hit", "0.000016384", 0)
            + &bucket("b", "hit", "0.001048576", 1)
            + &bucket("b", "hit", "+Inf", 1)
            + &bucket("b", "miss", "+Inf", 99);
        let expected = "half of the hits up to 16 µs, 99 % up to 1.0 ms";
        assert_eq!(times(&metrics).as_deref(), Some(expected));
        assert_eq!(times(&bucket("a", "miss", "+Inf", 1)), None);
        let late = bucket("a", "hit", "17.179869184", 0) + &bucket("a", "hit", "+Inf", 1);
        assert!(times(&late).is_some_and(|shown| shown.ends_with("more than 17 s")));
    }

    #[test]
    fn methods_have_lines_of_their_own_the_most_frequent_first() {
        let bucket = |method: &str, outcome: &str, le: &str, count: u64| {
            format!("{BUCKETS}method=\"{method}\",outcome=\"{outcome}\",le=\"{le}\"}} {count}\n")
        };
        let metrics = bucket("a", "hit", "0.000016384", 1)
            + &bucket("a", "hit", "+Inf", 1)
            + &bucket("b", "relay", "0.001048576", 2)
            + &bucket("b", "relay", "+Inf", 2)
            + &bucket("c", "hit", "+Inf", 0);
        let expected = "times        half of the hits up to 16 µs, 99 % up to 16 µs\n\
                        method       b relay: 2, half up to 1.0 ms, 99 % up to 1.0 ms\n\
                        method       a hit: 1, half up to 16 µs, 99 % up to 16 µs\n";
        assert_eq!(call_lines(&metrics), expected);
        assert_eq!(call_lines(""), "");
    }

    #[test]
    fn misses_are_added_up_by_reason_and_text_of_another_program_is_left_out() {
        let metrics = "neve_rpc_misses_total{method=\"a\",reason=\"empty\"} 1\n\
                       neve_rpc_misses_total{method=\"a\",reason=\"not_served\"} 2\n\
                       neve_rpc_misses_total{method=\"b\",reason=\"not_served\"} 3\n";
        assert_eq!(misses(metrics).as_deref(), Some("5 not_served, 1 empty"));
        assert_eq!(misses(""), None);
        assert_eq!(misses("neve_rpc_misses_total{reason=\"\u{1b}[31m\"} 1\n"), None);
    }
}
