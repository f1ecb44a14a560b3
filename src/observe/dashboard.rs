//! The Grafana dashboard, generated from the table of metrics.

use metrics::Unit;
use serde_json::{Value, json};

use super::metric_table::{METRICS, Metric, MetricKind};

/// Panels of the first row: title, unit of Grafana, expression, legend.
const GLANCE: [(&str, &str, &str, &str); 11] = [
    ("Head", "locale", "neve_head_height", "{{instance}}"),
    ("Age of the head", "s", "neve_head_age_seconds", "{{instance}}"),
    ("Lag (heights)", "locale", "neve_lag_heights", "{{instance}}"),
    (
        "Share of hits",
        "percentunit",
        "sum by (instance) (rate(neve_rpc_calls_total{outcome!=\"miss\"}[$__rate_interval])) / \
         sum by (instance) (rate(neve_rpc_calls_total[$__rate_interval]))",
        "{{instance}}",
    ),
    (
        "Calls by outcome",
        "reqps",
        "sum by (outcome) (rate(neve_rpc_calls_total[$__rate_interval]))",
        "{{outcome}}",
    ),
    (
        "Calls by method, the ten most frequent",
        "reqps",
        "topk(10, sum by (method) (rate(neve_rpc_calls_total[$__rate_interval])))",
        "{{method}}",
    ),
    (
        "Misses by method, the ten most frequent",
        "reqps",
        "topk(10, sum by (method) (rate(neve_rpc_calls_total{outcome=\"miss\"}[$__rate_interval])))",
        "{{method}}",
    ),
    (
        "Misses by reason",
        "reqps",
        "sum by (reason) (rate(neve_rpc_misses_total[$__rate_interval]))",
        "{{reason}}",
    ),
    (
        "99th percentile of hits by method, the ten slowest",
        "s",
        "topk(10, histogram_quantile(0.99, sum by (method, le) \
         (rate(neve_rpc_call_duration_seconds_bucket{outcome=\"hit\"}[$__rate_interval]))))",
        "{{method}}",
    ),
    (
        "99th percentile of relayed calls by method, the ten slowest",
        "s",
        "topk(10, histogram_quantile(0.99, sum by (method, le) \
         (rate(neve_rpc_call_duration_seconds_bucket{outcome=\"relay\"}[$__rate_interval]))))",
        "{{method}}",
    ),
    (
        "Alerts",
        "locale",
        "sum by (alertname) (ALERTS{job=\"neve\", alertstate=\"firing\"})",
        "{{alertname}}",
    ),
];

/// Rows of the other panels: title, and beginnings of the names of its metrics.
const ROWS: [(&str, &[&str]); 11] = [
    (
        "Chain",
        &[
            "first_height",
            "head_",
            "settled_",
            "unsettled_",
            "settlements_",
            "lag_",
            "blocks_",
            "logs_",
        ],
    ),
    ("Clients", &["rpc_", "http_", "access_", "client_", "offload_"]),
    ("Relay", &["relay_"]),
    ("API keys", &["key_"]),
    ("WebSocket", &["ws_"]),
    ("Upstreams", &["upstream_", "evidence_"]),
    ("Mirrors", &["mirror_"]),
    ("Archive", &["archive_"]),
    ("Ingest", &["ingest_", "backfill_"]),
    ("Store", &["store_", "disk_"]),
    ("Process", &["log_", "memory_", "process_", "program_", "major_", "build_"]),
];

/// Columns of Grafana's grid.
const WIDTH: usize = 24;
/// Columns and rows of a panel: four fill a line.
const PANEL: (usize, usize) = (6, 7);

/// Places panels from the left to the right, and rows from the top to the bottom.
#[derive(Default)]
struct Grid {
    panels: Vec<Value>,
    column: usize,
    line: usize,
}

impl Grid {
    fn row(&mut self, title: &str) {
        if self.column > 0 {
            self.line += PANEL.1;
        }
        let place = json!({ "x": 0, "y": self.line, "w": WIDTH, "h": 1 });
        let id = self.panels.len() + 1;
        self.panels.push(
            json!({ "id": id, "type": "row", "title": title, "collapsed": false, "panels": [], "gridPos": place }),
        );
        self.line += 1;
        self.column = 0;
    }

    /// Place of the next panel, from which on the one after it has another.
    fn place(&mut self) -> Value {
        if self.column + PANEL.0 > WIDTH {
            self.column = 0;
            self.line += PANEL.1;
        }
        let place = json!({ "x": self.column, "y": self.line, "w": PANEL.0, "h": PANEL.1 });
        self.column += PANEL.0;
        place
    }

    fn panel(&mut self, title: &str, help: &str, unit: &str, targets: &[(String, String)]) {
        let place = self.place();
        let source = json!({ "type": "prometheus", "uid": "${datasource}" });
        let targets = targets.iter().zip('A'..).map(|((expr, legend), id)| {
            json!({ "refId": id, "expr": expr, "legendFormat": legend, "datasource": source })
        });
        let targets: Vec<_> = targets.collect();
        let id = self.panels.len() + 1;
        self.panels.push(json!({
            "id": id,
            "type": "timeseries",
            "title": title,
            "description": help,
            "datasource": source,
            "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
            "options": { "legend": { "calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": true } },
            "targets": targets,
            "gridPos": place,
        }));
    }
}

/// Expressions and legends that show a metric.
fn targets(metric: &Metric) -> Vec<(String, String)> {
    let name = metric.name;
    let labels: Vec<_> = metric.labels.iter().map(|(label, _)| *label).collect();
    let legend: Vec<_> =
        [&["instance"], &labels[..]].concat().iter().map(|l| format!("{{{{{l}}}}}")).collect();
    let legend = legend.join(" ");
    match metric.kind {
        MetricKind::Gauge => vec![(format!("{name}{{instance=~\"$instance\"}}"), legend)],
        MetricKind::Counter | MetricKind::Sum => {
            vec![(format!("rate({name}{{instance=~\"$instance\"}}[$__rate_interval])"), legend)]
        }
        MetricKind::Histogram => [("0.5", "p50"), ("0.99", "p99")]
            .map(|(share, short)| {
                let rate =
                    format!("rate({name}_bucket{{instance=~\"$instance\"}}[$__rate_interval])");
                let quantile =
                    format!("histogram_quantile({share}, sum by (instance, le) ({rate}))");
                (quantile, format!("{{{{instance}}}} {short}"))
            })
            .to_vec(),
    }
}

/// Grafana's name for the unit of a metric's panel.
fn unit(metric: &Metric) -> &'static str {
    match (metric.kind, &metric.unit) {
        (MetricKind::Counter, Unit::Bytes) => "Bps",
        (MetricKind::Counter, _) => "ops",
        // Seconds of work in a second: a share.
        (MetricKind::Sum, _) => "percentunit",
        (_, Unit::Bytes) => "bytes",
        (_, Unit::Seconds) => "s",
        _ => "locale",
    }
}

fn row_of(metric: &Metric) -> usize {
    let name = metric.name.trim_start_matches("neve_");
    let is_of = |(_, starts): &(&str, &[&str])| starts.iter().any(|start| name.starts_with(start));
    ROWS.iter().position(is_of).unwrap_or_else(|| panic!("no row of the dashboard for {name}"))
}

fn dashboard() -> Value {
    let mut grid = Grid::default();
    grid.row("At a glance");
    for (title, unit, expr, legend) in GLANCE {
        grid.panel(title, "", unit, &[(expr.to_owned(), legend.to_owned())]);
    }
    for (at, (title, _)) in ROWS.iter().enumerate() {
        grid.row(title);
        for metric in METRICS.iter().filter(|metric| row_of(metric) == at) {
            let title = metric.name.trim_start_matches("neve_").trim_end_matches("_total");
            grid.panel(title, &metric.help(), unit(metric), &targets(metric));
        }
    }
    json!({
        "uid": "neve", "title": "neve", "tags": ["avalanche"], "timezone": "browser", "schemaVersion": 39,
        "editable": true, "refresh": "10s", "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": variables() },
        "panels": grid.panels,
    })
}

/// Choices at the top of the dashboard.
fn variables() -> [Value; 2] {
    let source = json!({ "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source" });
    let instance = json!({
        "name": "instance", "type": "query", "label": "Instance", "multi": true, "includeAll": true, "allValue": ".*",
        "query": "label_values(neve_build_info, instance)", "refresh": 2,
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
    });
    [source, instance]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::reference;

    #[test]
    fn generated_dashboard_has_a_panel_for_each_metric() {
        let text = format!("{:#}\n", dashboard());
        for Metric { name, .. } in METRICS {
            assert!(
                text.contains(&format!("{name}{{")) || text.contains(&format!("{name}_bucket{{")),
                "{name}"
            );
        }
        reference::check("../../packaging/grafana/neve.json", &text);
    }
}
