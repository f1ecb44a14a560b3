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
    "not_held",
    // code, only words that no sentence has
    "AnswerBody",
    "ChainTexts",
    "HeadForm",
    "HeaderAnswer",
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
    "answer_elsewhere",
    "answer_now",
    "neve-floor-ask",
    "neve_touches",
    "pages_go",
    "take_out",
    "write_plain",
];

/// Old names of types. They are words of English too, so only their definitions count.
const TYPES: &[&str] = &[
    "Accepts", "Answer", "Asking", "Bad", "Built", "Busy", "Come", "Copied", "Damage", "Door",
    "Feed", "Filter", "Garbage", "Heads", "Lease", "Leave", "Long", "Means", "Mirrors", "Moved",
    "Need", "Next", "Out", "Over", "Patience", "Peer", "Piece", "Plain", "Quiet", "Refused",
    "Sight", "Taking", "Tally", "Tip", "TooLong", "Topic", "Turned", "Wrong",
];

/// Old labels and keys of /health. They name values in the code, so only whole literals count.
const LITERALS: &[&str] = &[
    "answer_seconds",
    "asked",
    "damaged",
    "doubted",
    "garbage",
    "lacks_below",
    "resting",
    "senseless",
    "too_long",
    "under_way",
    "unverified",
];

/// Old names of files, without `.rs`.
const FILES: &[&str] = &[
    "encoded",
    "head",
    "held",
    "lie",
    "lies",
    "plain",
    "question",
    "questions",
    "quiet",
    "skeleton",
    "spread",
    "switch",
    "unruly",
    "window",
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

/// Types and literals of sources that have an old name.
fn old_in_sources(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split(|sign: char| !sign.is_alphanumeric()).collect();
        let kinds = ["struct", "enum", "trait", "type", "union"];
        let is_old = |pair: &&[&str]| kinds.contains(&pair[0]) && TYPES.contains(&pair[1]);
        let is_comment = line.trim_start().starts_with("//");
        let types = words.windows(2).filter(is_old).filter(|_| !is_comment).map(|pair| pair[1]);
        let literals = line.split('"').skip(1).step_by(2).filter(|word| LITERALS.contains(word));
        found.extend(types.chain(literals).map(|word| format!("line {}: {word}", at + 1)));
    }
    found
}

#[test]
fn old_name_of_a_type_a_literal_or_a_file_is_gone() {
    let mut found = Vec::new();
    for (file, text) in Files::below(&["src", "crates", "tests"], &[".rs"]).iter() {
        let stem = file.rsplit('/').next().and_then(|name| name.strip_suffix(".rs"));
        let named = stem.filter(|stem| FILES.contains(stem)).map(|_| "its own name".to_owned());
        let is_source = !file.starts_with("tests/");
        let inside = if is_source { old_in_sources(text) } else { Vec::new() };
        found.extend(named.into_iter().chain(inside).map(|what| (file.to_owned(), what)));
    }
    compare("old names", &found, &[]);
}

#[test]
fn old_name_of_a_type_and_a_literal_is_found() {
    let text = "pub(crate) struct Peer<'a> {\n// type Peer\nlet plain: Peer = \"asked\";\n\
                struct PeerText { asked: \"was asked\" }";
    assert_eq!(old_in_sources(text), ["line 1: Peer", "line 3: asked"]);
}
