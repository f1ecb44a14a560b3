//! Files for Prometheus and a page of docs/reference, generated from the table of alerts.

use std::fmt::Write;

use super::alert_table::{ALERTS, Alert};
use super::metric_table::METRICS;

/// The page where packages put it: `packaging/extras`. It is there without a network.
const INSTALLED_PAGE: &str = "/usr/share/doc/neve/reference/alerts.md";

/// A string of YAML. JSON's strings are such.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text has a JSON form")
}

/// The run-book of an alert, as its rule names it.
fn anchor(alert: &Alert) -> String {
    format!("{INSTALLED_PAGE}#{}", alert.name.to_lowercase())
}

/// Returns the file of Prometheus alert rules, in YAML.
fn rules() -> String {
    let mut file = "# Alert rules for Prometheus, generated from the code: `UPDATE=1 cargo test --lib generated`.\n\
                    # They expect that the job of neve's admin listener is named `neve`.\ngroups:\n  - name: neve\n    rules:\n"
        .to_owned();
    for alert in ALERTS {
        write!(
            file,
            "      - alert: {}\n        expr: {}\n        for: {}\n        labels:\n          severity: {}\n        \
             annotations:\n          summary: {}\n          runbook: {}\n",
            alert.name,
            quoted(alert.expr),
            alert.hold,
            alert.severity.word(),
            quoted(alert.summary),
            anchor(alert),
        )
        .expect("a string grows");
    }
    file
}

/// The test of the rules: each alert fires on its series and on no quiet ones.
fn rules_test() -> String {
    let mut file =
        "# Test of neve.rules.yml, generated with it: `promtool test rules neve.rules.test.yml`.\n\
                    rule_files: [neve.rules.yml]\nevaluation_interval: 1m\ntests:\n"
            .to_owned();
    for alert in ALERTS {
        file += "  - interval: 1m\n    input_series:\n";
        file.extend(alert.fires.iter().map(|(series, values)| input_series(series, values)));
        file += &expected(alert);
    }
    file += &quiet();
    file
}

fn input_series(series: &str, values: &str) -> String {
    format!("      - series: {}\n        values: {}\n", quoted(series), quoted(values))
}

/// The alert that fires on its series, in the test of the rules.
fn expected(alert: &Alert) -> String {
    let minutes = if alert.hold.ends_with('h') { 119 } else { 55 };
    let mut test = format!(
        "    alert_rule_test:\n      - eval_time: {minutes}m\n        alertname: {}\n        exp_alerts:\n          \
         - exp_labels:\n",
        alert.name
    );
    for (label, value) in labels(alert) {
        writeln!(test, "              {label}: {}", quoted(value)).expect("a string grows");
    }
    write!(
        test,
        "            exp_annotations:\n              summary: {}\n              runbook: {}\n",
        quoted(alert.summary),
        anchor(alert)
    )
    .expect("a string grows");
    test
}

/// Labels of the alert that fires: those of its series, less what the expression adds up.
fn labels(alert: &Alert) -> Vec<(&'static str, &'static str)> {
    let (_, inside) = alert.fires[0].0.split_once('{').expect("a series has labels");
    let own = inside.trim_end_matches('}').split(", ").map(|label| {
        let (name, value) = label.split_once('=').expect("a label has a value");
        (name, value.trim_matches('"'))
    });
    let adds_up = alert.expr.contains("sum by (job, instance");
    let own = own.filter(|(name, _)| !adds_up || ["job", "instance"].contains(name));
    own.chain([("severity", alert.severity.word())]).collect()
}

/// Series of a neve that is well.
const QUIET: [(&str, &str); 41] = [
    ("up", "1x60"),
    ("neve_lag_heights", "10x60"),
    ("neve_upstream_silence_seconds", "60x60"),
    ("neve_head_age_seconds", "60x60"),
    ("neve_store_writable", "1x60"),
    ("neve_disk_free_bytes", "2147483648x60"),
    ("neve_blocks_rejected_total", "3x60"),
    ("neve_blocks_withdrawn_total", "3x60"),
    ("neve_unsettled_heights", "100x60"),
    ("neve_upstream_up", "1x60"),
    ("neve_upstream_unknown_upgrade_seconds", "5184000x60"),
    ("neve_upstream_disagreements_total", "3x60"),
    ("neve_store_damaged_records_total", "3x60"),
    ("neve_store_unrepaired_records", "0x60"),
    ("neve_store_gap_heights", "0x60"),
    ("neve_store_quarantined_files", "0x60"),
    ("neve_store_lost_files_total", "0x60"),
    ("neve_client_refused_reservations_total", "7x60"),
    ("neve_offload_refused_requests_total", "7x60"),
    ("neve_memory_anonymous_bytes", "721420288x60"),
    ("neve_major_page_faults_total", "0+600x60"),
    ("neve_access_log_lines_total{outcome=\"written\"}", "0+50x60"),
    ("neve_access_log_lines_total{outcome=\"dropped\"}", "7x60"),
    ("neve_access_log_lines_total{outcome=\"failed\"}", "7x60"),
    ("neve_archive_push_failing", "0x60"),
    ("neve_archive_bad_files", "0x60"),
    ("neve_archive_held_bytes", "8x60"),
    ("neve_archive_held_limit_bytes", "16x60"),
    ("neve_archive_lost_heights_total", "3x60"),
    ("neve_archive_backlog_bytes", "1073741824x60"),
    ("neve_archive_manifest_put_timestamp_seconds", "0x60"),
    ("neve_archive_breaker_state", "0x60"),
    ("neve_archive_read_errors_total{reason=\"failed\"}", "0+5x60"),
    ("neve_archive_read_errors_total{reason=\"paused\"}", "0+60x60"),
    ("neve_archive_read_duration_seconds_bucket{le=\"1\"}", "0+60x60"),
    ("neve_archive_read_duration_seconds_bucket{le=\"+Inf\"}", "0+60x60"),
    ("neve_archive_refused_reads_total", "7x60"),
    ("neve_archive_proven_segments_total{outcome=\"rejected\"}", "3x60"),
    ("neve_archive_refused_pages_total", "3x60"),
    ("neve_rpc_calls_total{outcome=\"hit\"}", "0+50x60"),
    ("neve_rpc_calls_total{outcome=\"miss\"}", "0+50x60"),
];

/// A neve that is well: no alert fires.
fn quiet() -> String {
    let mut test = "  - interval: 1m\n    input_series:\n".to_owned();
    for (series, values) in QUIET {
        let (name, more) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
        let comma = if more.is_empty() { "" } else { ", " };
        let series = format!("{name}{{job=\"neve\", instance=\"a\"{comma}{more}}}");
        test += &input_series(&series, values);
    }
    test += "    alert_rule_test:\n";
    for alert in ALERTS {
        writeln!(test, "      - {{ eval_time: 55m, alertname: {}, exp_alerts: [] }}", alert.name)
            .expect("a string grows");
    }
    test
}

/// The page for the person who is alerted.
fn page() -> String {
    let mut page = "# Alerts\n\nGenerated from `ALERTS` in the code. The rules are in\n\
                    [packaging/prometheus](../../packaging/prometheus/neve.rules.yml). [Recover](../operating/recover.md) explains the\n\
                    messages of the log. `page`: clients notice, or soon will. `ticket`: look at it within a day.\n"
        .to_owned();
    page.extend(ALERTS.iter().map(section));
    page
}

/// The section of an alert: its meaning, its expression and the steps of a repair.
fn section(alert: &Alert) -> String {
    let mut text = format!(
        "\n## {}\n\n{} Severity: `{}`.\n\n```promql\n{}\n```\n\n",
        alert.name,
        alert.summary,
        alert.severity.word(),
        alert.expr
    );
    match alert.hold {
        "0m" => text += "It fires at once.\n\n",
        hold => {
            writeln!(text, "It fires once that has held for {hold}.\n").expect("a string grows");
        }
    }
    for (at, step) in alert.steps.iter().enumerate() {
        writeln!(text, "{}. {step}", at + 1).expect("a string grows");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::reference;
    use crate::observe::metric_table::{Metric, MetricKind};

    #[test]
    fn generated_rules_and_page_of_alerts_are_those_of_the_table() {
        reference::check("alerts.md", &page());
        reference::check("../../packaging/prometheus/neve.rules.yml", &rules());
        reference::check("../../packaging/prometheus/neve.rules.test.yml", &rules_test());
    }

    #[test]
    fn page_for_operators_has_the_number_of_rules() {
        let said = format!("SUCCESS: {} rules found", rules().matches("- alert: ").count());
        assert!(include_str!("../../docs/operating/watch.md").contains(&said), "{said}");
    }

    #[test]
    fn alert_names_only_metrics_of_the_table() {
        for alert in ALERTS {
            let words = alert.expr.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            for word in words.filter(|word| word.starts_with("neve_")) {
                let is_it = |metric: &Metric| match metric.kind {
                    MetricKind::Histogram => word.strip_suffix("_bucket") == Some(metric.name),
                    _ => metric.name == word,
                };
                assert!(METRICS.iter().any(is_it), "{}: {word}", alert.name);
            }
        }
    }
}
