//! /health, /ready and /metrics: what an operator asks.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use metrics::{counter, gauge};
use metrics_exporter_prometheus::PrometheusHandle;
use neve_jsonrpc::Rules;
use neve_store::Identity;
use serde_json::{Value, json};

use crate::config::ReadyConfig;
use crate::fetch::{Budget, Busy};
use crate::http::ReplyBody;
use crate::process::Memory;
use crate::serving::Serving;
use crate::status::{Phase, Status, UpstreamStatus};
use crate::tally::Tally;
use crate::telemetry;

/// Answers the administrator.
pub(crate) struct Admin {
    /// What is served.
    pub serving: Arc<Serving>,
    /// How things are.
    pub status: Arc<Status>,
    /// The serving threads' counts.
    pub tallies: Vec<Arc<Tally>>,
    /// Open connections.
    pub connections: Arc<AtomicUsize>,
    /// Bytes of blocks that wait for the disk.
    pub queue_bytes: Arc<AtomicU64>,
    /// Room for blocks on their way.
    pub budget: Budget,
    /// Where the time of ingest goes.
    pub busy: Arc<Busy>,
    /// Nanoseconds that writing took.
    pub written: Arc<AtomicU64>,
    /// Renders metrics.
    pub metrics: Option<PrometheusHandle>,
    /// When /ready says no.
    pub ready: ReadyConfig,
    /// The upstream's address, without a query: it may hold a key.
    pub upstream: String,
    /// Where the store is.
    pub data_dir: PathBuf,
}

impl Admin {
    /// Whether `path` is one of ours.
    pub(crate) fn knows(path: &str) -> bool {
        matches!(path, "/health" | "/ready" | "/metrics")
    }

    /// Answers `path`, which is one of ours.
    pub(crate) fn respond(&self, path: &str) -> Response<ReplyBody> {
        match path {
            "/metrics" => reply(StatusCode::OK, "text/plain; version=0.0.4", self.metrics()),
            "/ready" => self.ready(),
            _ => json_reply(StatusCode::OK, &self.health()),
        }
    }

    fn ready(&self) -> Response<ReplyBody> {
        match self.not_ready() {
            None => json_reply(StatusCode::OK, &json!({ "ready": true })),
            Some(why) => {
                let body = json!({ "ready": false, "reason": why });
                json_reply(StatusCode::SERVICE_UNAVAILABLE, &body)
            }
        }
    }

    /// Why a router should send its requests elsewhere, if it should.
    fn not_ready(&self) -> Option<String> {
        if self.serving.reader.range().is_none() {
            return Some("no block is stored yet".to_owned());
        }
        let Some(silence) = self.status.silence() else {
            return Some("the upstream has not answered yet".to_owned());
        };
        if silence > self.ready.silence_max {
            let limit = self.ready.silence_max;
            return Some(format!(
                "the upstream has been silent for {silence:.0?}, allowed is {limit:?}"
            ));
        }
        let phase = self.status.words().phase;
        if matches!(phase, Phase::WrongChain | Phase::Disagrees | Phase::Stopped) {
            return Some(format!("following has stopped: {}", phase.name()));
        }
        let lag = self.lag().unwrap_or(0);
        let limit = self.ready.lag_max;
        (lag > limit).then(|| format!("{lag} blocks behind the upstream, allowed are {limit}"))
    }

    fn lag(&self) -> Option<u64> {
        let head = self.serving.reader.range().map(|range| *range.end());
        Some(self.status.upstream_head()?.saturating_sub(head?))
    }

    /// The object that /health shows. `blocks.min_height` and `blocks.max_contiguous_height` have
    /// the names that load scripts know.
    fn health(&self) -> Value {
        let words = self.status.words();
        let not_ready = self.not_ready();
        json!({
            "status": if not_ready.is_none() { "ok" } else { "not_ready" },
            "reason": not_ready,
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_seconds": self.status.uptime().as_secs(),
            "chain_id": self.serving.identity().map(|identity| identity.chain_id),
            "genesis": self.serving.identity().map(|identity: Identity| identity.genesis.to_string()),
            "blocks": self.blocks(),
            "backfill": self.backfill(),
            "mirror": self.mirror(),
            "upstreams": self.status.upstreams().iter().map(upstream).collect::<Vec<_>>(),
            "upstream": {
                "url": self.upstream,
                "state": words.phase.name(),
                "error": words.upstream_error,
                "websocket": self.status.ws_live(),
                "silent_seconds": self.status.silence().map(|silence| silence.as_secs_f64()),
                "rules": rules(self.serving.rules()),
            },
            "storage": self.storage(words.store_error.as_deref()),
            "memory": memory(),
            "connections": self.connections.load(Ordering::Relaxed),
        })
    }

    fn blocks(&self) -> Value {
        let range = self.serving.reader.range();
        let head = range.as_ref().map(|range| *range.end());
        json!({
            "min_height": range.as_ref().map(|range| *range.start()),
            "max_contiguous_height": head,
            "head": head,
            "verified_height": self.verified(),
            "unverified": self.unverified(),
            "upstream_head": self.status.upstream_head(),
            "lag": self.lag(),
        })
    }

    fn backfill(&self) -> Value {
        self.status.backfill().map_or(Value::Null, |backfill| {
            json!({
                "goal": backfill.goal,
                "left": backfill.first - backfill.goal,
                "segment": backfill.interval.map(|(first, next)| json!([first, next])),
            })
        })
    }

    fn mirror(&self) -> Value {
        self.status.mirror().map_or(Value::Null, |mirror| {
            json!({
                "url": mirror.url,
                "stream": { "live": mirror.stream, "error": mirror.stream_error },
                "segments": {
                    "taken": mirror.taken,
                    "refused": mirror.refused,
                    "error": mirror.segments_error,
                },
            })
        })
    }

    /// Proven heights that are served.
    fn verified(&self) -> Option<u64> {
        let range = self.serving.reader.range()?;
        self.status.verified().map(|height| height.min(*range.end())).filter(|h| h >= range.start())
    }

    fn unverified(&self) -> u64 {
        let Some(range) = self.serving.reader.range() else { return 0 };
        let from = self.verified().map_or(*range.start(), |height| height + 1);
        (range.end() + 1).saturating_sub(from)
    }

    fn storage(&self, error: Option<&str>) -> Value {
        let usage = self.serving.reader.usage();
        json!({
            "data_dir": self.data_dir,
            "bytes": usage.disk_bytes,
            "segments": usage.segments,
            "tables": usage.tables,
            "free_bytes": neve_store::disk::free_bytes(&self.data_dir).ok(),
            "queue_bytes": self.queue_bytes.load(Ordering::Relaxed),
            "error": error,
        })
    }

    fn metrics(&self) -> String {
        telemetry::publish(&self.tallies);
        let range = self.serving.reader.range();
        let usage = self.serving.reader.usage();
        let memory = Memory::now();
        set("neve_first_height", range.as_ref().map(|range| *range.start()));
        set("neve_head_height", range.as_ref().map(|range| *range.end()));
        set("neve_verified_height", self.verified());
        set("neve_unverified_heights", Some(self.unverified()));
        set("neve_upstream_head_height", self.status.upstream_head());
        set("neve_lag_heights", self.lag());
        let silence = self.status.silence().map_or(f64::INFINITY, |silence| silence.as_secs_f64());
        gauge!("neve_upstream_silence_seconds").set(silence);
        self.upstream_metrics();
        set("neve_budget_bytes", Some(self.budget.taken()));
        set("neve_backfill_left_heights", self.status.backfill().map(|at| at.first - at.goal));
        set("neve_upstream_ws_live", Some(self.status.ws_live().into()));
        set("neve_store_bytes", Some(usage.disk_bytes));
        set("neve_store_segments", Some(usage.segments as u64));
        set("neve_disk_free_bytes", neve_store::disk::free_bytes(&self.data_dir).ok());
        let writable = self.status.words().store_error.is_none();
        set("neve_store_writable", Some(writable.into()));
        set("neve_queue_bytes", Some(self.queue_bytes.load(Ordering::Relaxed)));
        set("neve_http_connections", Some(self.connections.load(Ordering::Relaxed) as u64));
        set("process_resident_memory_bytes", memory.map(|memory| memory.resident));
        set("neve_memory_anonymous_bytes", memory.map(|memory| memory.anonymous));
        if let Some(faults) = Memory::major_faults() {
            counter!("neve_major_page_faults_total").absolute(faults);
        }
        self.metrics.as_ref().map(PrometheusHandle::render).unwrap_or_default()
    }
}

impl Admin {
    /// A series for each upstream, and for each stage of ingest.
    fn upstream_metrics(&self) {
        for one in self.status.upstreams() {
            let labelled = |name: &'static str, value: f64| {
                gauge!(name, "upstream" => one.url.clone()).set(value);
            };
            #[allow(clippy::cast_precision_loss, reason = "gauges are doubles")]
            labelled("neve_upstream_window_heights", one.window as f64);
            #[allow(clippy::cast_precision_loss, reason = "gauges are doubles")]
            labelled("neve_upstream_under_way_heights", one.under_way as f64);
            labelled("neve_upstream_answer_seconds", one.answer_seconds);
            labelled("neve_upstream_asked", f64::from(u8::from(one.is_asked())));
        }
        let stages = [
            ("fetch", &self.busy.fetch),
            ("prove", &self.busy.prove),
            ("cut", &self.busy.cut),
            ("write", &self.written),
        ];
        for (stage, nanoseconds) in stages {
            let time = Duration::from_nanos(nanoseconds.load(Ordering::Relaxed));
            gauge!("neve_ingest_seconds", "stage" => stage).set(time.as_secs_f64());
        }
    }
}

/// An upstream as /health has it.
fn upstream(one: &UpstreamStatus) -> Value {
    json!({
        "url": one.url,
        "state": one.state,
        "error": one.error,
        "head": one.head,
        "lacks_below": one.lacks_below,
        "rules": rules(one.rules),
        "window": one.window,
        "under_way": one.under_way,
        "answer_seconds": one.answer_seconds,
        "heights": one.heights,
    })
}

fn rules(rules: Rules) -> &'static str {
    match rules {
        Rules::BeforeHelicon => "before_helicon",
        Rules::Helicon => "helicon",
    }
}

fn set(name: &'static str, value: Option<u64>) {
    if let Some(value) = value {
        #[allow(clippy::cast_precision_loss, reason = "gauges are doubles")]
        gauge!(name).set(value as f64);
    }
}

fn memory() -> Value {
    let memory = Memory::now();
    json!({
        "resident_bytes": memory.map(|memory| memory.resident),
        "anonymous_bytes": memory.map(|memory| memory.anonymous),
        "mapped_file_bytes": memory.map(|memory| memory.resident.saturating_sub(memory.anonymous)),
    })
}

fn json_reply(status: StatusCode, value: &Value) -> Response<ReplyBody> {
    reply(status, "application/json", format!("{value:#}\n"))
}

fn reply(status: StatusCode, kind: &'static str, text: String) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::from(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
