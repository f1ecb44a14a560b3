//! Tells the program its version: `0.3.0`, and of release builds the commit and its date too.
//!
//! Development builds leave the commit out, since each commit would rebuild them.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// The file in which `git archive` puts the commit: its hash, its time and its date.
const ARCHIVED: &str = "packaging/commit";

fn main() {
    println!("cargo::rerun-if-changed={ARCHIVED}");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = is_release.then(|| archived().or_else(checked_out)).flatten();
    match commit.as_deref().and_then(shown) {
        Some(commit) => println!("cargo::rustc-env=NEVE_VERSION={version} ({commit})"),
        None => println!("cargo::rustc-env=NEVE_VERSION={version}"),
    }
}

/// Returns the commit of an archive. In a checkout the file has a placeholder.
fn archived() -> Option<String> {
    fs::read_to_string(ARCHIVED).ok().filter(|text| !text.starts_with('$'))
}

/// Returns the commit that is checked out.
fn checked_out() -> Option<String> {
    // Below the directory of another repository, git would name a commit of that one.
    if !Path::new(".git").exists() {
        return None;
    }
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={}", log.trim());
    git(&["log", "-1", "--format=%H %ct %cs"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns `d56de3eb1d3f 2026-11-25` of hash, time and date.
fn shown(commit: &str) -> Option<String> {
    let mut words = commit.split_whitespace();
    let (hash, _time, date) = (words.next()?, words.next()?, words.next()?);
    Some(format!("{} {date}", hash.get(..12)?))
}
