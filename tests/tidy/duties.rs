//! docs/ARCHITECTURE.md says of each folder of `src` what its `mod.rs` says, and has each crate. Each folder of code
//! has a file that says what it is for.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;
use crate::source::Tree;

const TABLE: &str = "docs/ARCHITECTURE.md";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let text = tree.files.get(TABLE).map_or("", String::as_str);
    let rows: BTreeMap<&str, (usize, &str)> = text.lines().enumerate().filter_map(row).collect();
    let mut found = Vec::new();
    for (path, text) in tree.below("src/") {
        let Some(folder) = path.strip_suffix("mod.rs") else { continue };
        let duty = duty(text);
        match rows.get(folder) {
            None => found.push(format!("{path}:1: no row for `{folder}` in {TABLE}")),
            Some((at, told)) if *told != duty => {
                found.push(format!("{TABLE}:{at}: `{folder}` is not what {path} says: {duty}"));
            }
            Some(_) => {}
        }
    }
    found.extend(
        crates(tree)
            .filter(|name| !text.contains(&format!("\n| `{name}` | ")))
            .map(|name| format!("{name}: no row in {TABLE}")),
    );
    found.extend(folders(tree).filter_map(|folder| silent(tree, folder)));
    found
}

/// Folders of the crates.
fn crates(tree: &Tree) -> impl Iterator<Item = &str> {
    let names = tree.all().filter_map(|(path, _)| path.strip_suffix("/src/lib.rs"));
    names.filter(|name| name.starts_with("crates/"))
}

/// Folders with code of the program and its crates.
fn folders(tree: &Tree) -> impl Iterator<Item = &str> {
    let paths = tree.below("").map(|(path, _)| path);
    let paths = paths.filter(|path| path.starts_with("src/") || path.contains("/src/"));
    let folders: BTreeSet<&str> = paths.filter_map(|path| Some(path.rsplit_once('/')?.0)).collect();
    folders.into_iter()
}

/// Reports a folder without a file that begins with what it is for: its door, or the file of its name.
fn silent(tree: &Tree, folder: &str) -> Option<Finding> {
    let inside = ["mod.rs", "lib.rs", "main.rs"].map(|door| format!("{folder}/{door}"));
    let mut doors = inside.into_iter().chain([format!("{folder}.rs")]);
    let says = |door: String| tree.files.get(&door).is_some_and(|text| text.starts_with("//! "));
    (!doors.any(says))
        .then(|| format!("{folder}: no mod.rs, and no file of its name, that begins with //!"))
}

/// A row of the table of modules: a folder, its line, and its duty.
fn row((at, line): (usize, &str)) -> Option<(&str, (usize, &str))> {
    let (folder, duty) = line.strip_prefix("| `")?.split_once("/` | ")?;
    let folder = line.get(3..3 + folder.len() + 1)?;
    Some((folder, (at + 1, duty.strip_suffix(" |")?)))
}

/// The first sentence of the docs of a module.
fn duty(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let first: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let first = first.join(" ");
    first.split_once(". ").map_or(first.clone(), |(sentence, _)| format!("{sentence}."))
}

#[test]
fn duty_that_differs_is_reported() {
    let table = "| `src/a/` | Does a. |\n| `src/b/` | Does\nb. |\n";
    let tree = Tree::of(&[
        (TABLE, table),
        ("src/a/mod.rs", "//! Does\n//! a. And more.\n\nmod x;"),
        ("src/b/mod.rs", "//! Does b."),
        ("src/a/c/mod.rs", "//! Does c."),
    ]);
    let expected = [
        "src/a/c/mod.rs:1: no row for `src/a/c/` in docs/ARCHITECTURE.md",
        "src/b/mod.rs:1: no row for `src/b/` in docs/ARCHITECTURE.md",
    ];
    assert_eq!(check(&tree), expected);
    let tree = Tree::of(&[(TABLE, table), ("src/a/mod.rs", "//! Does b.")]);
    let expected = ["docs/ARCHITECTURE.md:1: `src/a/` is not what src/a/mod.rs says: Does b."];
    assert_eq!(check(&tree), expected);
}

#[test]
fn crate_without_a_row_and_folder_without_a_word_are_reported() {
    let tree = Tree::of(&[
        (TABLE, "| file | duty |\n| `crates/k` | Does k. |\n"),
        ("crates/k/src/lib.rs", "//! Does k.\nmod a;"),
        ("crates/k/src/a.rs", "//! Does a."),
        ("crates/k/src/a/b.rs", "struct B;"),
        ("crates/l/src/lib.rs", "//! Does l."),
        ("crates/l/src/c/mod.rs", "mod d;"),
        ("crates/l/src/c/d.rs", "//! Does d."),
        ("crates/l/tests/e/f.rs", "struct F;"),
    ]);
    let expected = [
        "crates/l: no row in docs/ARCHITECTURE.md",
        "crates/l/src/c: no mod.rs, and no file of its name, that begins with //!",
    ];
    assert_eq!(check(&tree), expected);
}
