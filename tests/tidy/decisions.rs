//! A record of a decision is short, and has the same parts as all others.

use std::fs;
use std::io;
use std::path::Path;

use crate::Finding;

const FOLDER: &str = "docs/decisions";
const LINES_MAX: usize = 40;
/// Parts of a record, in this order. Others may stand between them.
const PARTS: [&str; 6] =
    ["Status", "Context", "Decision", "Alternatives", "Consequences", "Evidence"];

/// Names and texts of the records: their names begin with a number.
fn records() -> io::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER))? {
        let (name, path) = {
            let entry = entry?;
            (entry.file_name().to_string_lossy().into_owned(), entry.path())
        };
        if name.starts_with(|first: char| first.is_ascii_digit()) {
            found.push((name, fs::read_to_string(path)?));
        }
    }
    found.sort();
    Ok(found)
}

fn check(name: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        found.push(format!("{FOLDER}/{name}: {lines} lines; allowed: {LINES_MAX}"));
    }
    let number = name.split('-').next().unwrap_or_default();
    if !text.starts_with(&format!("# {number}. ")) {
        found.push(format!("{FOLDER}/{name}:1: the title has not the number of the file"));
    }
    let mut rest = text.lines();
    for part in PARTS {
        let head = format!("**{part}:**");
        let begins = |line: &str| line.trim_start_matches("- ").starts_with(&head);
        let mut behind = rest.clone();
        if behind.any(begins) {
            rest = behind;
        } else {
            found.push(format!("{FOLDER}/{name}: no {part} in its place"));
        }
    }
    found
}

#[test]
fn decisions_are_short_and_have_all_parts() {
    let records = records().unwrap();
    assert!(records.len() >= 40, "{FOLDER} has another form");
    let found: Vec<_> = records.iter().flat_map(|(name, text)| check(name, text)).collect();
    assert!(found.is_empty(), "broken records:\n{}", found.join("\n"));
}

#[test]
fn long_or_incomplete_decision_is_reported() {
    let whole = "# 0007. Do it\n\n- **Status:** accepted\n\n**Context:** a\n\n**Decision:** b\n\n\
                 **Alternatives:**\n- c\n\n**Consequences:** d\n\n**Exemptions:** e\n\n**Evidence:** f\n";
    assert_eq!(check("0007-do-it.md", whole), [""; 0]);
    let long = check("0007-do-it.md", &format!("{whole}{}", "more\n".repeat(25)));
    assert_eq!(long, ["docs/decisions/0007-do-it.md: 41 lines; allowed: 40"]);
    let swapped = whole.replace("Context", "x").replace("Decision", "Context");
    let expected = [
        "docs/decisions/0008-do-it.md:1: the title has not the number of the file",
        "docs/decisions/0008-do-it.md: no Decision in its place",
    ];
    assert_eq!(check("0008-do-it.md", &swapped), expected);
}
