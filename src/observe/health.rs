//! /health, /ready and /metrics: the pages for operators, and the short form of them for everybody.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::StatusCode;
use metrics::{counter, gauge};
use neve_jsonrpc::Rules;
use neve_store::Identity;
use serde_json::{Value, json};

use super::capacity::{
    CapacityBounds, DiskUse, Growth, MirrorPlaces, TimeToFull, tiers, time_to_full,
};
use super::metrics::MetricsPage;
use super::process::{self, Memory};
use crate::config::settings::LiveReady;
use crate::shared::{
    IngestBudget, MemoryBudget, PushStatus, Serving, StageTimes, Status, ThreadCounters,
    UpstreamStatus,
};

mod readiness;

/// The pages of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// /ready, and a /health that names neither a path of this machine nor an upstream.
    Public,
    /// The full /health, /ready and /metrics.
    All,
}

impl Pages {
    /// True if `path` is one of them.
    pub(crate) fn has(self, path: &str) -> bool {
        matches!(path, "/health" | "/ready") || (self == Self::All && path == "/metrics")
    }
}

/// Answers the administrator.
pub(crate) struct Admin {
    /// Served range and its reader.
    pub serving: Arc<Serving>,
    /// State of ingest and upstreams.
    pub status: Arc<Status>,
    /// The serving threads' counts.
    pub thread_counters: Vec<Arc<ThreadCounters>>,
    /// Number of open connections of clients.
    pub connections: Arc<AtomicUsize>,
    /// Downloads and streams of mirrors.
    pub(crate) mirrors: MirrorPlaces,
    /// Bytes of blocks that wait for the disk.
    pub queue_bytes: Arc<AtomicU64>,
    /// Budget of blocks in flight.
    pub budget: IngestBudget,
    /// Time spent in each stage of ingest.
    pub busy: Arc<StageTimes>,
    /// Nanoseconds that writing took.
    pub written: Arc<AtomicU64>,
    /// Budget of the memory of clients.
    pub memory: Arc<MemoryBudget>,
    /// Renderer of /metrics.
    pub(crate) metrics: Option<MetricsPage>,
    /// Conditions under which /ready returns 503.
    pub(crate) ready: LiveReady,
    /// The upstream's address, without a query: it may hold a key.
    pub upstream: Arc<ArcSwap<String>>,
    /// Path of the data directory.
    pub data_dir: PathBuf,
    /// Bounds of disk and connections.
    pub(crate) bounds: CapacityBounds,
}

impl Admin {
    /// Answers `path`, which is one of the pages.
    pub(crate) fn respond(&self, path: &str, pages: Pages) -> AdminPage {
        match path {
            "/metrics" => AdminPage {
                status: StatusCode::OK,
                media_type: "text/plain; version=0.0.4",
                text: self.metrics(),
            },
            "/ready" => self.ready(),
            // Clients need not know paths, upstreams and sizes of this machine.
            _ if pages == Pages::Public => json_page(StatusCode::OK, &self.short_health()),
            _ => json_page(StatusCode::OK, &self.health()),
        }
    }

    fn lag(&self) -> Option<u64> {
        let head = self.serving.reader.range().map(|range| *range.end());
        Some(self.upstream_head()?.saturating_sub(head?))
    }

    /// The upstream's head as it is believed: a header is proven there, or its block is stored.
    fn upstream_head(&self) -> Option<u64> {
        let stored = self.serving.reader.range().map(|range| *range.end());
        let proven = self.status.proven_head()?;
        Some(stored.map_or(proven, |stored| stored.max(proven)))
    }

    /// The object that /health of the main listener shows, where every client sees it.
    fn short_health(&self) -> Value {
        let not_ready = self.not_ready().map(|why| self.with_wait(why));
        let range = self.serving.reader.range();
        json!({
            "status": if not_ready.is_none() { "ok" } else { "not_ready" },
            "reason": not_ready,
            "version": env!("CARGO_PKG_VERSION"),
            "blocks": {
                "min_height": range.as_ref().map(|range| *range.start()),
                "max_contiguous_height": range.as_ref().map(|range| *range.end()),
                "head_age_seconds": self.serving.freshness.head_age().map(|age| age.as_secs_f64()),
            },
        })
    }

    /// The object that /health of the admin listener shows. `blocks.min_height` and
    /// `blocks.max_contiguous_height` have the names that load scripts know.
    fn health(&self) -> Value {
        let words = self.status.words();
        let not_ready = self.not_ready().map(|why| self.with_wait(why));
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
            "mirrors": self.mirrors.object(),
            "archive": self.archive(),
            "upstreams": self.status.upstreams().iter().map(upstream).collect::<Vec<_>>(),
            "upstream": {
                "url": **self.upstream.load(),
                "state": words.phase.name(),
                "error": words.upstream_error,
                "retry_in_seconds": seconds(self.status.retry_in()),
                "websocket": self.status.ws_live(),
                "silence_seconds": self.status.silence().map(|silence| silence.as_secs_f64()),
                "rules": rules(self.serving.rules()),
            },
            "storage": self.storage(words.store_error.as_deref()),
            "clock": { "error": words.clock },
            "memory": memory(&self.memory),
            "connections": self.connections.load(Ordering::Relaxed),
            "connections_max": self.bounds.connections.load(Ordering::Relaxed),
        })
    }

    fn blocks(&self) -> Value {
        let range = self.serving.reader.range();
        let head = range.as_ref().map(|range| *range.end());
        json!({
            "min_height": range.as_ref().map(|range| *range.start()),
            "max_contiguous_height": head,
            "head": head,
            "settled_height": self.verified(),
            "unsettled": self.unverified(),
            "upstream_head": self.upstream_head(),
            "lag": self.lag(),
            "head_time": self.serving.freshness.head_time(),
            "head_age_seconds": self.serving.freshness.head_age().map(|age| age.as_secs_f64()),
        })
    }

    fn backfill(&self) -> Value {
        self.status.backfill().map_or(Value::Null, |backfill| {
            json!({
                "goal": backfill.goal,
                "remaining": backfill.remaining(),
                "segment": backfill.interval.map(|(first, next)| json!([first, next])),
            })
        })
    }

    fn mirror(&self) -> Value {
        self.status.mirror().map_or(Value::Null, |mirror| {
            json!({
                "url": mirror.url,
                "stream": { "connected": mirror.stream, "error": mirror.stream_error },
                "segments": {
                    "accepted": mirror.accepted,
                    "rejected": mirror.refused,
                    "error": mirror.segments_error,
                },
            })
        })
    }

    fn archive(&self) -> Value {
        self.status.archive().map_or(Value::Null, |archive| {
            json!({
                "url": archive.url,
                "min_height": archive.heights.map(|heights| heights.0),
                "max_height": archive.heights.map(|heights| heights.1),
                "answers": archive.answers.map(|heights| json!({
                    "min_height": heights.start(), "max_height": heights.end(),
                    "hashes_from_height": archive.hashes_from,
                })),
                "anchored": archive.anchored
                    .map(|at| json!({ "min_height": at.start(), "max_height": at.end() })),
                "breaker": archive.breaker,
                "segments": {
                    "accepted": archive.accepted, "rejected": archive.refused, "error": archive.error,
                },
                "push": archive.push.as_ref().map(push),
            })
        })
    }

    /// Proven heights that are served.
    fn verified(&self) -> Option<u64> {
        let range = self.serving.reader.range()?;
        self.status.verified().map(|height| height.min(*range.end())).filter(|h| h >= range.start())
    }

    fn unverified(&self) -> Option<u64> {
        let Some(range) = self.serving.reader.range() else { return Some(0) };
        let from = self.verified().map_or(*range.start(), |height| height + 1);
        self.status.knows_verified().then(|| (range.end() + 1).saturating_sub(from))
    }

    fn storage(&self, error: Option<&str>) -> Value {
        let (usage, full) = (self.serving.reader.usage(), self.time_to_full());
        json!({
            "data_dir": self.data_dir,
            "bytes": usage.disk_bytes,
            "bound_bytes": self.bounds.disk.retention.bytes,
            "time_to_full_seconds": full.map(|full| full.seconds.round()),
            "full_by": full.map(|full| full.by),
            "tiers": tiers(&self.serving.reader),
            "segments": usage.segments,
            "packed_heights": usage.packed_blocks,
            "quarantined": { "files": usage.quarantined, "bytes": usage.quarantined_bytes },
            "unrepaired_records": self.serving.reader.damaged_records(),
            "gap": self.serving.reader.gap().map(|gap| json!([gap.start, gap.end - 1])),
            "merged_tables": usage.tables,
            "free_bytes": neve_store::disk::free_bytes(&self.data_dir).ok(),
            "queue_bytes": self.queue_bytes.load(Ordering::Relaxed),
            "error": error,
        })
    }

    fn time_to_full(&self) -> Option<TimeToFull> {
        let reader = &self.serving.reader;
        let disk = DiskUse::of(reader, neve_store::disk::free_bytes(&self.data_dir).ok()?);
        let below = self.status.backfill().map_or(Some(0), |backfill| backfill.remaining())?;
        time_to_full(self.bounds.disk, disk, Growth::of(reader)?, below + self.lag().unwrap_or(0))
    }

    fn metrics(&self) -> String {
        super::metrics::publish(&self.thread_counters);
        super::metrics::publish_memory(&self.memory);
        self.height_metrics();
        self.upstream_metrics();
        set("neve_ingest_reserved_bytes", Some(self.budget.taken()));
        let backfill = self.status.backfill().into_iter();
        backfill.for_each(|at| gauge!("neve_backfill_remaining_heights").set(at.remaining_gauge()));
        set("neve_upstream_ws_connected", Some(self.status.ws_live().into()));
        self.store_metrics();
        set("neve_ingest_queue_bytes", Some(self.queue_bytes.load(Ordering::Relaxed)));
        set("neve_http_connections", Some(self.connections.load(Ordering::Relaxed) as u64));
        set("neve_mirror_connections", self.mirrors.open().map(|open| open as u64));
        set("neve_store_bound_bytes", self.bounds.disk.retention.bytes);
        let full = self.time_to_full().map_or(f64::INFINITY, |full| full.seconds);
        gauge!("neve_store_time_to_full_seconds").set(full);
        process::publish();
        let upstreams = self.status.upstreams();
        let names: Vec<&str> = upstreams.iter().map(|one| &*one.url).collect();
        let render = |page: &MetricsPage| page.render(&self.thread_counters);
        let page = self.metrics.as_ref().map(render).unwrap_or_default();
        super::metrics::without_replaced(&page, &names)
    }
}

impl Admin {
    /// Gauges of the served range and its head.
    fn height_metrics(&self) {
        let range = self.serving.reader.range();
        set("neve_first_height", range.as_ref().map(|range| *range.start()));
        set("neve_head_height", range.as_ref().map(|range| *range.end()));
        set("neve_settled_height", self.verified());
        set("neve_unsettled_heights", self.unverified());
        set("neve_upstream_head_height", self.upstream_head());
        set("neve_lag_heights", self.lag());
        // Without upstreams silence and age of a head mean nothing: alerts on both would never end.
        if !self.serving.freshness.follows_nobody() {
            // Infinite before the first answer, so that alerts on silence hold then, too.
            let silence = self.status.silence().map_or(f64::INFINITY, |time| time.as_secs_f64());
            gauge!("neve_upstream_silence_seconds").set(silence);
            let age = self.serving.freshness.head_age();
            age.into_iter().for_each(|age| gauge!("neve_head_age_seconds").set(age.as_secs_f64()));
        }
    }

    fn store_metrics(&self) {
        let usage = self.serving.reader.usage();
        set("neve_store_bytes", Some(usage.disk_bytes));
        set("neve_store_segments", Some(usage.segments as u64));
        set("neve_store_packed_heights", Some(usage.packed_blocks));
        set("neve_store_packed_bytes", Some(usage.packed_bytes));
        counter!("neve_store_unpacked_bytes_total").absolute(neve_store::unpacked_bytes());
        counter!("neve_store_damaged_records_total").absolute(neve_store::damages_found());
        set("neve_store_unrepaired_records", Some(self.serving.reader.damaged_records()));
        set("neve_store_quarantined_files", Some(usage.quarantined));
        set("neve_store_quarantined_bytes", Some(usage.quarantined_bytes));
        let gap = self.serving.reader.gap().map_or(0, |gap| gap.end - gap.start);
        set("neve_store_gap_heights", Some(gap));
        set("neve_disk_free_bytes", neve_store::disk::free_bytes(&self.data_dir).ok());
        let writable = self.status.words().store_error.is_none();
        set("neve_store_writable", Some(writable.into()));
    }

    /// A series for each upstream, and for each stage of ingest.
    fn upstream_metrics(&self) {
        for one in self.status.upstreams() {
            let labelled = |name: &'static str, value: f64| {
                gauge!(name, "upstream" => one.url.clone()).set(value);
            };
            #[allow(clippy::cast_precision_loss, reason = "gauges are doubles")]
            labelled("neve_upstream_concurrency_limit", one.window as f64);
            #[allow(clippy::cast_precision_loss, reason = "gauges are doubles")]
            labelled("neve_upstream_in_flight_heights", one.in_flight as f64);
            labelled("neve_upstream_mean_response_seconds", one.answer_seconds);
            labelled("neve_upstream_up", f64::from(u8::from(one.is_asked())));
        }
        let stages = [
            ("fetch", &self.busy.fetch),
            ("prove", &self.busy.prove),
            ("assemble", &self.busy.cut),
            ("write", &self.written),
        ];
        for (stage, nanoseconds) in stages {
            let time = Duration::from_nanos(nanoseconds.load(Ordering::Relaxed));
            gauge!("neve_ingest_stage_seconds_total", "stage" => stage).set(time.as_secs_f64());
        }
    }
}

/// The push to an archive as /health has it.
fn push(push: &PushStatus) -> Value {
    json!({
        "min_height": push.heights.map(|heights| heights.0),
        "max_height": push.heights.map(|heights| heights.1),
        "backlog": { "heights": push.backlog.0, "bytes": push.backlog.1 },
        "error": push.error,
    })
}

/// An upstream as /health has it.
fn upstream(one: &UpstreamStatus) -> Value {
    json!({
        "url": one.url,
        "state": one.state,
        "error": one.error,
        "retry_in_seconds": seconds(one.retry_in()),
        "head": one.head,
        "missing_below": one.lacks_below,
        "rules": rules(one.rules),
        "concurrency_limit": one.window,
        "in_flight": one.in_flight,
        "response_seconds": one.answer_seconds,
        "blocks": one.heights,
    })
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
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

fn memory(budget: &MemoryBudget) -> Value {
    let memory = Memory::now();
    json!({
        "resident_bytes": memory.map(|memory| memory.resident),
        "anonymous_bytes": memory.map(|memory| memory.anonymous),
        "client_reserved_bytes": budget.used(),
        "client_bytes_max": budget.total_max(),
        "mapped_file_bytes": memory.map(|memory| memory.resident.saturating_sub(memory.anonymous)),
    })
}

/// Page for operators, which no cache may store.
pub(crate) struct AdminPage {
    pub(crate) status: StatusCode,
    pub(crate) media_type: &'static str,
    pub(crate) text: String,
}

fn json_page(status: StatusCode, value: &Value) -> AdminPage {
    AdminPage { status, media_type: "application/json", text: format!("{value:#}\n") }
}
