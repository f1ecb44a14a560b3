//! `neve status`: the pages of the admin listener in a terminal.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use hyper::header::HeaderMap;
use hyper::http::uri::PathAndQuery;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::config::written;
use super::status_metrics::{misses, times};
use crate::client::{PeerText, StreamClient, client_config};
use crate::config::settings::{AdminListen, HttpConfig};
use crate::config::{ConfigError, Endpoint, Human, ListenAddress, Network, SettingsSource};

/// Exit code if neve does not answer.
const UNREACHABLE: u8 = 2;
/// Time for an answer, and bytes of it: /metrics has tens of kilobytes.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Time between two looks of `--watch`.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Prints the state of a running neve once, or once a second.
///
/// # Errors
/// The exit code is 1 if neve is not ready, and 2 if it cannot be reached.
pub fn run(source: Result<SettingsSource, ConfigError>, watch: bool) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let address = source.map_err(|error| error.to_string()).and_then(|source| address(&source));
    let shown = address.and_then(|address| {
        let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
        runtime.block_on(show(&address, watch))
    });
    shown.unwrap_or_else(|why| {
        let _ = writeln!(io::stderr(), "neve: {why}"); // there is nowhere else to say it
        ExitCode::from(UNREACHABLE)
    })
}

/// Returns the address of the listener that has the full /health.
fn address(source: &SettingsSource) -> Result<String, String> {
    let read = source.read().and_then(|values| HttpConfig::of(&values));
    let http = read.map_err(|error| error.to_string())?;
    let address = match http.admin_listen {
        AdminListen::Given(address) | AdminListen::Default(address) => address,
        AdminListen::Off if http.admin_on_main => http.listen,
        AdminListen::Off => {
            return Err("no admin listener; start neve with --admin-listen HOST:PORT".to_owned());
        }
    };
    if address.is_any_port() {
        return Err("the port is any free one; name it with --admin-listen HOST:PORT".to_owned());
    }
    match address {
        ListenAddress::Tcp { .. } => Ok(address.to_string()),
        ListenAddress::Unix(path) => {
            let path = path.display();
            Err(format!("no port; use curl --unix-socket {path} http://localhost/health"))
        }
    }
}

async fn show(address: &str, watch: bool) -> Result<ExitCode, String> {
    let admin = AdminPages::at(address)?;
    let mut before = None;
    loop {
        let health = admin.health().await?;
        let metrics = admin.metrics().await;
        let calls = metrics.as_deref().map(Calls::of);
        let text = page(&health, calls, before) + &call_lines(&metrics.unwrap_or_default());
        before = calls;
        let clear = if watch && io::stdout().is_terminal() { CLEAR } else { "" };
        let mut out = io::stdout();
        let printed = write!(out, "{clear}{text}").and_then(|()| out.flush());
        let is_closed = printed.is_err();
        let code = written(printed);
        if !watch || is_closed {
            let ready = health["status"] == "ok";
            return Ok(if ready || code != ExitCode::SUCCESS { code } else { ExitCode::FAILURE });
        }
        sleep(WATCH_EVERY).await;
    }
}

/// The pages of an admin listener.
struct AdminPages {
    client: StreamClient,
    address: String,
}

impl AdminPages {
    fn at(address: &str) -> Result<Self, String> {
        let endpoint = Endpoint::parse(&format!("http://{address}/health"))?;
        let client = StreamClient::new(&endpoint, client_config(None)?, ANSWER_TIME_MAX);
        Ok(Self { client, address: address.to_owned() })
    }

    async fn get(&self, path: &'static str) -> Result<Bytes, String> {
        let path = PathAndQuery::from_static(path);
        let body = async {
            let response = self.client.send(Some(&path), None, HeaderMap::new()).await;
            let response = response.map_err(|error| cause(&error))?;
            if response.status() != StatusCode::OK {
                return Err(format!("HTTP {}", response.status()));
            }
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            body.map(http_body_util::Collected::to_bytes).map_err(|error| error.to_string())
        };
        let body = timeout(ANSWER_TIME_MAX, body).await;
        let body = body.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_TIME_MAX:?}")));
        body.map_err(|why| {
            let why = PeerText::new(&why);
            format!("cannot reach neve at {}: {why}; see --admin-listen", self.address)
        })
    }

    async fn health(&self) -> Result<Value, String> {
        let body = self.get("/health").await?;
        let health: Option<Value> = serde_json::from_slice(&body).ok();
        health.filter(|health| health["storage"].is_object()).ok_or_else(|| {
            let address = &self.address;
            format!("{address} has no full /health; name the admin listener by --admin-listen")
        })
    }

    async fn metrics(&self) -> Option<String> {
        let body = self.get("/metrics").await.ok()?;
        Some(String::from_utf8_lossy(&body).into_owned())
    }
}

/// The innermost reason of an error: the others say that a request failed.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}

/// Calls since the start, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Calls {
    hits: u64,
    misses: u64,
    errors: u64,
}

impl Calls {
    /// Adds up the series of `neve_rpc_calls_total`.
    fn of(metrics: &str) -> Self {
        let mut calls = Self::default();
        for line in metrics.lines().filter(|line| line.starts_with("neve_rpc_calls_total{")) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let value = value.parse().unwrap_or(0);
            if series.contains("outcome=\"hit\"") {
                calls.hits += value;
            } else if series.contains("outcome=\"miss\"") {
                calls.misses += value;
            } else {
                calls.errors += value;
            }
        }
        calls
    }

    fn all(self) -> u64 {
        self.hits + self.misses + self.errors
    }
}

/// Returns the lines about times and reasons of misses, as far as there are any.
fn call_lines(metrics: &str) -> String {
    let lines = [("times", times(metrics)), ("misses", misses(metrics))];
    let shown =
        lines.into_iter().filter_map(|(name, text)| Some(format!("{name:<12} {}\n", text?)));
    shown.collect()
}

/// Returns the page without these lines. `before` are the calls one look earlier.
fn page(health: &Value, calls: Option<Calls>, before: Option<Calls>) -> String {
    let mut page = String::new();
    let mut line = |name: &str, text: String| {
        let _ = writeln!(page, "{name:<12} {text}"); // a String takes all
    };
    let state = match &health["reason"] {
        Value::Null => text(&health["status"]),
        reason => format!("not ready: {}", text(reason)),
    };
    line("neve", format!("{}, up {}: {state}", text(&health["version"]), uptime(health)));
    line("chain", chain(health));
    line("served", served(&health["blocks"]));
    line("head", head(&health["blocks"]));
    for upstream in health["upstreams"].as_array().into_iter().flatten() {
        line("upstream", self::upstream(upstream));
    }
    if !health["archive"].is_null() {
        line("archive", archive(&health["archive"]));
    }
    line("disk", disk(&health["storage"]));
    line("memory", memory(&health["memory"]));
    line("connections", text(&health["connections"]));
    if let Some(calls) = calls {
        line("calls", self::calls(calls, before));
    }
    page
}

/// A value of the page: another program may have the port.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => PeerText::new(text).to_string(),
        other => PeerText::new(&other.to_string()).to_string(),
    }
}

fn bytes(value: &Value) -> String {
    value.as_u64().map_or_else(|| "unknown".to_owned(), |bytes| Human(bytes).to_string())
}

fn uptime(health: &Value) -> String {
    let seconds = health["uptime_seconds"].as_u64().unwrap_or(0);
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

fn chain(health: &Value) -> String {
    let networks = [("mainnet", Network::Mainnet), ("Fuji", Network::Fuji)];
    let id = health["chain_id"].as_u64();
    let network = networks.iter().find(|(_, network)| Some(network.identity().chain_id) == id);
    let rules = text(&health["upstream"]["rules"]);
    match network {
        Some((name, _)) => format!("{} ({name}), rules {rules}", text(&health["chain_id"])),
        None => format!("{}, rules {rules}", text(&health["chain_id"])),
    }
}

fn served(blocks: &Value) -> String {
    match (blocks["min_height"].as_u64(), blocks["max_contiguous_height"].as_u64()) {
        (Some(first), Some(head)) => {
            format!("{first} to {head}, {} heights", head.saturating_sub(first) + 1)
        }
        _ => "no block yet".to_owned(),
    }
}

fn head(blocks: &Value) -> String {
    let age = blocks["head_age_seconds"].as_f64();
    let age = age.map_or_else(|| "of unknown age".to_owned(), |age| format!("{age:.1} s old"));
    let [head, lag, settled] = ["head", "lag", "settled_height"].map(|key| text(&blocks[key]));
    format!("{head}, {age}, lag {lag}, settled {settled}")
}

fn upstream(one: &Value) -> String {
    let [url, state, head] = ["url", "state", "head"].map(|key| text(&one[key]));
    let response = one["response_seconds"].as_f64().unwrap_or(0.0) * 1e3;
    let error = match &one["error"] {
        Value::Null => String::new(),
        error => format!(", {}", text(error)),
    };
    let retry = one["retry_in_seconds"].as_f64();
    let retry = retry.map_or_else(String::new, |left| format!(", asked again in {left:.0} s"));
    format!("{url}: {state}, head {head}, {response:.1} ms{error}{retry}")
}

fn archive(archive: &Value) -> String {
    let [url, first, last] = ["url", "min_height", "max_height"].map(|key| text(&archive[key]));
    let [accepted, rejected] = ["accepted", "rejected"].map(|key| text(&archive["segments"][key]));
    let error = match &archive["segments"]["error"] {
        Value::Null => String::new(),
        error => format!(", {}", text(error)),
    };
    format!("{url}, {first} to {last}, {accepted} segments taken, {rejected} rejected{error}")
}

fn disk(storage: &Value) -> String {
    let [used, free] = ["bytes", "free_bytes"].map(|key| bytes(&storage[key]));
    let (segments, quarantined) = (text(&storage["segments"]), &storage["quarantined"]["files"]);
    let error = match &storage["error"] {
        Value::Null => String::new(),
        error => format!(", {}", text(error)),
    };
    let quarantined = text(quarantined);
    format!("{used} used, {free} free, {segments} segments, {quarantined} quarantined{error}")
}

fn memory(memory: &Value) -> String {
    let keys = ["resident_bytes", "anonymous_bytes", "client_reserved_bytes"];
    let [resident, anonymous, clients] = keys.map(|key| bytes(&memory[key]));
    format!("{resident} resident, {anonymous} anonymous, {clients} for clients")
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn calls(now: Calls, before: Option<Calls>) -> String {
    let Calls { hits, misses, errors } = now;
    let share = 100.0 * hits as f64 / now.all().max(1) as f64;
    let mut shown = format!("{hits} hits ({share:.1} %), {misses} misses, {errors} errors");
    if let Some(before) = before {
        let rate = now.all().saturating_sub(before.all()) as f64 / WATCH_EVERY.as_secs_f64();
        let _ = write!(shown, ", {rate:.0} a second"); // a String takes all
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_are_added_up_by_outcome() {
        let metrics = "# HELP neve_rpc_calls_total x\n\
                       neve_rpc_calls_total{method=\"eth_chainId\",outcome=\"hit\"} 3\n\
                       neve_rpc_calls_total{method=\"eth_call\",outcome=\"miss\"} 1\n\
                       neve_rpc_calls_total{method=\"eth_getLogs\",outcome=\"error\"} 2\n\
                       neve_http_requests_total 9\n";
        let now = Calls::of(metrics);
        assert_eq!(now, Calls { hits: 3, misses: 1, errors: 2 });
        assert_eq!(calls(now, None), "3 hits (50.0 %), 1 misses, 2 errors");
        let before = Some(Calls { hits: 1, ..now });
        assert!(calls(now, before).ends_with(", 2 a second"));
    }

    #[test]
    fn text_of_another_program_cannot_color_the_terminal() {
        let health = json!({ "version": "\u{1b}[31m", "reason": "\u{1b}]0;x\u{7}" });
        assert!(!page(&health, None, None).contains('\u{1b}'));
    }

    #[test]
    fn state_without_a_block_is_shown() {
        let page =
            page(&json!({ "status": "not_ready", "reason": "no block is stored yet" }), None, None);
        assert!(page.contains("not ready: no block is stored yet"), "{page}");
        assert!(page.contains("served       no block yet"), "{page}");
    }
}
