//! A crate has one type of a name: a reader who searches for it finds the one that is meant.

use std::collections::BTreeMap;

use crate::Finding;
use crate::layout::is_source;
use crate::source::{Tree, code, line};

/// Names that several types of a crate may have: the state behind a lock, and the errors of one module.
const COMMON: [&str; 2] = ["Error", "State"];
const KINDS: [&str; 5] = ["struct ", "enum ", "union ", "trait ", "type "];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut first: BTreeMap<((&str, bool), String), String> = BTreeMap::new();
    let mut found = Vec::new();
    let is_test = |path: &str| path.contains("tests/");
    for (path, text) in tree.below("").filter(|(path, _)| is_source(path) && !is_test(path)) {
        let code = code(text);
        for (at, name) in types(&code) {
            let here = format!("{path}:{}", line(&code, at));
            let (folder, inside) = path.split_once("src/").unwrap_or_default();
            let crate_of = (folder, inside.starts_with("bin/"));
            if let Some(there) = first.get(&(crate_of, name.to_owned())) {
                found.push(format!("{here}: another type {name} is at {there}"));
            } else if !COMMON.contains(&name) {
                first.insert((crate_of, name.to_owned()), here);
            }
        }
    }
    found
}

/// Types of a file, but not those inside a function or an `impl`.
fn types(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    code.split_inclusive('\n').filter_map(move |line| {
        let here = at;
        at += line.len();
        // `pub(in a::b) struct` has a space more.
        let words = line.strip_prefix("pub(in ").unwrap_or(line);
        let item = match words.split_once(' ')? {
            (first, rest) if first.starts_with("pub") || first.ends_with(')') => rest,
            _ => words,
        };
        let named = KINDS.iter().find_map(|kind| item.strip_prefix(kind))?;
        Some((here, named.split(|sign: char| !sign.is_alphanumeric()).next()?))
    })
}

#[test]
fn second_type_of_a_name_is_reported() {
    let one = "pub(in crate::a) struct A<'a> {}\ntype B = u8;\nstruct State;\nfn f() {\n    struct C;\n}\n";
    let other =
        "// enum A\nenum State {}\npub(crate) trait B {}\npub enum C {}\n#[cfg(test)]\nenum A {}\n";
    let tree = Tree::of(&[
        ("crates/k/src/a.rs", one),
        ("crates/k/src/b.rs", other),
        ("crates/k/src/tests/c.rs", one),
        ("crates/l/src/a.rs", one),
        ("src/a.rs", "pub struct A;\nenum A {}\n"),
    ]);
    let expected = [
        "crates/k/src/b.rs:3: another type B is at crates/k/src/a.rs:2",
        "src/a.rs:2: another type A is at src/a.rs:1",
    ];
    assert_eq!(check(&tree), expected);
}
