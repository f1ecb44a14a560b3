//! Mechanisms that have one place.

use crate::Finding;
use crate::source::{Tree, code};

/// A word or path, the folder below which it may not stand, and the places where it may.
const RULES: [(&str, &str, &[&str]); 18] = [
    ("spawn_blocking", "src/http/", &["src/http/response/disk_thread.rs"]),
    ("PoisonError", "src/", &["src/shared/lock.rs"]),
    ("unsafe", "src/", &[]),
    ("unsafe", "crates/", &["crates/store/src/memory/map.rs", "crates/keccak/src/"]),
    ("is_cold", "src/", &[]),
    ("is_cold", "crates/", &[]),
    ("DROPPED", "src/", &[]),
    ("DROPPED", "crates/", &[]),
    // Clients and servers of HTTP.
    ("client::legacy", "src/", &["src/client/"]),
    ("hyper::server", "src/", &["src/http/full/"]),
    // Threads that compute do not wait.
    ("tokio", "src/body/", &[]),
    ("tokio", "src/rpc/", &["src/rpc/cursors/replays.rs"]),
    ("tokio", "crates/", &["crates/devnet/"]),
    // Reads of files, each of which a test makes fail.
    ("read_exact_at", "crates/store/", &["crates/store/src/reads.rs"]),
    ("read_at", "crates/store/", &["crates/store/src/reads.rs"]),
    (
        "File::open",
        "crates/store/",
        &["crates/store/src/reads.rs", "crates/store/src/disk/real_disk.rs", TESTS_OF_RESIDENCY],
    ),
    ("read_dir", "crates/store/", &["crates/store/src/reads.rs", "crates/store/src/read_tests"]),
    ("symlink_metadata", "crates/store/", &["crates/store/src/reads.rs"]),
];

const TESTS_OF_RESIDENCY: &str = "crates/store/src/memory/residency/tests.rs";

/// Words that change files, or open them so that they can be changed.
const CHANGES: [&str; 18] = [
    "File::options",
    "File::create",
    "OpenOptions",
    "write_all_at",
    "write_at",
    "set_len",
    "fallocate",
    "create_dir",
    "create_dir_all",
    "remove_file",
    "remove_dir",
    "remove_dir_all",
    "fs::write",
    "fs::rename",
    "fs::copy",
    "hard_link",
    "set_permissions",
    "fchown",
];

/// Files that change files, and the words of [`CHANGES`] that each may have.
/// docs/ARCHITECTURE.md says what each changes, except [`REFERENCE`].
const WRITERS: [(&str, &[&str]); 14] = [
    (
        "crates/store/src/disk/real_disk.rs",
        &["File::options", "write_all_at", "set_len", "fallocate", "remove_file", "fs::rename"],
    ),
    ("crates/store/src/write/open.rs", &["create_dir_all"]),
    ("crates/store/src/reads.rs", &["File::options"]), // opens to read, without waiting for a pipe
    ("src/fetch/evidence.rs", &["create_dir_all", "fs::write", "remove_file"]),
    ("src/http/listening.rs", &["remove_file"]),
    ("src/archive/file_lock.rs", &["File::options"]),
    ("src/archive/write/newest.rs", &["File::options", "write_all_at", "fchown"]),
    ("src/archive/write/staging.rs", &["remove_file"]),
    (
        "src/archive/read/page_dir.rs",
        &["create_dir_all", "File::options", "set_len", "remove_file"],
    ),
    ("src/archive/read/page_file.rs", &["write_all_at"]),
    ("src/archive/read/page_source.rs", &["write_all_at"]),
    ("src/archive/read/proofs.rs", &["File::options", "set_len"]),
    ("src/observe/access_log/log_file.rs", &["File::options"]),
    (REFERENCE, &["create_dir_all", "fs::write"]),
];

/// Writes docs/reference, in a test.
const REFERENCE: &str = "src/commands/reference.rs";
const MAP: &str = "docs/ARCHITECTURE.md";

/// Text of literals in lower case, and the only places below src where it may stand.
const LITERALS: [(&str, &[&str]); 1] =
    [("content-length: ", &["src/http/response/headers.rs", "src/http/admit/error_response.rs"])];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    [words(tree), literals(tree), changes(tree), writers(tree)].concat()
}

fn words(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in sources(tree) {
        let code = code(text);
        for (word, dir, allowed) in RULES {
            let free = allowed.iter().any(|place| path.starts_with(place));
            if !free && path.starts_with(dir) {
                found.extend(outside(path, &code, word));
            }
        }
    }
    found
}

fn literals(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (literal, allowed) in LITERALS {
        for (path, text) in tree.below("src/").filter(|(path, _)| !allowed.contains(path)) {
            let lines = text.lines().enumerate();
            let with = lines.filter(|(_, line)| line.to_lowercase().contains(literal));
            let told =
                with.map(|(at, _)| format!("{path}:{}: `{literal}` outside its place", at + 1));
            found.extend(told);
        }
    }
    found
}

/// Changes of files outside [`WRITERS`]. Tests and devnet make files of their own.
fn changes(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let own = |path: &str| !path.starts_with("crates/devnet/") && !path.contains("tests/");
    for (path, text) in sources(tree).filter(|(path, _)| own(path)) {
        let code = code(text);
        let allowed =
            WRITERS.iter().find(|(writer, _)| *writer == path).map_or(&[][..], |row| row.1);
        for word in CHANGES.iter().filter(|word| !allowed.contains(word)) {
            found.extend(outside(path, &code, word));
        }
    }
    found
}

/// Rows of [`WRITERS`] that no code needs, and files that the map does not name.
fn writers(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let map = tree.files.get(MAP).map_or("", String::as_str);
    for (path, words) in WRITERS {
        let Some(text) = tree.files.get(path) else { continue };
        let code = code(text);
        let unused = words.iter().filter(|word| !code.lines().any(|line| names(line, word)));
        found.extend(unused.map(|word| format!("{path}:1: {word} is allowed and not used")));
        if path != REFERENCE && !map.contains(&format!("`{path}`")) {
            found.push(format!("{path}:1: changes files, and {MAP} does not name it"));
        }
    }
    found
}

fn sources(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.below("").filter(|(path, _)| path.starts_with("src/") || path.contains("/src/"))
}

fn outside(path: &str, code: &str, word: &str) -> Vec<Finding> {
    // Nearly all files lack the word, and cutting a line into names takes much longer.
    if !code.contains(word) {
        return Vec::new();
    }
    let lines = code.lines().enumerate().filter(|(_, line)| names(line, word));
    lines.map(|(at, _)| format!("{path}:{}: {word} outside its place", at + 1)).collect()
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
        ("src/http/d.rs", r#"b"Content-Length: 1\r\n""#),
    ]);
    let expected = [
        "src/http/a.rs:3: spawn_blocking outside its place",
        "src/http/d.rs:1: `content-length: ` outside its place",
    ];
    assert_eq!(check(&tree), expected);
}

#[test]
fn each_rule_finds_its_word_outside_and_only_there() {
    for (word, dir, allowed) in RULES {
        let path = if dir == "crates/" { "crates/k/src/x.rs" } else { &format!("{dir}src/x.rs") };
        let text = format!("\n{word}(f);");
        let found = words(&Tree::of(&[(path, &text)]));
        assert!(
            found.contains(&format!("{path}:2: {word} outside its place")),
            "{word}: {found:?}"
        );
        for place in allowed {
            let file = if place.contains(".rs") {
                (*place).to_owned()
            } else {
                format!("{place}/src/x.rs")
            };
            let found = words(&Tree::of(&[(&file, &text)]));
            assert!(found.is_empty(), "{word} in {place}: {found:?}");
        }
    }
}

#[test]
fn each_change_of_a_file_is_found_outside_its_writers() {
    for word in CHANGES {
        let found = changes(&Tree::of(&[("src/rpc/x.rs", &format!("{word}(f);"))]));
        assert_eq!(found.last(), Some(&format!("src/rpc/x.rs:1: {word} outside its place")));
    }
    let [(writer, _), ..] = WRITERS;
    let found = check(&Tree::of(&[(writer, "fs::write(a, b);")]));
    assert!(found.contains(&format!("{writer}:1: fs::write outside its place")), "{found:?}");
    assert!(found.contains(&format!("{writer}:1: set_len is allowed and not used")), "{found:?}");
    assert!(found.last().is_some_and(|last| last.ends_with("does not name it")), "{found:?}");
}
