//! No file leads back to itself through its imports, and no module.
//!
//! A path that ends in a folder's `mod.rs` leads to the file whose item that door hands out: doors and `lib.rs` are no
//! files of their own here. Calls of methods on values are not seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;
use crate::imports::{Row, paths, rows};
use crate::source::{Tree, code};

/// Imports by the place that has them, a file or a module, each with the first `path:line` that has it.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// Every import between two files of one circle, or two modules.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let files = edges(tree);
    let rows = rows(tree);
    let mut modules = Edges::new();
    for (file, targets) in &files {
        let own = place(&rows, file);
        let module = modules.entry(own.clone()).or_default();
        for (target, at) in targets {
            let target = place(&rows, target);
            if target != own {
                module.entry(target).or_insert_with(|| at.clone());
            }
        }
    }
    let mut found = [circles(&files), circles(&modules)].concat();
    found.sort();
    found.dedup(); // a file beside lib.rs is a module too
    found
}

/// The module of a file: its folder, or the file itself if it has a row or stands beside `lib.rs`.
fn place(rows: &BTreeMap<String, Row>, file: &str) -> String {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let own = folder.ends_with("src")
        || file.strip_prefix("src/").is_some_and(|file| rows.contains_key(file));
    if own { file } else { folder }.to_owned()
}

fn circles(edges: &Edges) -> Vec<Finding> {
    let ahead: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|from| (from.as_str(), reached(edges, from))).collect();
    let mut found = Vec::new();
    for (from, targets) in edges {
        let back = |target: &str| ahead.get(target).is_some_and(|far| far.contains(from.as_str()));
        let circle = targets.iter().filter(|(target, _)| back(target));
        let told =
            circle.map(|(target, at)| format!("{at}: {from} imports {target}, which leads back"));
        found.extend(told);
    }
    found
}

/// All files that `file` imports, directly or through others.
fn reached<'e>(edges: &'e Edges, file: &str) -> BTreeSet<&'e str> {
    let mut reached = BTreeSet::new();
    let of = |file: &str| edges.get(file).into_iter().flat_map(|targets| targets.keys());
    let mut ahead: Vec<&str> = of(file).map(String::as_str).collect();
    while let Some(next) = ahead.pop() {
        if reached.insert(next) {
            ahead.extend(of(next).map(String::as_str));
        }
    }
    reached
}

fn edges(tree: &Tree) -> Edges {
    let files = tree.below("").filter(|(path, _)| crate_of(path).is_some() && !is_door(path));
    files
        .map(|(path, text)| {
            let mut targets = BTreeMap::new();
            for (at, named) in paths(&code(text)) {
                if let Some(file) = absolute(path, named).and_then(|named| file_of(tree, named, 0))
                {
                    targets.entry(file).or_insert_with(|| format!("{path}:{at}"));
                }
            }
            targets.remove(path);
            (path.to_owned(), targets)
        })
        .collect()
}

/// The folder of sources that a path belongs to: `src/`, or `crates/store/src/`.
fn crate_of(path: &str) -> Option<&str> {
    let len = if path.starts_with("crates/") { path.find("/src/")? + 1 } else { 0 };
    path[len..].starts_with("src/").then(|| &path[..len + 4])
}

fn is_door(path: &str) -> bool {
    path.ends_with("/mod.rs") || path.ends_with("/lib.rs") || path == "src/main.rs"
}

/// A path of a file's code as segments below the repository; `None` for one of another crate.
fn absolute(file: &str, named: Vec<String>) -> Option<Vec<String>> {
    let root = crate_of(file)?;
    let ups = named.iter().take_while(|word| *word == "super").count();
    let mut segments: Vec<String> = match named.first()?.as_str() {
        "crate" => root.trim_end_matches('/').split('/').map(str::to_owned).collect(),
        "super" => {
            let path = file.trim_end_matches("/mod.rs").trim_end_matches(".rs");
            let own: Vec<&str> = path.split('/').collect();
            own[..own.len().saturating_sub(ups)].iter().map(|part| (*part).to_owned()).collect()
        }
        _ => return None,
    };
    segments.extend(named.into_iter().skip(ups.max(1)));
    Some(segments)
}

/// The file of the item that `path` names. Doors are followed to the file that they hand out, at most a few times.
fn file_of(tree: &Tree, mut path: Vec<String>, depth: usize) -> Option<String> {
    let mut rest: Vec<String> = Vec::new();
    loop {
        let joined = path.join("/");
        if !is_door(&format!("{joined}.rs")) && tree.has(&format!("{joined}.rs")) {
            return Some(format!("{joined}.rs"));
        }
        for door in ["mod.rs", "lib.rs"] {
            let door = format!("{joined}/{door}");
            if tree.has(&door) {
                let item = rest.first()?;
                let handed = paths_of_door(&tree.files[&door]);
                let mut inner = handed.into_iter().find(|named| named.last() == Some(item))?;
                inner.splice(0..0, path);
                return (depth < 8).then(|| file_of(tree, inner, depth + 1)).flatten();
            }
        }
        rest.insert(0, path.pop()?);
    }
}

/// Paths that a door hands out, as leaves, relative to its folder.
fn paths_of_door(text: &str) -> Vec<Vec<String>> {
    let code = code(text).replace("use ", "use super::");
    let mut paths: Vec<_> = paths(&code).into_iter().map(|(_, path)| path).collect();
    paths.iter_mut().for_each(|path| drop(path.remove(0)));
    paths
}

#[test]
fn circles_of_files_and_of_modules_are_reported() {
    let tree = Tree::of(&[
        ("src/a/mod.rs", "mod x;\nmod y;\npub(crate) use x::{X, Z};"),
        ("src/a/x.rs", "use super::y::Y;\nuse crate::c::C;"),
        ("src/a/y.rs", "use crate::b::w::W;"),
        ("src/b/mod.rs", "pub(crate) mod w;"),
        ("src/b/w.rs", "fn f(_: crate::a::X) {}"),
        ("src/c.rs", "#[cfg(test)]\nuse crate::a::X;"),
        ("crates/k/src/lib.rs", "mod p;\nmod q;\npub use p::P;"),
        ("crates/k/src/p.rs", "use crate::q::Q;"),
        ("crates/k/src/q.rs", "use crate::P;"),
    ]);
    let expected = [
        "crates/k/src/p.rs:1: crates/k/src/p.rs imports crates/k/src/q.rs, which leads back",
        "crates/k/src/q.rs:1: crates/k/src/q.rs imports crates/k/src/p.rs, which leads back",
        "src/a/x.rs:1: src/a/x.rs imports src/a/y.rs, which leads back",
        "src/a/y.rs:1: src/a imports src/b, which leads back",
        "src/a/y.rs:1: src/a/y.rs imports src/b/w.rs, which leads back",
        "src/b/w.rs:1: src/b imports src/a, which leads back",
        "src/b/w.rs:1: src/b/w.rs imports src/a/x.rs, which leads back",
    ];
    assert_eq!(check(&tree), expected);
}
