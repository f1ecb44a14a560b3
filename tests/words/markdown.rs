//! Enough of Markdown: blocks of prose, tables, headings, links, code in backticks.

/// Paragraphs and items of lists of a document: line number, and text on one line. No code block, no
/// heading, no table, no comment.
pub(crate) fn prose(text: &str) -> Vec<(usize, String)> {
    let (mut blocks, mut is_code, mut is_open) = (Vec::<(usize, String)>::new(), false, false);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let is_item = line.starts_with("- ") || line.starts_with("* ") || is_numbered(line);
        let is_none = line.is_empty()
            || line.starts_with('#')
            || line.starts_with('|')
            || line.starts_with("```")
            || line.starts_with("<!--")
            || line.starts_with("![");
        if is_code || is_none {
            is_open = false;
            continue;
        }
        match blocks.last_mut() {
            Some((_, block)) if is_open && !is_item => {
                block.push(' ');
                block.push_str(line);
            }
            _ => blocks.push((at + 1, line.trim_start_matches(['-', '*', ' ']).to_owned())),
        }
        is_open = true;
    }
    blocks
}

fn is_numbered(line: &str) -> bool {
    line.split_once(". ").is_some_and(|(number, _)| number.parse::<u16>().is_ok())
}

/// Rows of tables: line number, and cells.
pub(crate) fn rows(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut is_code = false;
    let mut rows = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        is_code ^= line.starts_with("```");
        if !is_code && line.starts_with('|') {
            rows.push((at + 1, cells(line)));
        }
    }
    rows
}

fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut is_code, mut is_escaped) = (vec![String::new()], false, false);
    for sign in line.trim_matches('|').chars() {
        is_code ^= sign == '`';
        match sign {
            '|' if !is_code && !is_escaped => cells.push(String::new()),
            sign => cells.last_mut().expect("there is one").push(sign),
        }
        is_escaped = sign == '\\';
    }
    cells
}

/// Text with each piece of code in backticks as one word, and links as their text.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    for (at, piece) in text.split('`').enumerate() {
        plain.push_str(if at % 2 == 1 { "code" } else { piece });
    }
    while let Some((before, rest)) = plain.split_once("](") {
        let (_, after) = rest.split_once(')').unwrap_or(("", rest));
        plain = format!("{before}{after}");
    }
    plain.replace(['[', '*'], "")
}

/// Words with a small first letter that begin sentences.
const BEGINNINGS: [&str; 4] = ["code", "neve", "avalanchego", "hyper"];

/// Sentences of plain text.
pub(crate) fn sentences(plain: &str) -> Vec<String> {
    let (mut sentences, mut sentence) = (Vec::new(), Vec::new());
    let words: Vec<&str> = plain.split_whitespace().collect();
    for (at, word) in words.iter().enumerate() {
        sentence.push(*word);
        let bare = word.trim_end_matches(['"', ')', '\u{201d}']);
        let ends = bare.ends_with(['.', '!', '?']) && !bare.ends_with("e.g.") && bare != "No.";
        let next =
            words.get(at + 1).and_then(|next| next.trim_start_matches(['"', '(']).chars().next());
        let named = |next: &&str| BEGINNINGS.iter().any(|name| next.starts_with(name));
        let begins =
            next.is_none_or(|next| !next.is_lowercase()) || words.get(at + 1).is_some_and(named);
        if ends && begins {
            sentences.push(sentence.join(" "));
            sentence.clear();
        }
    }
    if !sentence.is_empty() {
        sentences.push(sentence.join(" "));
    }
    sentences
}

/// Number of words: numbers and code count, dashes and signs do not.
pub(crate) fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

#[test]
fn prose_has_paragraphs_and_items_only() {
    let text = "# Title\n\nOne\nline.\n\n```sh\ncode\n```\n\n- first\n  more\n- second\n| a | b |\n3. third\n";
    let found: Vec<String> = prose(text).into_iter().map(|(_, block)| block).collect();
    assert_eq!(found, ["One line.", "first more", "second", "3. third"]);
}

#[test]
fn sentence_ends_before_a_capital_letter_only() {
    let text = plain("neve 0.3 is new. `neve serve` runs it, v1.14 too. See [the page](a.md).");
    let found: Vec<usize> = sentences(&text).iter().map(|one| words(one)).collect();
    assert_eq!(found, [4, 5, 3]);
}
