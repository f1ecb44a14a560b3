//! No file leads back to itself through its imports.
//!
//! A path that ends in a folder's `mod.rs` leads to the file whose item that door hands out: doors and `lib.rs` are no
//! files of their own here. Calls of methods on values are not seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;
use crate::imports::paths;
use crate::source::{Tree, code};

/// Files that each file imports.
type Edges<'t> = BTreeMap<&'t str, BTreeSet<String>>;

/// Every import between two files of one circle: an exception names the place to mend.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let edges = edges(tree);
    let ahead: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|file| (*file, reached(&edges, file))).collect();
    let mut found = Vec::new();
    for (file, targets) in &edges {
        let back =
            |target: &&String| ahead.get(target.as_str()).is_some_and(|far| far.contains(file));
        let circle = targets.iter().filter(back);
        found.extend(circle.map(|target| format!("{file}: imports {target}, which leads back")));
    }
    found
}

/// All files that `file` imports, directly or through others.
fn reached<'e>(edges: &'e Edges<'_>, file: &str) -> BTreeSet<&'e str> {
    let mut reached = BTreeSet::new();
    let mut ahead: Vec<&str> = edges.get(file).into_iter().flatten().map(String::as_str).collect();
    while let Some(next) = ahead.pop() {
        if reached.insert(next) {
            ahead.extend(edges.get(next).into_iter().flatten().map(String::as_str));
        }
    }
    reached
}

fn edges(tree: &Tree) -> Edges<'_> {
    let files = tree.below("").filter(|(path, _)| crate_of(path).is_some() && !is_door(path));
    files
        .map(|(path, text)| {
            let mut targets: BTreeSet<String> = paths(&code(text))
                .into_iter()
                .filter_map(|named| file_of(tree, absolute(path, named)?, 0))
                .collect();
            targets.remove(path);
            (path, targets)
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
    let mut paths = paths(&code);
    paths.iter_mut().for_each(|path| drop(path.remove(0)));
    paths
}

#[test]
fn circles_of_files_are_reported() {
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
        "crates/k/src/p.rs: imports crates/k/src/q.rs, which leads back",
        "crates/k/src/q.rs: imports crates/k/src/p.rs, which leads back",
        "src/a/x.rs: imports src/a/y.rs, which leads back",
        "src/a/y.rs: imports src/b/w.rs, which leads back",
        "src/b/w.rs: imports src/a/x.rs, which leads back",
    ];
    assert_eq!(check(&tree), expected);
}
