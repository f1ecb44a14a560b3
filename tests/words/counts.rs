//! Length of the sentences, and their clauses.

use crate::Files;
use crate::markdown::{plain, prose, sentences, words};

/// Goals: median and 90th percentile of words, percent over 30 words, percent with what or who.
const GOALS: Counts = Counts { sentences: 0, median: 16, p90: 28, over_30: 8.0, clauses: 4.0 };

#[derive(Debug)]
struct Counts {
    sentences: usize,
    median: usize,
    p90: usize,
    /// Percent of sentences with more than 30 words.
    over_30: f64,
    /// Percent of sentences with what, whatever, who or whoever.
    clauses: f64,
}

impl Counts {
    fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let blocks = texts.flat_map(|text| prose(text).into_iter().map(|(_, block)| plain(&block)));
        let all: Vec<String> = blocks.flat_map(|block| sentences(&block)).collect();
        let mut lengths: Vec<usize> = all.iter().map(|sentence| words(sentence)).collect();
        lengths.sort_unstable();
        let float = |count: usize| u32::try_from(count).map_or(f64::MAX, f64::from);
        let percent = |count: usize| 100.0 * float(count) / float(all.len().max(1));
        Self {
            sentences: all.len(),
            median: lengths.get(all.len() / 2).copied().unwrap_or(0),
            p90: lengths.get(all.len() * 9 / 10).copied().unwrap_or(0),
            over_30: percent(lengths.iter().filter(|length| **length > 30).count()),
            clauses: percent(all.iter().filter(|sentence| has_clause(sentence)).count()),
        }
    }
}

fn has_clause(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    let mut words = lower.split(|sign: char| !sign.is_alphanumeric());
    words.any(|word| matches!(word, "what" | "whatever" | "who" | "whoever"))
}

#[test]
fn counts_are_within_the_goals() {
    let documents = Files::documents();
    for (file, text) in documents.iter() {
        println!("{file}: {:?}", Counts::of([text].into_iter()));
    }
    let all = Counts::of(documents.iter().map(|(_, text)| text));
    println!("all: {all:?}");
    assert!(all.median <= GOALS.median, "{all:?}");
    assert!(all.p90 <= GOALS.p90, "{all:?}");
    assert!(all.over_30 <= GOALS.over_30, "{all:?}");
    assert!(all.clauses <= GOALS.clauses, "{all:?}");
}

#[test]
fn counts_are_of_sentences() {
    let counts = Counts::of(["One two three. Who is it?\n\nNobody."].into_iter());
    assert_eq!((counts.sentences, counts.median, counts.p90), (3, 3, 3));
    assert!((counts.clauses - 100.0 / 3.0).abs() < 0.1);
}
