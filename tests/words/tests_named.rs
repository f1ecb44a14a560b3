//! Files and tests that documents name are there.

use crate::{Files, compare};

/// Documents with files of other repositories, and how many. It may only shrink.
const OTHER_REPOSITORIES: &[(&str, usize)] = &[("crates/chain/tests/data/mainnet/README.md", 2)];

/// Names in backticks of one line, in their order.
fn names(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_file(name: &str) -> bool {
    name.split('.').next_back() == Some("rs") && !name.contains([' ', '*', '{', '<', '…'])
}

/// A test is a name of at least four words that no metric has.
fn is_test(name: &str) -> bool {
    let letters = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit();
    name.matches('_').count() >= 3
        && !name.starts_with("neve_")
        && name.chars().all(|sign| letters(sign) || sign == '_' || sign == '…')
}

/// True if `path` is the file, or ends in it after a folder.
fn ends_in(path: &str, file: &str) -> bool {
    path.strip_suffix(file).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

/// True if `text` has a function of this name. `…` stands for the beginning or the end of a name.
fn has_test(text: &str, test: &str) -> bool {
    let functions = text.split("fn ").skip(1);
    functions.filter_map(|rest| rest.split(['(', '<']).next()).any(|name| {
        match (test.strip_prefix('…'), test.strip_suffix('…')) {
            (Some(end), _) => name.ends_with(end),
            (_, Some(start)) => name.starts_with(start),
            _ => name == test,
        }
    })
}

/// Names of files that are nowhere, and of tests that the file named before them does not have.
fn missing(text: &str, sources: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut file = "";
        for name in names(line) {
            let texts = sources.iter().filter(|(path, _)| ends_in(path, file));
            if is_file(name) {
                file = name;
                if !sources.iter().any(|(path, _)| ends_in(path, name)) {
                    found.push(name.to_owned());
                }
            } else if is_test(name) && !file.is_empty() {
                let found_in = texts.into_iter().any(|(_, text)| has_test(text, name));
                if !found_in {
                    found.push(format!("{file} {name}"));
                }
            }
        }
    }
    found
}

fn sources() -> Files {
    Files::below(&["src", "crates", "tests", "fuzz/fuzz_targets", "benches", "examples"], &[".rs"])
}

#[test]
fn file_or_test_in_backticks_exists() {
    let sources = sources();
    let mut found = Vec::new();
    for (file, text) in Files::documents().iter() {
        let missing = missing(text, &sources);
        found.extend(missing.into_iter().map(|name| (file.to_owned(), name)));
    }
    compare("files and tests that do not exist", &found, OTHER_REPOSITORIES);
}

#[test]
fn absent_file_and_absent_test_are_found() {
    let text = "| `nowhere.rs` |\n| `tests_named.rs` `no_test_of_this_name`, `absent_file_and_…` |\n\
                | `words/main.rs` `absent_file_and_absent_test_are_found` `neve_is_no_test_name` |";
    let expected = [
        "nowhere.rs",
        "tests_named.rs no_test_of_this_name",
        "words/main.rs absent_file_and_absent_test_are_found",
    ];
    assert_eq!(missing(text, &sources()), expected);
}
