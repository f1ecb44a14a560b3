//! A doc comment begins with a verb or a noun.

use crate::Files;

const FORBIDDEN: [&str; 16] = [
    "What", "Which", "Where", "When", "Who", "Whether", "Why", "How", "It", "Its", "This", "As",
    "Of", "So", "One", "The same",
];

/// First lines of doc comments that begin with a forbidden word: line number and text.
fn forbidden(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut before = "";
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let comment = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
        if let Some(comment) =
            comment.filter(|_| !before.starts_with("///") && !before.starts_with("//!"))
        {
            let is = |word: &str| {
                comment
                    .strip_prefix(word)
                    .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            if FORBIDDEN.iter().any(|word| is(word)) {
                found.push(format!("line {}: {comment}", at + 1));
            }
        }
        before = line;
    }
    found
}

#[test]
fn doc_comment_begins_with_a_verb_or_a_noun() {
    let mut found = Vec::new();
    let folders = ["src", "crates", "tests", "benches", "examples"];
    for (file, text) in Files::below(&folders, &[".rs"]).iter() {
        found.extend(forbidden(text).into_iter().map(|what| format!("{file}: {what}")));
    }
    assert!(found.is_empty(), "{}\nsee CONTRIBUTING.md, Write", found.join("\n"));
}

#[test]
fn comment_with_a_forbidden_word_is_found() {
    assert_eq!(forbidden("/// Whether it is.\nfn a() {}\n    /// Of a block.\n").len(), 2);
    assert_eq!(
        forbidden("/// Returns it.\n/// What follows is the same sentence.\n/// Italic.\n").len(),
        0
    );
    assert_eq!(forbidden("/// Items.\n\n/// Office hours.\n\n/// The same.\n").len(), 1);
}
