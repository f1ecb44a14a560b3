//! Counts of the keys in force as text of /metrics. The recorder would keep those of each name that a file ever had.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use super::api_key::ApiKey;
use super::key_ring::KeyRing;

const REQUESTS: &str = "neve_key_requests_total";
const CALLS: &str = "neve_key_calls_total";

/// Renders the series of all keys, by name, with the help of each metric. The names need no escapes, as the file allows none that does.
pub(crate) fn render(ring: &KeyRing, help_of: impl Fn(&str) -> String) -> String {
    let mut keys: Vec<&ApiKey> = ring.keys().collect();
    keys.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let mut page = String::new();
    if keys.is_empty() {
        return page;
    }
    begin(&mut page, REQUESTS, &help_of(REQUESTS));
    for ApiKey { name, used, .. } in &keys {
        for (outcome, counter) in
            [("ok", &used.ok), ("limited", &used.limited), ("method", &used.method)]
        {
            write(&mut page, REQUESTS, &format!("key=\"{name}\",outcome=\"{outcome}\""), counter);
        }
    }
    begin(&mut page, CALLS, &help_of(CALLS));
    for ApiKey { name, used, .. } in &keys {
        write(&mut page, CALLS, &format!("key=\"{name}\""), &used.calls);
    }
    page
}

fn begin(page: &mut String, name: &str, help: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} counter");
}

fn write(page: &mut String, name: &str, labels: &str, counter: &AtomicU64) {
    let _ = writeln!(page, "{name}{{{labels}}} {}", counter.load(Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::super::key_file::{entry, parse};
    use super::*;
    use crate::http::keys::KeyHash;

    fn ring(names: &[&str]) -> KeyRing {
        let entry = |name: &&str| entry(name, KeyHash::of(name.as_bytes())).unwrap();
        KeyRing::of(parse(&names.iter().map(entry).collect::<String>()).unwrap())
    }

    #[test]
    fn series_of_a_removed_name_go_and_those_of_a_kept_one_go_on() {
        let earlier = ring(&["shop", "old"]);
        earlier.keys().for_each(|key| assert!(key.admit_other().is_ok()));
        let page = render(&ring(&["shop", "new"]).continuing(&earlier), |_| "Help".to_owned());
        let calls: Vec<_> = page.lines().filter(|line| line.starts_with(CALLS)).collect();
        let expected = [r#"{key="new"} 0"#, r#"{key="shop"} 1"#].map(|end| format!("{CALLS}{end}"));
        assert_eq!(calls, expected);
        assert!(page.contains(r#"_requests_total{key="shop",outcome="ok"} 1"#), "{page}");
        assert!(page.starts_with("# HELP neve_key_requests_total Help"), "{page}");
        assert!(!page.contains("old") && render(&ring(&[]), |_| String::new()).is_empty());
    }
}
