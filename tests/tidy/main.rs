//! Rules of the repository that no compiler checks: imports, doors, lengths, places, names in the chart.
//!
//! Each rule is a function from a [`Tree`] to findings. There is no exception.

mod chart;
mod circles;
mod counts;
mod duties;
mod functions;
mod imports;
mod layout;
mod places;
mod source;
mod types;

use source::Tree;

/// Broken rule, as `path:line: text`. A finding of a whole folder has no line.
type Finding = String;

/// Returns the findings of all rules.
fn findings(tree: &Tree) -> Vec<Finding> {
    [
        imports::check(tree),
        circles::check(tree),
        duties::check(tree),
        layout::check(tree),
        functions::check(tree),
        types::check(tree),
        places::check(tree),
    ]
    .concat()
}

#[test]
fn repository_breaks_no_rule() {
    let found = findings(&Tree::of_repository().unwrap());
    assert!(found.is_empty(), "broken rules:\n{}", found.join("\n"));
}
