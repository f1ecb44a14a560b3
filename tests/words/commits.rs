//! Commits that documents name belong to the history of this one.

use std::process::Command;

use crate::{Files, compare, root};

/// Words of 7 to 40 hex digits that name no commit.
const OTHERS: [&str; 3] = ["ed25519", "cbf29ce484222325", "100000001b3"];

/// Words that can name a commit: 7 to 40 hex digits. Digits alone are a number, unless `commit` or `at` stands before.
fn named(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut before = "";
    for word in text.split(|sign: char| !sign.is_ascii_alphanumeric() && !"_.,#/-".contains(sign)) {
        let own = word.trim_end_matches(['.', ',', '-']);
        let is_hex = own.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_number = own.bytes().all(|byte| byte.is_ascii_digit());
        let is_named = !is_number || matches!(before, "commit" | "at");
        if is_hex && (7..=40).contains(&own.len()) && is_named && !OTHERS.contains(&own) {
            found.push(own);
        }
        if !word.is_empty() {
            before = word;
        }
    }
    found
}

/// Output of git in this repository.
fn git(arguments: &[&str]) -> Result<String, String> {
    let mut git = Command::new("git");
    let out = git.arg("-C").arg(root()).args(arguments).output().map_err(|err| err.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if out.status.success() { Ok(text(&out.stdout)) } else { Err(text(&out.stderr)) }
}

/// Hashes of all commits up to this one, or the reason why they are not known.
fn history() -> Result<String, String> {
    if !root().join(".git").exists() {
        return Err("no .git: an exported tree".to_owned());
    }
    if git(&["rev-parse", "--is-shallow-repository"])? == "true" {
        return Err("a shallow clone".to_owned());
    }
    git(&["rev-list", "HEAD"])
}

#[test]
fn commit_in_a_document_is_an_ancestor() {
    let history = match history() {
        Ok(history) => history,
        Err(reason) => return eprintln!("skipped, the history is not known: {reason}"),
    };
    let mut found = Vec::new();
    for (file, text) in Files::below(&["docs"], &[".md"]).iter() {
        let missing = named(text).into_iter();
        let missing = missing.filter(|hash| !history.lines().any(|own| own.starts_with(hash)));
        found.extend(missing.map(|hash| (file.to_owned(), hash.to_owned())));
    }
    compare("commits that are no ancestors of this one", &found, &[]);
}

#[test]
fn words_that_name_commits_are_found() {
    let text = "holds; on 3a8769a, f88da30. | 1f76177 with | commit 6548453, at 5344276 | `ed25519:KEY` \
                0xabcdef01 1234567 bytes, src/abcdef1 deadbeef.rs decade abcdefg";
    assert_eq!(named(text), ["3a8769a", "f88da30", "1f76177", "6548453", "5344276"]);
}
