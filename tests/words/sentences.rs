//! No sentence has more than 40 words.

use crate::markdown::{plain, prose, rows, sentences, words};
use crate::{Files, compare};

const WORDS_MAX: usize = 40;

/// Files with longer sentences, and how many. It may only shrink.
const EXCEPTIONS: &[(&str, usize)] = &[];

fn long(text: &str) -> Vec<String> {
    let cells = rows(text)
        .into_iter()
        .flat_map(|(at, cells)| cells.into_iter().map(move |cell| (at, cell)));
    let blocks = prose(text).into_iter().chain(cells);
    let all = blocks.flat_map(|(at, block)| {
        let found = sentences(&plain(&block));
        found.into_iter().map(move |sentence| (at, words(&sentence), sentence))
    });
    let long = all.filter(|(_, count, _)| *count > WORDS_MAX);
    long.map(|(at, count, sentence)| format!("line {at}: {count} words: {sentence}")).collect()
}

#[test]
fn sentence_has_at_most_forty_words() {
    let mut found = Vec::new();
    for (file, text) in Files::documents().iter() {
        found.extend(long(text).into_iter().map(|what| (file.to_owned(), what)));
    }
    compare("sentences of more than 40 words", &found, EXCEPTIONS);
}

#[test]
fn sentence_of_forty_one_words_is_found() {
    let words = ["word"; 41].join(" ");
    assert_eq!(long(&format!("Short. {words}.")).len(), 1);
    assert_eq!(long(&format!("| a |\n| --- |\n| {words} |")).len(), 1, "in a cell of a table too");
    assert_eq!(long(&["word"; 40].join(" ")).len(), 0);
    assert_eq!(long(&format!("```\n{words}\n```")).len(), 0);
}
