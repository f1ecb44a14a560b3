//! Rules of the repository that no compiler checks: imports, doors, lengths, places, names in the chart.
//!
//! Each rule is a function from a [`Tree`] to findings. There is no exception.

mod chart;
mod circles;
mod counts;
mod decisions;
mod duties;
mod functions;
mod imports;
mod layout;
mod places;
mod source;
mod types;

use std::thread;

use source::Tree;

/// Broken rule, as `path:line: text`. A finding of a whole folder has no line.
type Finding = String;

/// Returns the findings of all rules, each from a thread of its own.
fn findings(tree: &Tree) -> Vec<Finding> {
    let checks: [fn(&Tree) -> Vec<Finding>; 7] = [
        imports::check,
        circles::check,
        duties::check,
        layout::check,
        functions::check,
        types::check,
        places::check,
    ];
    thread::scope(|scope| {
        let threads = checks.map(|check| scope.spawn(move || check(tree)));
        threads.map(|thread| thread.join().expect("a rule does not panic")).concat()
    })
}

#[test]
fn repository_breaks_no_rule() {
    let found = findings(&Tree::of_repository().unwrap());
    assert!(found.is_empty(), "broken rules:\n{}", found.join("\n"));
}
