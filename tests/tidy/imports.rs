//! Imports run down, as the table in docs/ARCHITECTURE.md lists them.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;
use crate::source::{Tree, code, line};

const TABLE: &str = "docs/ARCHITECTURE.md";
const HEAD: &str = "| module | imports from src | imports from crates |";
/// Bits of crates whose imports the table has.
const CRATES: &str = "neve_";

/// Modules that a module may import, and crates.
pub(crate) type Row = [BTreeSet<String>; 2];
/// Module, 0 for modules or 1 for crates, and the name that is imported.
type Used = BTreeSet<(String, usize, String)>;

/// Reads the table.
pub(crate) fn rows(tree: &Tree) -> BTreeMap<String, Row> {
    let text = tree.files.get(TABLE).map_or("", String::as_str);
    let lines = text.lines().skip_while(|line| *line != HEAD).skip(2);
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let words = |cell: usize| {
            cells.get(cell).copied().unwrap_or_default().split(' ').filter(|word| !word.is_empty())
        };
        let set = |cell: usize| words(cell).map(|word| word.trim_matches('`').to_owned()).collect();
        (cells[0].trim_matches('`').to_owned(), [set(1), set(2)])
    };
    lines.take_while(|line| line.starts_with('|')).map(row).collect()
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let rows = rows(tree);
    let mut used = Used::new();
    let mut found = of_src(tree, &rows, &mut used);
    found.extend(of_crates(tree, &rows, &mut used));
    found.extend(unused(tree, &rows, &used));
    found.sort();
    found.dedup();
    found
}

fn of_src(tree: &Tree, rows: &BTreeMap<String, Row>, used: &mut Used) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.below("src/") {
        let module = module(tree, rows, path.trim_end_matches(".rs").trim_start_matches("src/"));
        if module.is_empty() {
            continue; // main.rs, lib.rs
        }
        let Some(row) = rows.get(&module) else {
            found.push(format!("{path}:1: {module} has no row in {TABLE}"));
            continue;
        };
        for (at, kind, target) in targets(tree, rows, path, &code(text)) {
            if target == module || row[kind].contains("all") {
                continue;
            }
            let of = ["", "the crate "][kind];
            if row[kind].contains(&target) {
                used.insert((module.clone(), kind, target));
            } else {
                found.push(format!("{path}:{at}: {module} may not import {of}{target}"));
            }
        }
    }
    found
}

fn of_crates(tree: &Tree, rows: &BTreeMap<String, Row>, used: &mut Used) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.below("crates/") {
        let Some((module, _)) = path.split_once("/src/") else { continue };
        let Some(row) = rows.get(module) else {
            found.push(format!("{path}:1: {module} has no row in {TABLE}"));
            continue;
        };
        for (at, target) in crates(&code(text)) {
            if module.ends_with(&format!("/{target}")) {
                continue;
            }
            if row[1].contains(&target) {
                used.insert((module.to_owned(), 1, target));
            } else {
                found.push(format!("{path}:{at}: {module} may not import the crate {target}"));
            }
        }
    }
    found
}

/// Names of rows that no file imports.
fn unused(tree: &Tree, rows: &BTreeMap<String, Row>, used: &Used) -> Vec<Finding> {
    let mut found = Vec::new();
    let text = tree.files.get(TABLE).map_or("", String::as_str);
    let head = text.find(HEAD).unwrap_or_default();
    for (module, row) in rows {
        let at = text[head..].find(&format!("| `{module}` |")).unwrap_or_default();
        let at = line(text, head + at);
        for (kind, targets) in row.iter().enumerate() {
            let unused = targets.iter().filter(|target| {
                *target != "all" && !used.contains(&(module.clone(), kind, (*target).clone()))
            });
            let told =
                unused.map(|target| format!("{TABLE}:{at}: {module} does not import {target}"));
            found.extend(told);
        }
    }
    found
}

/// The module of a path below src: the longest folder, or a file that has a row.
fn module(tree: &Tree, rows: &BTreeMap<String, Row>, path: &str) -> String {
    let mut path = path.to_owned();
    loop {
        if rows.contains_key(&format!("{path}.rs")) {
            return path + ".rs";
        }
        if tree.has(&format!("src/{path}/mod.rs")) {
            return path;
        }
        match path.rfind('/') {
            Some(at) => path.truncate(at),
            None => return String::new(),
        }
    }
}

/// Modules (0) and crates (1) that a file names, each with its line.
fn targets(
    tree: &Tree,
    rows: &BTreeMap<String, Row>,
    path: &str,
    code: &str,
) -> BTreeSet<(usize, usize, String)> {
    let mut targets = BTreeSet::new();
    for (at, path_named) in paths(code) {
        let mut segments = path_named.iter().map(String::as_str);
        let first = segments.next().unwrap_or_default();
        if let Some(name) = first.strip_prefix(CRATES) {
            targets.insert((at, 1, name.to_owned()));
        } else if first == "crate" {
            let path = segments.collect::<Vec<_>>().join("/");
            targets.insert((at, 0, module(tree, rows, &path)));
        } else if first == "super" {
            let mut place: Vec<&str> = path.trim_end_matches(".rs").split('/').skip(1).collect();
            let ups = path_named.iter().take_while(|segment| *segment == "super").count();
            place.truncate(place.len().saturating_sub(ups));
            place.extend(path_named[ups..].iter().map(String::as_str));
            targets.insert((at, 0, module(tree, rows, &place.join("/"))));
        }
    }
    targets.retain(|(.., name)| !name.is_empty());
    targets
}

/// Crates of this workspace that a file names, each with its line.
fn crates(code: &str) -> BTreeSet<(usize, String)> {
    let paths = paths(code).into_iter().filter(|(_, path)| path.len() > 1); // else it is a cfg
    let named =
        paths.filter_map(|(at, path)| Some((at, path.first()?.strip_prefix(CRATES)?.to_owned())));
    named.collect()
}

/// Path that a file names: the line where it ends, and its segments.
pub(crate) type Named = (usize, Vec<String>);

/// All paths that begin with `crate`, `super` or a crate of this workspace; `use` trees as their leaves.
pub(crate) fn paths(code: &str) -> Vec<Named> {
    let mut paths = Vec::new();
    let mut at = 0;
    while let Some(next) =
        ["crate::", "super::", CRATES].iter().filter_map(|word| code[at..].find(word)).min()
    {
        at += next;
        let before = code[..at].chars().next_back().unwrap_or(' ');
        let begins = !before.is_alphanumeric() && !matches!(before, '_' | ':');
        let end = if begins { tree_of(code, at, &[], &mut paths) } else { at };
        at = end.max(at + 1);
    }
    paths
}

/// Reads the path at `at`, with its branches in braces, and returns its end.
fn tree_of(code: &str, mut at: usize, before: &[String], paths: &mut Vec<Named>) -> usize {
    let mut path = before.to_vec();
    loop {
        let rest = &code[at..];
        let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if len > 0 {
            path.push(rest[..len].to_owned());
        }
        at += len;
        if !code[at..].starts_with("::") {
            break;
        }
        at += 2;
        if code[at..].starts_with('{') {
            return branches(code, at + 1, &path, paths);
        }
    }
    paths.push((line(code, at), path));
    at
}

/// Reads paths up to the closing brace, and returns the place behind it.
fn branches(code: &str, mut at: usize, path: &[String], paths: &mut Vec<Named>) -> usize {
    loop {
        at += code[at..].len() - code[at..].trim_start_matches([' ', '\n', ',']).len();
        if code[at..].starts_with('}') || code[at..].is_empty() {
            return (at + 1).min(code.len());
        }
        at = tree_of(code, at, path, paths).max(at + 1);
    }
}

#[test]
fn import_outside_the_table_is_reported() {
    let rows = "| `a` | | store |\n| `b` | a | |\n| `crates/k` | | store |\n";
    let table = format!("{HEAD}\n| --- | --- | --- |\n{rows}");
    let tree = Tree::of(&[
        (TABLE, &table),
        ("src/a/mod.rs", "mod x;"),
        ("src/a/x.rs", "use crate::{b::Y, a::Z};\nfn f() { neve_chain::g() }"),
        ("src/b/mod.rs", "mod y;"),
        ("src/b/y.rs", "use super::super::a::X;"),
        ("src/c/mod.rs", ""),
        ("crates/k/src/lib.rs", "#[cfg(neve_fast)]\nuse neve_k::A;\nuse neve_chain::B;"),
        ("crates/l/src/lib.rs", ""),
    ]);
    let expected = [
        "crates/k/src/lib.rs:3: crates/k may not import the crate chain",
        "crates/l/src/lib.rs:1: crates/l has no row in docs/ARCHITECTURE.md",
        "docs/ARCHITECTURE.md:3: a does not import store",
        "docs/ARCHITECTURE.md:5: crates/k does not import store",
        "src/a/x.rs:1: a may not import b",
        "src/a/x.rs:2: a may not import the crate chain",
        "src/c/mod.rs:1: c has no row in docs/ARCHITECTURE.md",
    ];
    assert_eq!(check(&tree), expected);
}
