//! Mechanisms that have one place.

use crate::Finding;
use crate::source::{Tree, code};

/// Text, the paths below which it may not stand, and the paths where it may.
const RULES: [(&str, &str, &[&str]); 6] = [
    ("spawn_blocking", "src/http/", &["src/http/offload.rs"]),
    ("PoisonError", "src/", &["src/shared/lock.rs"]),
    ("unsafe", "src/", &[]),
    ("unsafe", "crates/", &["crates/store/src/memory/map.rs", "crates/keccak/src/"]),
    ("is_cold", "src/", &[]),
    ("DROPPED", "src/", &[]),
];

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
    found
}

/// True if `code` has `word` as a whole identifier.
fn names(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|name| name == word)
}

#[test]
fn mechanism_outside_its_place_is_reported() {
    let tree = Tree::of(&[
        ("src/http/a.rs", "// unsafe\n#![forbid(unsafe_code)]\ntokio::task::spawn_blocking(f);"),
        ("src/http/offload.rs", "spawn_blocking(f);"),
        ("crates/store/src/b.rs", "unsafe { f() }"),
        ("crates/store/src/memory/map.rs", "unsafe { f() }"),
    ]);
    let expected = [
        "src/http/a.rs: spawn_blocking outside its place",
        "crates/store/src/b.rs: unsafe outside its place",
    ];
    assert_eq!(check(&tree), expected);
}
