//! Old names are gone.

use crate::{Files, compare};

/// Names of metrics, settings, labels and keys of /health that were renamed.
const OLD: &[&str] = &[
    "neve_backfill_left_heights",
    "neve_blocks_refused_total",
    "neve_budget_bytes",
    "neve_client_refused_total",
    "neve_http_handed_over_total",
    "neve_http_plain_total",
    "neve_http_refused_total",
    "neve_http_reply_bytes_total",
    "neve_http_timeouts_total",
    "neve_ingest_seconds",
    "neve_mirror_live",
    "neve_mirror_records_total",
    "neve_mirror_segment_bytes_total",
    "neve_mirror_segments_total",
    "neve_mirrors_sent_bytes_total",
    "neve_mirrors_sent_records_total",
    "neve_proofs_missing_total",
    "neve_queue_bytes",
    "neve_store_damaged_records",
    "neve_store_syncs_seconds",
    "neve_stored_bytes_total",
    "neve_stored_logs_total",
    "neve_unverified_heights",
    "neve_upstream_answer_seconds",
    "neve_upstream_answers_seconds",
    "neve_upstream_asked",
    "neve_upstream_bytes_total",
    "neve_upstream_errors_total",
    "neve_upstream_heights_total",
    "neve_upstream_newest_missed_total",
    "neve_upstream_under_way_heights",
    "neve_upstream_values_rejected_total",
    "neve_upstream_window_heights",
    "neve_upstream_ws_connects_total",
    "neve_upstream_ws_live",
    "neve_verified_height",
    "neve_ws_ended_total",
    // settings
    "--agree",
    "--compress",
    "--connect-timeout",
    "--fetch-concurrency",
    "--head-bytes-max",
    "--poll-interval",
    "--queue-bytes-max",
    "--request-timeout",
    "--requests-per-second",
    "--serve-segments",
    "--sync-interval",
    "--upstream-body-bytes-max",
    "--verify-senders",
    "--verify-threads",
    "--ws-idle-timeout",
    // labels and keys
    "history_link",
    "lacks_height",
    "verified_height",
    "silent_seconds",
    // code, only words that no sentence has
    "ChainTexts",
    "HeadForm",
    "HeadTexts",
    "HistoryWriter",
    "Keeper",
    "Lanes",
    "NOT_HERE",
    "NoAnswer",
    "NotHeld",
    "Outgoing",
    "RecordHead",
    "ReplyBuf",
    "Scanner",
    "Stretch",
    "Unusable",
    "WsEnd",
    "answer_now",
    "neve-floor-ask",
    "neve_touches",
    "pages_go",
    "take_out",
    "write_plain",
];

/// Old names in a text, as whole words.
fn old(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let words = line.split(|sign: char| !(sign.is_ascii_alphanumeric() || "_-".contains(sign)));
        let old = words.filter(|word| OLD.contains(word));
        found.extend(old.map(|word| format!("line {}: {word}", at + 1)));
    }
    found
}

#[test]
fn old_name_is_gone() {
    let folders = [
        "README.md",
        "CHANGELOG.md",
        "docs",
        "src",
        "crates",
        "tests",
        "packaging",
        "bench-scripts",
        "examples",
        "benches",
        "check",
    ];
    let mut found = Vec::new();
    let endings = [
        ".md", ".rs", ".py", ".toml", ".service", ".conf", ".vcl", ".json", ".yml", ".yaml",
        ".html", ".mjs", ".js", ".tpl", "check",
    ];
    for (file, text) in Files::below(&folders, &endings).iter() {
        // The changelog says what became of an old name.
        let kept = ["tests/words/names.rs", "CHANGELOG.md"];
        let is_kept = kept.contains(&file) || file.starts_with("docs/benchmarks/");
        let here = if is_kept { Vec::new() } else { old(text) };
        found.extend(here.into_iter().map(|what| (file.to_owned(), what)));
    }
    compare("old names", &found, &[]);
}

#[test]
fn old_name_is_found_as_a_whole_word() {
    assert_eq!(
        old("`neve_queue_bytes` is not neve_ingest_queue_bytes"),
        ["line 1: neve_queue_bytes"]
    );
}
