//! Pages of docs/reference that come from the code. `UPDATE=1 cargo test --lib generated` rewrites them.

use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};
use std::{env, fs};

use metrics::Unit;
use neve_jsonrpc::RpcError;

use crate::config::settings::{AllSettings, Config, GROUPS};
use crate::config::{SettingsFile, Values, command, command_line, example_file, settings_table};
use crate::http::admit::table;
use crate::observe::{METRICS, Metric, MetricKind};
use crate::rpc::methods::Miss;
use crate::rpc::missing_data;

/// Compares a page with the generated text, or writes the page if `UPDATE` is set.
pub(crate) fn check(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference").join(page);
    if env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().expect("it has one"))
            .expect("the checkout can be written");
        fs::write(&path, text).expect("the checkout can be written");
    }
    let is = fs::read_to_string(&path).unwrap_or_default();
    assert!(is == text, "docs/reference/{page} differs from the code; run the tests with UPDATE=1");
}

/// The page of metrics.
pub(crate) fn metrics() -> String {
    let mut page = "# Metrics\n\nGenerated from `METRICS` in the code. [Watch](../operating/watch.md#alerts) says which of \
                    them deserve an alert.\n\nA counter without labels begins at 0. Most series with labels begin with their \
                    first event. A histogram has the series\n`_bucket`, `_sum` and `_count`.\n\n"
        .to_owned();
    page += "| metric | kind | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n";
    for metric in METRICS {
        let Metric { name, meaning, .. } = metric;
        let (kind, unit, labels) = (kind(metric.kind), unit(metric.unit), labels(metric.labels));
        writeln!(page, "| `{name}` | {kind} | {unit} | {labels} | {meaning} |")
            .expect("a string grows");
    }
    page += "\n## Reasons of rejected blocks\n\nThe log line and the file under `evidence/` have the details.\n\n| source | \
             values of `reason` |\n| --- | --- |\n";
    let proofs = rejections().join("`, `");
    writeln!(page, "| a failed proof of a block or its receipts | `{proofs}` |")
        .expect("a string grows");
    page += "| the place of the block in the chain | `parent_link`, `backfill_link`, `height`, `old_rules`, `disagrees` |\n\
             | a segment of the mirror source | the kind of the finding, as `neve verify` prints it |\n";
    page
}

/// Errors whose text depends on the request: code, text with `…` for the part that varies, cause.
const VARYING: [(i32, &str, &str); 34] = [
    (-32000, "…", "`eth_feeHistory` with a request that the node refuses, in its words"),
    (-32700, "…", "a WebSocket message that is not JSON, in Go's words"),
    (
        -32601,
        "the method … does not exist/is not available",
        "no configuration of the node's release has the method",
    ),
    (-32601, "no … subscription in … namespace", "no node has the subscription"),
    (-32602, "missing value for required argument …", "too few parameters"),
    (-32602, "too many arguments, want at most …", "too many parameters"),
    (-32602, "invalid argument …", "a parameter of a wrong form, in the words of libevm and Go"),
    (-32602, "expected subscription name as first argument", "`eth_subscribe` without a name"),
    (
        -32000,
        "requested too many blocks from … to …, maximum is set to …",
        "more than `--logs-blocks-max` blocks",
    ),
    (
        -32000,
        "requested … block … after last accepted block …",
        "a range of logs beyond the head, before Helicon",
    ),
    (-32000, "typed transaction too short", "`eth_sendRawTransaction` with no transaction"),
    (
        -32000,
        "too many subscriptions on this connection, allowed are …",
        "more than `--ws-subscriptions-max`",
    ),
    (-32000, "header not found: …; requested data is not available here", "a miss, with HTTP 421"),
    (
        -32005,
        "the logs are longer than … bytes; ask for fewer blocks at a time",
        "more than `--logs-bytes-max`",
    ),
    (
        -32005,
        "the logs of block … are longer than … bytes; open a filter of fewer addresses and topics",
        "a filter: one block has more than `--logs-bytes-max`",
    ),
    (
        -32005,
        "the request examined more than … bytes; ask for fewer blocks at a time",
        "more than `--request-examined-bytes-max`",
    ),
    (
        -32005,
        "too many filters, allowed are …; remove some or try again later",
        "more than `--filters-max`",
    ),
    (
        -32005,
        "too many filters of this address, allowed are …; remove some or try again later",
        "more than `--filters-address-max`",
    ),
    (
        -32005,
        "filters and subscriptions take all the memory that they may",
        "beyond `--client-bytes-address-max`",
    ),
    (
        -32000,
        "begin block … is greater than end block …",
        "a range of logs that ends before it begins, before Helicon",
    ),
    (
        -32000,
        "API key: missing or unknown",
        "HTTP 401; `--keys`, and the request names no key of the file",
    ),
    (
        -32000,
        "API key: this method is not allowed",
        "HTTP 403; the key has `methods`, and they do not include the call's",
    ),
    (
        -32005,
        "API key: too many requests; try again later",
        "HTTP 429; beyond the key's `requests-per-second`",
    ),
    (
        -32603,
        "relay: no upstream answers now; try again later",
        "relay: HTTP 503; no upstream works",
    ),
    (
        -32603,
        "relay: the upstream did not answer",
        "a call of a split batch that the upstream left out",
    ),
    (
        -32005,
        "relay: memory for clients is used up; try again later",
        "calls of a split batch that had no memory, while others of it had",
    ),
    (-32603, "relay: the upstream cannot be reached", "relay: HTTP 502; the connection broke"),
    (
        -32603,
        "relay: the upstream answered with HTTP …",
        "relay: HTTP 502; another status than 200",
    ),
    (
        -32603,
        "relay: the upstream's response is not JSON",
        "relay: HTTP 502; another media type, or a body that is no object or array",
    ),
    (
        -32603,
        "relay: the upstream's response has no length",
        "relay: HTTP 502; neither `Content-Length` nor chunks, so a cut would not be seen",
    ),
    (
        -32005,
        "relay: too many requests; try again later",
        "relay: HTTP 429; a limit of relayed requests",
    ),
    (
        -32003,
        "relay: the response is longer than … bytes",
        "relay: HTTP 502; over `--relay-response-bytes-max`",
    ),
    (
        -32000,
        "header not found: the upstream does not have it; …",
        "relay: HTTP 421; the upstream is a neve without the data",
    ),
    (
        -32000,
        "header not found: the request was relayed in a loop; …",
        "relay: HTTP 421; neves relay to each other, or more than five in a row",
    ),
];

/// Close codes of WebSockets: code, reason, cause.
const CLOSES: [(&str, &str, &str); 16] = [
    ("1001", "the server stops", "SIGTERM"),
    (
        "1002",
        "bad MASK, …",
        "a frame breaks RFC 6455: the first fault that neve finds, in the node's words",
    ),
    ("1002", "reserved bits set", "a frame has reserved bits; the node names each one"),
    ("1002", "", "a close frame has a code that no endpoint may send"),
    ("1007", "", "a text frame, or the reason of a close frame, is not UTF-8"),
    ("1007", "the response is not UTF-8", "a binary frame has an id that is not UTF-8"),
    ("1008", "too slow: … blocks behind", "more than `--ws-lag-max`; the client can resume"),
    (
        "1008",
        "block … is not served any more",
        "the next block is now below the served range; the client can resume at a served one",
    ),
    (
        "1008",
        "too slow: over … bytes of notifications wait",
        "relayed notifications beyond `--relayed-unsent-bytes-max`",
    ),
    ("1008", "API key: missing or unknown", "a reload dropped the key that the client named"),
    ("1009", "", "a message over `--ws-message-bytes-max`"),
    ("1011", "block … cannot be read", "the disk is damaged there"),
    (
        "1011",
        "relay: a notification is longer than … bytes",
        "the upstream sent a message over `--relayed-message-bytes-max`",
    ),
    (
        "1012",
        "relay: the upstream of a subscription left",
        "the upstream of a relayed subscription left, was silent or sent no JSON-RPC; subscribe again",
    ),
    ("1013", "memory for clients is used up; try again later", "beyond `--client-bytes-total-max`"),
    (
        "1013",
        "too many requests wait for an answer; try again later",
        "beyond `--queued-requests-total-max`",
    ),
];

/// The page of errors.
pub(crate) fn errors() -> String {
    let mut page = "# Errors\n\nGenerated from the code. [RPC.md](../RPC.md#misses) explains misses.\n\n## JSON-RPC\n\n\
                    | code | message | cause |\n| --- | --- | --- |\n"
        .to_owned();
    page += &rows_of_calls();
    page +=
        "\nThe text of a miss, after `header not found: `:\n\n| text | cause |\n| --- | --- |\n";
    page += &rows_of_misses();
    page += "\nThe `data` of a miss is `{\"firstHeight\":\"0x64\",\"head\":\"0x153\"}`, with nulls while the store is empty.\n\n\
             ## HTTP\n\n| status | body | cause |\n| --- | --- | --- |\n\
             | 421 (`--miss-status`) | a miss | a full node may have the data |\n";
    page.extend(table().iter().map(|(status, text, cause)| row(status, &as_code(text), cause)));
    page += "| 431 | | request line and HTTP headers over `--header-bytes-max`, or over 100 headers |\n\
             | 401, 403, 429 | a JSON-RPC error | an API key that is missing, unknown, or does not allow the request |\n\
             | 429, 502, 503, 504 | a JSON-RPC error | a relayed call without a response |\n\
             | 503 | `too many connections` | beyond `--connections-max` or `--connections-address-max` |\n\n\
             A 503 has `Retry-After: 1`. After 400, 413, 417 and 501 the connection closes.\n\n\
             ## WebSocket\n\n| close code | reason | cause |\n| --- | --- | --- |\n";
    page.extend(CLOSES.map(|(code, reason, cause)| row(&code, &as_code(reason), cause)));
    page += "| none | | a frame is not JSON, or the client answered no ping |\n";
    page
}

fn row(code: &impl Display, text: &str, cause: &str) -> String {
    format!("| {code} | {text} | {cause} |\n")
}

fn as_code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

/// Rows of the errors of JSON-RPC, by their codes.
fn rows_of_calls() -> String {
    let fixed =
        RpcError::FIXED.map(|(error, cause)| (error.code, error.message.into_owned(), cause));
    let varying = VARYING.map(|(code, message, cause)| (code, message.to_owned(), cause));
    let mut rows: Vec<_> = fixed.into_iter().chain(varying).collect();
    rows.sort_by_key(|(code, ..)| *code);
    rows.iter().map(|(code, message, cause)| row(code, &as_code(message), cause)).collect()
}

fn rows_of_misses() -> String {
    let mut rows = String::new();
    for (miss, cause) in misses() {
        let range = (miss != Miss::Empty).then_some(&(0x64..=0x153));
        let message = missing_data(miss, range).message.into_owned();
        let text =
            message.trim_start_matches("header not found: ").split(';').next().unwrap_or_default();
        writeln!(rows, "| `{text}` | {cause} |").expect("a string grows");
    }
    rows
}

fn misses() -> [(Miss, &'static str); 10] {
    [
        (Miss::Empty, "the store is empty"),
        (Miss::Height(1), "a height outside the served range"),
        (Miss::Hash([0xab; 32]), "an unknown hash of a block or transaction"),
        (Miss::Unreadable(0x65), "a damaged record"),
        (Miss::NotRelayed("eth_gasPrice"), "no upstream sent the value within `--price-age-max`"),
        (Miss::Filter, "an id of a filter that no neve of this chain made"),
        (Miss::InBatch, "a call of the batch is a miss, so the batch is"),
        (Miss::NoUpstream, "a tag at a replica without an upstream"),
        (
            Miss::CatchingUp,
            "after a start, until the head was near the upstream's (`--ready-lag-max`)",
        ),
        (Miss::StaleHead, "`--stale-heads miss`, and the head is older than `--ready-age-max`"),
    ]
}

fn kind(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter | MetricKind::Sum => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    }
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes",
        Unit::Seconds => "seconds",
        _ => "",
    }
}

fn labels(labels: &[(&str, &str)]) -> String {
    let label = |(name, values): &(&str, &str)| match values.strip_prefix('(') {
        Some(values) => format!("`{name}`: {}", values.trim_end_matches(')')),
        None => format!("`{name}`: `{}`", values.replace(' ', "`, `")),
    };
    labels.iter().map(label).collect::<Vec<_>>().join("; ")
}

/// Reasons of failed proofs, from the function that names them.
fn rejections() -> Vec<String> {
    let source = source("crates/chain/src", "refusal.rs");
    let (_, body) = source.split_once("fn reason(&self)").expect("it names its reasons");
    let (body, _) = body.split_once("\n    }\n").expect("the function ends");
    let quoted = body.lines().filter_map(|line| line.split('"').nth(1).map(str::to_owned));
    let mut reasons: Vec<_> = quoted.collect();
    reasons.sort();
    reasons.dedup();
    assert!(reasons.len() > 20, "{reasons:?}");
    reasons
}

/// All files below a folder.
fn files(below: &str) -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(below)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("it is a folder") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files
}

/// Text of all source files below a folder.
fn sources(below: &str) -> String {
    let is_source = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("reference.rs")
    };
    let files = files(below).into_iter().filter(is_source);
    files.map(|path| fs::read_to_string(path).expect("it is text")).collect()
}

#[test]
fn page_of_errors_is_generated_from_the_code() {
    check("errors.md", &errors());
}

/// Fragments of the texts that vary stand in the code, and so do the reasons of closes.
#[test]
fn text_of_an_error_stands_in_the_code() {
    let code = sources("src") + &sources("crates/jsonrpc/src");
    let words: Vec<&str> = code.split_whitespace().filter(|word| *word != "\\").collect();
    let code = words.join(" ");
    let texts =
        VARYING.map(|(_, text, _)| text).into_iter().chain(CLOSES.map(|(_, reason, _)| reason));
    for piece in texts
        .flat_map(|text| text.split('…'))
        .map(|piece| piece.trim_matches([' ', ';', ',']))
        .filter(|piece| piece.len() > 3)
    {
        assert!(code.contains(piece), "no error says {piece:?}");
    }
}

/// An error that is made in another place needs a row in [`VARYING`].
#[test]
fn every_place_that_makes_an_error_is_known() {
    let code = sources("src") + &sources("crates/jsonrpc/src");
    let made = code.matches("RpcError { code: ").count();
    assert_eq!(made, 12, "add the error to docs/reference/errors.md (VARYING), then count it here");
}

/// Reads a source file by its name, in any folder.
fn source(below: &str, name: &str) -> String {
    let is_named = |path: &PathBuf| path.file_name().is_some_and(|file| file == name);
    let found = files(below).into_iter().find(is_named);
    let path = found.unwrap_or_else(|| panic!("no {name} in {below}"));
    fs::read_to_string(path).expect("it is text")
}

#[test]
fn generated_settings_page_is_that_of_the_table() {
    check("settings.md", &settings_table(GROUPS));
}

#[test]
fn meaning_of_a_setting_has_one_or_two_sentences_as_the_page_shows_it() {
    for row in settings_table(GROUPS).lines().filter(|line| line.starts_with("| `")) {
        let meaning = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        assert!(meaning.matches(". ").count() <= 1 && meaning.ends_with('.'), "{row}");
    }
}

#[test]
fn generated_command_line_page_is_that_of_the_help() {
    check("cli.md", &command_line(command::<AllSettings>()));
}

/// Settings of the example file, without their comment signs.
fn keys(example: &str) -> Vec<&str> {
    let keys = example.lines().filter(|line| line.starts_with('#') && !line.starts_with("# "));
    keys.filter(|line| !line.starts_with("##")).map(|line| &line[1..]).collect()
}

#[test]
fn generated_example_file_has_all_keys() {
    let text = example_file(GROUPS);
    check("../../packaging/neve.toml", &text);
    // Without its comment signs each line is a setting that is allowed.
    let keys = keys(&text);
    let settings = GROUPS.iter().flat_map(|group| group.settings);
    assert_eq!(keys.len(), settings.filter(|setting| !setting.flag_only).count());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("neve.toml");
    fs::write(&path, keys.join("\n")).expect("a file");
    SettingsFile::read(&path, GROUPS).expect("all of them are allowed");
    // Without its comment sign each line alone makes a configuration.
    for key in keys {
        let rest = ["data-dir = \"/d\"", "upstream = \"http://127.0.0.1:9650\""];
        let name = key.split(' ').next();
        let rest = rest.into_iter().filter(|line| line.split(' ').next() != name);
        let lines: Vec<_> = rest.chain([key]).collect();
        fs::write(&path, lines.join("\n")).expect("a file");
        let file = SettingsFile::read(&path, GROUPS).expect("it is allowed");
        let values = Values::new(GROUPS, None, Some(&file)).expect("they are values");
        Config::of(values).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
}
