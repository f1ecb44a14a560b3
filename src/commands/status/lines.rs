//! Lines of `neve status`, from /health.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use crate::client::PeerText;
use crate::config::{Human, Network};

/// Time between two looks of `--watch`.
pub(super) const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Seconds from which on a time to full says nothing.
const TEN_YEARS: u64 = 315_360_000;

/// Calls since the start, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CallCounts {
    hits: u64,
    misses: u64,
    errors: u64,
    /// Calls and misses that upstreams were asked for.
    relayed: u64,
}

impl CallCounts {
    /// Adds up the series of `neve_rpc_calls_total` and `neve_relay_requests_total`.
    pub(super) fn of(metrics: &str) -> Self {
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
        let relayed = metrics.lines().filter(|line| line.starts_with("neve_relay_requests_total{"));
        let count = |line: &str| line.rsplit_once(' ')?.1.parse::<u64>().ok();
        calls.relayed = relayed.filter_map(count).sum();
        calls
    }

    fn all(self) -> u64 {
        self.hits + self.misses + self.errors
    }
}

/// Returns the lines of /health, and the sum of calls. `before` are the calls one look earlier.
pub(super) fn page(
    health: &Value,
    calls: Option<CallCounts>,
    before: Option<CallCounts>,
) -> String {
    let mut lines = chain_lines(health);
    lines.extend(source_lines(health));
    lines.extend(resource_lines(health));
    lines.extend(calls.map(|calls| ("calls", self::calls(calls, before))));
    let line = |(name, text): PageLine| format!("{name:<12} {text}\n");
    lines.into_iter().map(line).collect()
}

/// Name and text of a line.
type PageLine = (&'static str, String);

/// Lines of this neve, its chain and its head.
fn chain_lines(health: &Value) -> Vec<PageLine> {
    let state = match &health["reason"] {
        Value::Null => text(&health["status"]),
        reason => format!("not ready: {}", text(reason)),
    };
    let mut lines = vec![
        ("neve", format!("{}, up {}: {state}", text(&health["version"]), uptime(health))),
        // Another neve may have the port.
        ("store", text(&health["storage"]["data_dir"])),
        ("chain", chain(health)),
        ("served", served(&health["blocks"])),
        ("head", head(&health["blocks"])),
    ];
    lines.extend(part(&health["clock"]["error"]).map(|error| ("clock", text(error))));
    lines.extend(following(health).map(|following| ("following", following)));
    lines
}

/// Lines of the sources of blocks.
fn source_lines(health: &Value) -> Vec<PageLine> {
    let upstreams = health["upstreams"].as_array().into_iter().flatten();
    let mut lines: Vec<PageLine> = upstreams.map(|one| ("upstream", upstream(one))).collect();
    lines.extend(part(&health["mirror"]).map(|part| ("mirror", mirror(part))));
    lines.extend(part(&health["archive"]).map(|part| ("archive", archive(part))));
    lines.extend(part(&health["backfill"]).map(|part| ("backfill", backfill(part))));
    lines
}

/// Lines of disk, memory and connections.
fn resource_lines(health: &Value) -> Vec<PageLine> {
    let [open, most] = ["connections", "connections_max"].map(|key| text(&health[key]));
    let mut lines = vec![
        ("segments", segments(&health["storage"])),
        ("disk", disk(&health["storage"])),
        ("memory", memory(&health["memory"])),
        ("connections", format!("{open} of {most}")),
    ];
    if let Value::Object(mirrors) = &health["mirrors"] {
        let [open, most] = ["open", "max"].map(|key| text(&mirrors[key]));
        lines.push(("mirrors", format!("{open} of {most} downloads and streams")));
    }
    lines
}

/// A part of /health, if this neve has it.
fn part(value: &Value) -> Option<&Value> {
    (!value.is_null()).then_some(value)
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

/// Error of following; nothing if it is none, or that of an upstream, whose line has it.
fn following(health: &Value) -> Option<String> {
    let own = &health["upstream"];
    let mut upstreams = health["upstreams"].as_array().into_iter().flatten();
    let is_told = own["error"].is_null() || upstreams.any(|one| one["error"] == own["error"]);
    (!is_told).then(|| format!("{}{}", text(&own["state"]), error(own)))
}

fn upstream(one: &Value) -> String {
    let [url, state, head] = ["url", "state", "head"].map(|key| text(&one[key]));
    let response = one["response_seconds"].as_f64().unwrap_or(0.0) * 1e3;
    let error = error(one);
    let retry = one["retry_in_seconds"].as_f64();
    let retry = retry.map_or_else(String::new, |left| format!(", asked again in {left:.0} s"));
    format!("{url}: {state}, head {head}, {response:.1} ms{error}{retry}")
}

/// The error of a part of /health, behind a comma; nothing without one.
fn error(part: &Value) -> String {
    match &part["error"] {
        Value::Null => String::new(),
        error => format!(", {}", text(error)),
    }
}

fn mirror(mirror: &Value) -> String {
    let stream = match mirror["stream"]["connected"].as_bool() {
        Some(true) => "stream connected".to_owned(),
        _ => format!("no stream{}", error(&mirror["stream"])),
    };
    let [accepted, rejected] = ["accepted", "rejected"].map(|key| text(&mirror["segments"][key]));
    let (url, error) = (text(&mirror["url"]), error(&mirror["segments"]));
    format!("{url}: {stream}, {accepted} segments accepted, {rejected} rejected{error}")
}

fn archive(archive: &Value) -> String {
    let [url, first, last] = ["url", "min_height", "max_height"].map(|key| text(&archive[key]));
    let [accepted, rejected] = ["accepted", "rejected"].map(|key| text(&archive["segments"][key]));
    let (error, push) = (error(&archive["segments"]), push(&archive["push"]));
    format!(
        "{url}, {first} to {last}, {accepted} segments accepted, {rejected} rejected{error}{push}"
    )
}

/// Backlog and error of the push to an archive, behind a comma; nothing without a push.
fn push(push: &Value) -> String {
    if push.is_null() {
        return String::new();
    }
    format!(", {} heights to push{}", text(&push["backlog"]["heights"]), error(push))
}

fn backfill(backfill: &Value) -> String {
    if backfill["remaining"].is_null() {
        return "goes on; its end is not known yet".to_owned();
    }
    let [remaining, goal] = ["remaining", "goal"].map(|key| text(&backfill[key]));
    format!("{remaining} heights left, down to {goal}")
}

fn segments(storage: &Value) -> String {
    let tiers = storage["tiers"].as_array().map_or(&[][..], Vec::as_slice);
    let heights = |name: &str| {
        let own = tiers.iter().filter(|one| one["tier"] == name);
        own.filter_map(|one| one["heights"].as_u64()).sum::<u64>()
    };
    let [packed, sealed, active] = ["packed", "sealed", "active"].map(heights);
    let files = text(&storage["segments"]);
    let quarantined = text(&storage["quarantined"]["files"]);
    format!(
        "{files}; heights: {packed} packed, {sealed} sealed, {active} active; {quarantined} quarantined"
    )
}

fn disk(storage: &Value) -> String {
    let [used, free] = ["bytes", "free_bytes"].map(|key| bytes(&storage[key]));
    let bound = match &storage["bound_bytes"] {
        Value::Null => String::new(),
        bound => format!(" of {}", bytes(bound)),
    };
    let full = storage["time_to_full_seconds"]
        .as_f64()
        .map(|seconds| format!(", full in {} by {}", left(seconds), text(&storage["full_by"])));
    let (full, error) = (full.unwrap_or_default(), error(storage));
    format!("{used} used{bound}, {free} free{full}{error}")
}

/// A time that is left, in whole minutes from an hour on.
#[expect(clippy::cast_sign_loss, reason = "no time is below zero")]
fn left(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    if seconds > TEN_YEARS {
        return "over 10 years".to_owned();
    }
    let text = humantime::format_duration(Duration::from_secs(seconds)).to_string();
    match text.rsplit_once(' ') {
        // A month of 30.44 days is no whole number of minutes, so this is the word for seconds.
        Some((minutes, last))
            if seconds >= 3600 && last.trim_end_matches('s').parse::<u8>().is_ok() =>
        {
            minutes.to_owned()
        }
        _ => text,
    }
}

fn memory(memory: &Value) -> String {
    let keys = ["resident_bytes", "anonymous_bytes", "client_reserved_bytes", "client_bytes_max"];
    let [resident, anonymous, clients, most] = keys.map(|key| bytes(&memory[key]));
    format!("{resident} resident, {anonymous} anonymous, {clients} of {most} for clients")
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn calls(now: CallCounts, before: Option<CallCounts>) -> String {
    let CallCounts { hits, misses, errors, relayed } = now;
    let share = 100.0 * hits as f64 / now.all().max(1) as f64;
    let mut shown = format!("{hits} hits ({share:.1} %), {misses} misses, {errors} errors");
    if relayed > 0 {
        let _ = write!(shown, ", {relayed} relayed"); // a String takes all
    }
    if let Some(before) = before {
        // The time that a look takes is left out, so the rate is a little high.
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
                       neve_relay_requests_total{outcome=\"ok\"} 4\n\
                       neve_relay_requests_total{outcome=\"timeout\"} 1\n\
                       neve_http_requests_total 9\n";
        let now = CallCounts::of(metrics);
        assert_eq!(now, CallCounts { hits: 3, misses: 1, errors: 2, relayed: 5 });
        assert_eq!(calls(now, None), "3 hits (50.0 %), 1 misses, 2 errors, 5 relayed");
        let before = Some(CallCounts { hits: 1, ..now });
        assert!(calls(now, before).ends_with(", 2 a second"));
    }

    #[test]
    fn bound_time_to_full_sources_and_tiers_are_shown() {
        let health = json!({
            "mirror": {
                "url": "http://a", "stream": { "connected": false, "error": "gone" },
                "segments": { "accepted": 2, "rejected": 1, "error": null },
            },
            "backfill": { "goal": 7, "remaining": 40 },
            "connections": 3, "connections_max": 100, "mirrors": { "open": 1, "max": 16 },
            "memory": { "client_reserved_bytes": 1024, "client_bytes_max": 2048 },
            "storage": {
                "bytes": 1024, "bound_bytes": 4096, "free_bytes": 8192, "segments": 4,
                "time_to_full_seconds": 90_061.0, "full_by": "retention",
                "tiers": [{ "tier": "packed", "heights": 5 }, { "tier": "active", "heights": 2 },
                    { "tier": "packed", "heights": 1 }],
                "quarantined": { "files": 1 },
            },
        });
        let page = page(&health, None, None);
        for line in [
            "mirror       http://a: no stream, gone, 2 segments accepted, 1 rejected\n",
            "backfill     40 heights left, down to 7\n",
            "segments     4; heights: 6 packed, 0 sealed, 2 active; 1 quarantined\n",
            "disk         1.0 KiB used of 4.0 KiB, 8.0 KiB free, full in 1day 1h 1m by retention\n",
            " 1.0 KiB of 2.0 KiB for clients\n",
            "connections  3 of 100\n",
            "mirrors      1 of 16 downloads and streams\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
    }

    #[test]
    fn backfill_without_an_estimate_has_no_end() {
        let page = page(&json!({ "backfill": { "goal": null, "remaining": null } }), None, None);
        assert!(page.contains("backfill     goes on; its end is not known yet\n"), "{page}");
    }

    #[test]
    fn each_error_of_health_is_shown() {
        let health = json!({
            "clock": { "error": "clock is late" },
            "upstream": { "state": "waiting", "error": "chain ends" },
            "upstreams": [{ "error": "no route" }, { "error": null }],
            "mirror": { "stream": { "error": "no stream" }, "segments": { "error": "no list" } },
            "archive": {
                "segments": { "error": "no manifest" },
                "push": { "backlog": { "heights": 32 }, "error": "denied" },
            },
            "storage": { "error": "disk full" },
        });
        let shown = page(&health, None, None);
        for error in [
            "no route",
            "no stream",
            "no list",
            "no manifest",
            "32 heights to push, denied",
            "disk full",
        ] {
            assert!(shown.contains(&format!(", {error}")), "{error}: {shown}");
        }
        assert!(shown.contains("clock        clock is late\n"), "{shown}");
        assert!(shown.contains("following    waiting, chain ends\n"), "{shown}");
        let well = json!({
            "clock": { "error": null }, "upstream": { "error": "x" }, "upstreams": [{ "error": "x" }],
        });
        let shown = page(&well, None, None);
        assert!(!shown.contains("clock") && !shown.contains("following"), "{shown}");
    }

    #[test]
    fn time_that_is_left_has_no_seconds_from_an_hour_on() {
        for (seconds, shown) in [
            (59.9, "59s"),
            (3599.0, "59m 59s"),
            (3601.0, "1h"),
            (90_061.0, "1day 1h 1m"),
            (9_208_632.0, "3months 15days 6h 16m"),
            (1_296_000.0, "15days"),
        ] {
            assert_eq!(left(seconds), shown);
        }
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
