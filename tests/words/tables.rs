//! All rows of a table have as many cells as its first.

use crate::markdown::rows;
use crate::{Files, compare};

fn unequal(text: &str) -> Vec<String> {
    let (mut wrong, mut before) = (Vec::new(), (usize::MAX - 1, 0));
    for (at, cells) in rows(text) {
        let (line, count) = before;
        let begins = at != line + 1;
        if !begins && cells.len() != count {
            wrong.push(format!("line {at}: {} cells, the table has {count}", cells.len()));
        }
        let is_rule = cells.iter().all(|cell| cell.trim().trim_matches(['-', ':']).is_empty());
        if begins
            && text.lines().nth(at).is_none_or(|next| !next.trim_start().starts_with("| -"))
            && !is_rule
        {
            wrong.push(format!("line {at}: a row without a table"));
        }
        before = (at, if begins { cells.len() } else { count });
    }
    wrong
}

#[test]
fn rows_of_a_table_are_equal() {
    let mut found = Vec::new();
    for (file, text) in Files::documents().iter() {
        found.extend(unequal(text).into_iter().map(|what| (file.to_owned(), what)));
    }
    compare("tables with unequal rows", &found, &[]);
}

#[test]
fn unequal_row_is_found() {
    assert_eq!(unequal("| a | b |\n| --- | --- |\n| `1|2` | 2 |\n"), [""; 0]);
    assert_eq!(unequal("| a | b |\n| --- | --- |\n| 1 |\n").len(), 1);
    assert_eq!(
        unequal("| a | b |\n| --- | --- |\n| 1 | 2 |\n\n| 3 | 4 |\n").len(),
        1,
        "a blank line cuts it"
    );
}
