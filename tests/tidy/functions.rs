//! A function fits on a screen, as a person counts its lines: signature, comments and closures too.
//!
//! clippy's `too_many_lines` counts lines of code in the body only.

use crate::Finding;
use crate::layout::is_source;
use crate::source::{Tree, code, line};

const LINES_MAX: usize = 60;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.below("").filter(|(path, _)| is_source(path));
    sources.flat_map(|(path, text)| long(path, &code(text))).collect()
}

fn long(path: &str, code: &str) -> Vec<Finding> {
    let begins = code.match_indices("fn ").filter(|(at, _)| is_word(code, *at));
    let all = begins.filter_map(|(at, _)| Some((at, &code[at..at + end(&code[at..])?])));
    let long = all.filter(|(_, text)| text.lines().count() > LINES_MAX);
    let told = long.map(|(at, text)| {
        let name = text[3..].split(['(', '<']).next().unwrap_or_default();
        let (line, lines) = (line(code, at), text.lines().count());
        format!("{path}:{line}: {name} has {lines} lines, over {LINES_MAX}")
    });
    told.collect()
}

fn is_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
}

/// End of the function at the start of `code`; `None` if it has no body.
fn end(code: &str) -> Option<usize> {
    let (mut open, mut brackets) = (0_usize, 0_usize);
    for (at, sign) in code.char_indices() {
        match sign {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.checked_sub(1)?, // a type: `f: fn(u8)`
            '{' => open += 1,
            '}' => open = open.checked_sub(1)?,
            ';' if (open, brackets) == (0, 0) => return None,
            _ => {}
        }
        if sign == '}' && open == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[test]
fn long_function_is_reported_with_its_comments_and_closures() {
    let body = "    // Why.\n    let f = |x| {\n        g(x);\n    };\n".repeat(LINES_MAX / 4);
    let short = format!("fn a(x: [u8; 2])\n{{\n{}}}\n", "    f();\n".repeat(LINES_MAX - 3));
    let long = format!("trait T {{\n    fn b();\n}}\npub(crate) async fn c<T>() {{\n{body}}}\n");
    let tests = format!("#[cfg(test)]\nmod tests {{\n{long}}}\n");
    let tree = Tree::of(&[("src/a.rs", &format!("{short}{long}{tests}")), ("tests/b.rs", &long)]);
    assert_eq!(check(&tree), ["src/a.rs:64: c has 62 lines, over 60"]);
}
