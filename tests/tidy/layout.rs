//! `mod.rs` is a door; files, folders and lines have bounds.

use std::collections::BTreeMap;

use crate::Finding;
use crate::source::{Tree, code, line, without_text};

const LINES_MAX: usize = 500;
/// Lines of a file of sources.
const SOURCE_LINES_MAX: usize = 450;
const FILES_MAX: usize = 12;
/// Columns of code. rustfmt keeps them, except in macros.
const COLUMNS_MAX: usize = 100;
/// Columns of a line with a literal, which rustfmt does not break.
const LITERAL_COLUMNS_MAX: usize = 160;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    [doors(tree), orphans(tree), lengths(tree)].concat()
}

/// Code in a `mod.rs`, a door to an inner folder, and imports from the own door.
fn doors(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.below("").filter(|(path, _)| is_source(path)) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let code = code(text);
        if path.ends_with("/mod.rs") {
            found.extend(statements(tree, path, folder, &code));
        } else {
            let has_door = tree.has(&format!("{folder}/mod.rs"));
            found.extend(through_own_door(path, folder, has_door, &code));
        }
    }
    found
}

/// Imports of a file through the door of its own folder.
fn through_own_door(path: &str, folder: &str, has_door: bool, code: &str) -> Vec<Finding> {
    let inside = folder.rsplit_once("src/").map_or("", |(_, inside)| inside);
    if inside.is_empty() {
        return Vec::new();
    }
    let own = format!("crate::{}::", inside.replace('/', "::"));
    let is_type = |rest: &str| rest.starts_with(char::is_uppercase);
    let is_item = |rest: &str| is_type(rest) || rest.starts_with('{');
    let by_crate = code.match_indices(&own).filter(|(at, _)| is_item(&code[at + own.len()..]));
    // A list in braces is taken to name files. Where there is no door, `super` is the file named as the folder.
    let by_super = code.match_indices("super::").filter(|(at, by)| {
        has_door && !code[..*at].ends_with("super::") && is_type(&code[at + by.len()..])
    });
    let named = by_crate.chain(by_super);
    named
        .map(|(at, _)| format!("{path}:{}: imports through its own mod.rs", line(code, at)))
        .collect()
}

/// Statements of a door that are no `mod` line, and `use` lines of inner folders.
fn statements(tree: &Tree, path: &str, folder: &str, code: &str) -> Vec<Finding> {
    let (mut found, mut at) = (Vec::new(), 0);
    let code = without_attributes(code);
    for statement in code.split(';') {
        let begin = at + statement.len() - statement.trim_start().len();
        at += statement.len() + 1;
        let here = format!("{path}:{}", line(&code, begin));
        let words = statement.split_whitespace();
        let words: Vec<&str> = words.skip_while(|word| word.starts_with("pub")).collect();
        match words[..] {
            [] | ["mod", _] => {}
            ["use", first, ..] => {
                let inner = first.split(':').next().unwrap_or_default();
                if tree.has(&format!("{folder}/{inner}/mod.rs")) {
                    found.push(format!("{here}: re-exports the inner folder {inner}"));
                }
            }
            _ => {
                found.push(format!("{here}: has code"));
                break;
            }
        }
    }
    found
}

/// `code` with spaces for attributes; none of those in doors has brackets inside.
fn without_attributes(code: &str) -> String {
    let mut code = code.to_owned();
    while let Some(at) = code.find("#[") {
        let end = code[at..].find(']').map_or(code.len(), |end| at + end + 1);
        let blank =
            code[at..end].chars().map(|c| if c == '\n' { c } else { ' ' }).collect::<String>();
        code.replace_range(at..end, &blank);
    }
    code
}

pub(crate) fn is_source(path: &str) -> bool {
    path.starts_with("src/") || path.contains("/src/")
}

/// Files that no `mod` line names: the compiler does not read them.
fn orphans(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for path in tree.files.keys().filter(|path| is_source(path)) {
        let (folder, file) = path.rsplit_once('/').unwrap_or_default();
        let (folder, name) = match file.trim_end_matches(".rs") {
            "mod" => folder.rsplit_once('/').unwrap_or_default(),
            name => (folder, name),
        };
        if ["lib", "main"].contains(&name) || folder.ends_with("/bin") {
            continue;
        }
        let parents = ["mod.rs", "lib.rs", "main.rs"].map(|parent| format!("{folder}/{parent}"));
        let line = format!("mod {name};");
        let names = |parent: &String| {
            tree.files.get(parent).is_some_and(|text| {
                without_text(text).lines().any(|named| named.trim().ends_with(&line))
            })
        };
        let outer = tree.files.get(&format!("{folder}.rs"));
        let has_outer = outer.is_some_and(|text| without_text(text).contains(&line));
        if !has_outer && !parents.iter().any(names) {
            found.push(format!("{path}:1: no mod line names it"));
        }
    }
    found
}

fn lengths(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, text) in tree.all() {
        let max = if is_source(path) { SOURCE_LINES_MAX } else { LINES_MAX };
        if text.lines().count() > max {
            found.push(format!("{path}:{}: over {max} lines", max + 1));
        }
        found.extend(columns(path, text));
        if is_source(path) && !path.ends_with("tests.rs") {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            *folders.entry(folder).or_default() += usize::from(!path.ends_with("mod.rs"));
        }
    }
    let full = folders.into_iter().filter(|(_, files)| *files > FILES_MAX);
    found.extend(full.map(|(folder, _)| format!("{folder}: over {FILES_MAX} files")));
    found
}

/// Lines that are too long. Comments are none of them: their sentences are bounded in words.
fn columns(path: &str, text: &str) -> Vec<Finding> {
    let code = without_text(text);
    let mut found = Vec::new();
    for (at, (line, code)) in text.lines().zip(code.lines()).enumerate() {
        let is_comment = line.trim_start().starts_with("//");
        let has_literal = code.trim_end() != line.trim_end();
        let max = if has_literal { LITERAL_COLUMNS_MAX } else { COLUMNS_MAX };
        if !is_comment && line.chars().count() > max {
            found.push(format!("{path}:{}: over {max} columns", at + 1));
        }
    }
    found
}

#[test]
fn door_with_code_and_own_door_are_reported() {
    let tree = Tree::of(&[
        ("src/a/mod.rs", "//! A.\nmod b;\npub(crate) mod c;\npub(crate) use c::X;\nfn f() {}\n"),
        ("src/a/b.rs", "use crate::a::Y;\nuse super::Y;\nuse super::{c, d};\nuse super::c::X;\n"),
        ("src/a/b/g.rs", "use super::Z;\n"),
        ("src/a/c/mod.rs", "mod d;\npub(crate) use d::X;\n"),
        ("src/a/c/d.rs", "use super::super::Y;\n"),
    ]);
    let expected = [
        "src/a/b.rs:1: imports through its own mod.rs",
        "src/a/b.rs:2: imports through its own mod.rs",
        "src/a/mod.rs:4: re-exports the inner folder c",
        "src/a/mod.rs:5: has code",
    ];
    assert_eq!(doors(&tree), expected);
}

#[test]
fn file_without_a_mod_line_is_reported() {
    let tree = Tree::of(&[
        ("crates/k/src/lib.rs", "mod a;"),
        ("crates/k/src/a/mod.rs", "// mod c;\npub(crate) mod b;"),
        ("crates/k/src/a/b.rs", "#[cfg(test)]\nmod tests;"),
        ("crates/k/src/a/b/tests.rs", ""),
        ("crates/k/src/a/c.rs", ""),
    ]);
    assert_eq!(orphans(&tree), ["crates/k/src/a/c.rs:1: no mod line names it"]);
}

#[test]
fn long_file_and_full_folder_are_reported() {
    let text = "\n".repeat(SOURCE_LINES_MAX + 1);
    let paths: Vec<String> = (0..=FILES_MAX).map(|at| format!("src/a/f{at}.rs")).collect();
    let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
    files[0].1 = &text;
    let (code, literal) = ("x".repeat(COLUMNS_MAX + 1), format!("\"{}\"", "x".repeat(158)));
    let long = format!("{literal}{literal}");
    (files[1].1, files[2].1, files[3].1) = (&code, &literal, &long);
    files.push(("src/a/tests.rs", &code));
    let expected = [
        "src/a/f0.rs:451: over 450 lines",
        "src/a/f1.rs:1: over 100 columns",
        "src/a/f3.rs:1: over 160 columns",
        "src/a/tests.rs:1: over 100 columns",
        "src/a: over 12 files",
    ];
    assert_eq!(lengths(&Tree::of(&files)), expected);
}
