//! Mechanisms that have one place.

use crate::Finding;
use crate::source::{Tree, code};

/// A word or path, the folder below which it may not stand, and the places where it may.
const RULES: [(&str, &str, &[&str]); 24] = [
    ("spawn_blocking", "src/http/", &["src/http/response/disk_thread.rs"]),
    ("PoisonError", "src/", &["src/shared/lock.rs"]),
    ("unsafe", "src/", &[]),
    ("unsafe", "crates/", &["crates/store/src/memory/map.rs", "crates/keccak/src/"]),
    ("is_cold", "src/", &[]),
    ("DROPPED", "src/", &[]),
    // Clients and servers of HTTP.
    ("client::legacy", "src/", &["src/client/"]),
    ("hyper::server", "src/", &["src/http/full/"]),
    // Whoever computes what is mapped does not wait.
    ("tokio", "src/body/", &[]),
    ("tokio", "src/rpc/", &["src/rpc/cursors/replays.rs"]),
    ("tokio", "crates/", &["crates/devnet/"]),
    // Changes of files.
    (
        "remove_file",
        "src/",
        &["src/fetch/evidence.rs", "src/http/listening.rs", "src/archive/read/page_dir.rs"],
    ),
    ("remove_file", "crates/store/", &["crates/store/src/disk/disk.rs"]),
    (
        "fs::write",
        "src/",
        &[
            "src/fetch/evidence.rs",
            "src/commands/reference.rs",
            "src/archive/write/tests/packed_dir.rs",
        ],
    ),
    ("fs::write", "crates/store/", &[]),
    ("fs::rename", "src/", &[]),
    ("fs::rename", "crates/store/", &["crates/store/src/disk/disk.rs"]),
    // Reads of files, each of which a test makes fail.
    ("read_exact_at", "crates/store/", &["crates/store/src/reads.rs"]),
    ("read_at", "crates/store/", &["crates/store/src/reads.rs"]),
    (
        "File::open",
        "crates/store/",
        &[
            "crates/store/src/reads.rs",
            "crates/store/src/disk/disk.rs",
            "crates/store/src/memory/residency/tests.rs",
        ],
    ),
    ("read_dir", "crates/store/", &["crates/store/src/reads.rs", "crates/store/src/read_tests"]),
    ("symlink_metadata", "crates/store/", &["crates/store/src/reads.rs"]),
    ("OpenOptions", "src/", &[]),
    ("OpenOptions", "crates/store/", &["crates/store/src/disk/disk.rs"]),
];

/// Text of literals in lower case, and the only places below src where it may stand.
const LITERALS: [(&str, &[&str]); 1] =
    [("content-length: ", &["src/http/response/headers.rs", "src/http/admit/error_response.rs"])];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (word, dir, allowed) in RULES {
        for (path, text) in tree.below(dir) {
            let free = allowed.iter().any(|place| path.starts_with(place));
            let sources = path.starts_with("src/") || path.contains("/src/");
            if !free && sources && names(&code(text), word) {
                found.push(format!("{path}: {word} outside its place"));
            }
        }
    }
    for (literal, allowed) in LITERALS {
        for (path, text) in tree.below("src/") {
            if !allowed.contains(&path) && text.to_lowercase().contains(literal) {
                found.push(format!("{path}: `{literal}` outside its place"));
            }
        }
    }
    found
}

/// True if `code` has `word` as a whole identifier, or as a path.
fn names(code: &str, word: &str) -> bool {
    if word.contains("::") {
        return code.contains(word);
    }
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|name| name == word)
}

#[test]
fn mechanism_outside_its_place_is_reported() {
    let tree = Tree::of(&[
        ("src/http/a.rs", "// unsafe\n#![forbid(unsafe_code)]\ntokio::task::spawn_blocking(f);"),
        ("src/http/response/disk_thread.rs", "spawn_blocking(f);"),
        ("crates/store/src/b.rs", "unsafe { f() }"),
        ("crates/store/src/memory/map.rs", "unsafe { f() }"),
        ("src/relay/c.rs", "use hyper_util::client::legacy::Client;"),
        ("src/client/http.rs", "use hyper_util::client::legacy::Client;"),
        ("src/http/d.rs", r#"b"Content-Length: 1\r\n""#),
    ]);
    let expected = [
        "src/http/a.rs: spawn_blocking outside its place",
        "crates/store/src/b.rs: unsafe outside its place",
        "src/relay/c.rs: client::legacy outside its place",
        "src/http/d.rs: `content-length: ` outside its place",
    ];
    assert_eq!(check(&tree), expected);
}
