//! Rules of the repository that no compiler checks: imports, doors, lengths, places, names in the chart.
//!
//! Each rule is a function from a [`Tree`] to findings. `exceptions.rs` lists today's findings. The list may
//! only shrink: an exception that no longer occurs fails too.

mod chart;
mod circles;
mod duties;
mod exceptions;
mod imports;
mod layout;
mod places;
mod source;

use std::collections::BTreeSet;

use source::Tree;

/// Broken rule, as `path: text`. It has no line, so that an exception survives edits above it.
type Finding = String;

/// All rules.
fn findings(tree: &Tree) -> Vec<Finding> {
    [
        imports::check(tree),
        circles::check(tree),
        duties::check(tree),
        layout::check(tree),
        places::check(tree),
    ]
    .concat()
}

#[test]
fn repository_breaks_no_rule_except_the_listed_ones() {
    let found: BTreeSet<Finding> = findings(&Tree::of_repository().unwrap()).into_iter().collect();
    let allowed: BTreeSet<Finding> =
        exceptions::EXCEPTIONS.iter().map(|line| (*line).to_owned()).collect();
    let new: Vec<_> = found.difference(&allowed).map(String::as_str).collect();
    let gone: Vec<_> = allowed.difference(&found).map(String::as_str).collect();
    assert!(new.is_empty(), "broken rules:\n{}", new.join("\n"));
    assert!(gone.is_empty(), "remove these lines from exceptions.rs:\n{}", gone.join("\n"));
}
