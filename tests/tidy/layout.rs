//! `mod.rs` is a door; files, folders and lines have bounds.

use std::collections::BTreeMap;

use crate::Finding;
use crate::source::{Tree, code};

const LINES_MAX: usize = 500;
const FILES_MAX: usize = 12;
const COLUMNS_MAX: usize = 160;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    [doors(tree), lengths(tree)].concat()
}

/// Code in a `mod.rs`, a door to an inner folder, and imports from the own door.
fn doors(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.below("src/") {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let code = code(text);
        if !path.ends_with("/mod.rs") {
            let own = format!("crate::{}::", folder.trim_start_matches("src/").replace('/', "::"));
            let through = |rest: &str| rest.starts_with(|c: char| c.is_uppercase() || c == '{');
            if folder != "src" && code.split(&own).skip(1).any(through) {
                found.push(format!("{path}: imports through its own mod.rs"));
            }
            continue;
        }
        for statement in code.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let words = statement.split_whitespace().filter(|word| !word.starts_with("#["));
            let words: Vec<&str> = words.skip_while(|word| word.starts_with("pub")).collect();
            match words[..] {
                [] | ["mod", _] => {}
                ["use", first, ..] => {
                    let inner = first.split(':').next().unwrap_or_default();
                    if tree.has(&format!("{folder}/{inner}/mod.rs")) {
                        found.push(format!("{path}: re-exports the inner folder {inner}"));
                    }
                }
                _ => {
                    found.push(format!("{path}: has code"));
                    break;
                }
            }
        }
    }
    found
}

fn lengths(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, text) in tree.below("") {
        let lines = text.lines().count();
        if lines > LINES_MAX {
            found.push(format!("{path}: over {LINES_MAX} lines"));
        }
        let long = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        if long.map(|line| line.chars().count()).max() > Some(COLUMNS_MAX) {
            found.push(format!("{path}: a line is over {COLUMNS_MAX} columns"));
        }
        if path.starts_with("src/") || path.contains("/src/") {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            *folders.entry(folder).or_default() += usize::from(!path.ends_with("mod.rs"));
        }
    }
    let full = folders.into_iter().filter(|(_, files)| *files > FILES_MAX);
    found.extend(full.map(|(folder, _)| format!("{folder}: over {FILES_MAX} files")));
    found
}

#[test]
fn door_with_code_and_own_door_are_reported() {
    let tree = Tree::of(&[
        ("src/a/mod.rs", "//! A.\nmod b;\npub(crate) mod c;\npub(crate) use c::X;\nfn f() {}\n"),
        ("src/a/b.rs", "use crate::a::Y;\n"),
        ("src/a/c/mod.rs", "mod d;\npub(crate) use d::X;\n"),
    ]);
    let expected = [
        "src/a/b.rs: imports through its own mod.rs",
        "src/a/mod.rs: re-exports the inner folder c",
        "src/a/mod.rs: has code",
    ];
    assert_eq!(doors(&tree), expected);
}

#[test]
fn long_file_and_full_folder_are_reported() {
    let text = "\n".repeat(LINES_MAX + 1);
    let paths: Vec<String> = (0..=FILES_MAX).map(|at| format!("src/a/f{at}.rs")).collect();
    let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
    files[0].1 = &text;
    let expected = ["src/a/f0.rs: over 500 lines", "src/a: over 12 files"];
    assert_eq!(lengths(&Tree::of(&files)), expected);
}
