//! docs/ARCHITECTURE.md says of each folder of `src` what its `mod.rs` says.

use std::collections::BTreeMap;

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
    found
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
