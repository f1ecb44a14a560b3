//! Links, anchors and paths in backticks lead somewhere.

use std::path::{Component, Path, PathBuf};

use crate::{Files, compare, root};

/// Folders whose paths are checked when they stand in backticks.
const FOLDERS: [&str; 11] = [
    "src/",
    "crates/",
    "tests/",
    "docs/",
    "packaging/",
    "bench-scripts/",
    "benches/",
    "examples/",
    "fuzz/",
    ".github/",
    ".cargo/",
];

/// Targets of links, without those to other hosts.
fn links(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        is_code ^= line.trim().starts_with("```");
        if is_code {
            continue;
        }
        for piece in line.split("](").skip(1) {
            let target = piece.split(')').next().unwrap_or_default();
            if !target.contains("://") && !target.starts_with("mailto:") {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// Names of headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter_map(|line| {
        line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))
    });
    let anchor = |heading: &str| {
        let kept = heading.chars().filter(|sign| sign.is_alphanumeric() || " -_".contains(*sign));
        kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

fn is_dead(file: &str, text: &str, target: &str) -> bool {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let beside = Path::new(file).parent().unwrap_or(Path::new(""));
    let path = if path.is_empty() { PathBuf::from(file) } else { clean(&beside.join(path)) };
    let full = root().join(&path);
    if path != Path::new(file) && !full.exists() {
        return true;
    }
    if anchor.is_empty() {
        return false;
    }
    let other = std::fs::read_to_string(&full).unwrap_or_default();
    let text = if path == Path::new(file) { text } else { &other };
    !anchors(text).iter().any(|own| own == anchor)
}

/// The path without `..`.
fn clean(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut all, part| {
        match part {
            Component::ParentDir => drop(all.pop()),
            part => all.push(part),
        }
        all
    })
}

/// Paths in backticks that begin with a folder of the repository.
fn paths(text: &str) -> Vec<String> {
    let mut is_block = false;
    let mut found = Vec::new();
    for line in text.lines() {
        is_block ^= line.trim().starts_with("```");
        if is_block {
            continue;
        }
        let code = line.split('`').skip(1).step_by(2);
        let whole = |code: &&str| {
            FOLDERS.iter().any(|folder| code.starts_with(folder))
                && !code.contains([' ', '*', '{', '<'])
        };
        found.extend(code.filter(whole).map(|code| code.trim_end_matches('/').to_owned()));
    }
    found
}

#[test]
fn link_leads_somewhere() {
    let mut found = Vec::new();
    for (file, text) in Files::documents().iter() {
        let dead = links(text).into_iter().filter(|target| is_dead(file, text, target));
        found.extend(dead.map(|target| (file.to_owned(), target)));
    }
    compare("dead links", &found, &[]);
}

/// Folders that exist only after the tool ran that the sentence is about.
const MADE_BY_TOOLS: [&str; 1] = ["fuzz/artifacts"];

/// Files with paths of other repositories, and how many. It may only shrink.
const OTHER_REPOSITORIES: &[(&str, usize)] = &[("crates/chain/tests/data/mainnet/README.md", 5)];

#[test]
fn path_in_backticks_exists() {
    let mut found = Vec::new();
    for (file, text) in Files::documents().iter() {
        let missing = paths(text)
            .into_iter()
            .filter(|path| !MADE_BY_TOOLS.contains(&path.as_str()) && !exists(file, path));
        found.extend(missing.map(|path| (file.to_owned(), path)));
    }
    compare("paths that do not exist", &found, OTHER_REPOSITORIES);
}

/// Comments of Rust, each line without its slashes.
fn comments(text: &str) -> String {
    let slashes = |line: &str| Some(line.trim_start().strip_prefix("//")?.to_owned());
    text.lines().filter_map(slashes).collect::<Vec<_>>().join("\n")
}

/// True if `path` exists below the root, or below the crate of `file`.
fn exists(file: &str, path: &str) -> bool {
    let own = file.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
    let own = own.map(|name| root().join("crates").join(name).join(path));
    root().join(path).exists() || own.is_some_and(|path| path.exists())
}

#[test]
fn path_in_a_comment_exists() {
    let folders = ["src", "crates", "tests", "benches", "examples", "fuzz"];
    let mut found = Vec::new();
    for (file, text) in Files::below(&folders, &[".rs"]).iter() {
        let missing = paths(&comments(text)).into_iter().filter(|path| !exists(file, path));
        found.extend(missing.map(|path| (file.to_owned(), path)));
    }
    compare("paths in comments that do not exist", &found, &[]);
}

#[test]
fn missing_path_in_a_comment_is_found() {
    let text = "/// See `src/no.rs`.\nlet a = \"`src/b.rs`\"; // `src/c.rs`\n    // `tests/x`\n";
    assert_eq!(paths(&comments(text)), ["src/no.rs", "tests/x"]);
    assert!(exists("crates/store/src/disk/disk.rs", "tests/crash.rs"));
    assert!(!exists("src/main.rs", "tests/crash.rs") && exists("src/main.rs", "tests/words"));
}

#[test]
fn dead_link_and_missing_path_are_found() {
    let text = "# A b, c\n\n[one](README.md) [two](nowhere.md) [three](#a-b-c) [four](#d) [five](https://x.invalid/)\n";
    let dead: Vec<_> =
        links(text).into_iter().filter(|target| is_dead("x.md", text, target)).collect();
    assert_eq!(dead, ["nowhere.md", "#d"]);
    assert!(
        !is_dead("docs/x.md", "", "../README.md#try-it") && is_dead("docs/x.md", "", "README.md")
    );
    assert_eq!(paths("`src/a.rs` `a/b` `tests/`\n```\n`src/b.rs`\n```"), ["src/a.rs", "tests"]);
}
