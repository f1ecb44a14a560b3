//! Rules of the prose: sentences, names, doc comments, log messages, tables, links, paths, commits. `cargo test --test words`.
//!
//! `cargo test --test words counts -- --nocapture` prints the length of the sentences.

mod comments;
mod commits;
mod counts;
mod glossary;
mod links;
mod log_messages;
mod markdown;
mod names;
mod sentences;
mod tables;
mod tests_named;

use std::fs;
use std::path::{Path, PathBuf};

/// Files of the repository: path from its root, and text.
pub(crate) struct Files(Vec<(String, String)>);

impl Files {
    /// Files below `folders` that end in one of `endings`.
    pub(crate) fn below(folders: &[&str], endings: &[&str]) -> Self {
        let (root, mut found) = (root(), Vec::new());
        let mut left: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
        while let Some(path) = left.pop() {
            if path.is_dir() {
                let inside = fs::read_dir(&path).expect("a folder can be listed");
                left.extend(inside.map(|entry| entry.expect("it can be read").path()));
                continue;
            }
            let name = path.strip_prefix(root).expect("it is below").to_string_lossy().into_owned();
            let skipped = name.contains("node_modules/") || name.contains("target/");
            if !skipped && endings.iter().any(|ending| name.ends_with(ending)) {
                found.push((name, fs::read_to_string(&path).expect("it is text")));
            }
        }
        found.sort();
        Self(found)
    }

    /// Documents that people read: pages, diaries, reports of measurements, and the README of a folder.
    pub(crate) fn documents() -> Self {
        let folders = [
            "README.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            ".github",
            "bench-scripts",
            "crates",
            "docs",
            "packaging",
            "tests",
        ];
        Self::below(&folders, &[".md"])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compares what breaks a rule with the exceptions: files, each with the number of its findings.
///
/// A file may have as many findings as its exception says. With fewer, the exception must shrink.
pub(crate) fn compare(rule: &str, findings: &[(String, String)], exceptions: &[(&str, usize)]) {
    let mut files: Vec<&str> = findings.iter().map(|(file, _)| file.as_str()).collect();
    files.extend(exceptions.iter().map(|(file, _)| *file));
    files.sort_unstable();
    files.dedup();
    let mut wrong = Vec::new();
    for file in files {
        let here: Vec<_> = findings.iter().filter(|(own, _)| own == file).collect();
        let allowed =
            exceptions.iter().find(|(own, _)| *own == file).map_or(0, |(_, count)| *count);
        if here.len() > allowed {
            wrong.extend(here.iter().map(|(file, what)| format!("{file}: {what}")));
        } else if here.len() < allowed {
            wrong.push(format!(
                "{file}: {} findings, the exception says {allowed}: lower it",
                here.len()
            ));
        }
    }
    assert!(wrong.is_empty(), "{rule}\n{}", wrong.join("\n"));
}

#[test]
fn exception_must_shrink_with_its_findings() {
    let finding = [("a.md".to_owned(), "it".to_owned())];
    compare("rule", &finding, &[("a.md", 1)]);
    for exceptions in [&[][..], &[("a.md", 2)], &[("a.md", 1), ("b.md", 1)]] {
        assert!(std::panic::catch_unwind(|| compare("rule", &finding, exceptions)).is_err());
    }
}
