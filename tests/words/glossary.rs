//! A page links a term of the glossary where it first needs one.

use crate::{Files, compare};

const GLOSSARY: &str = "docs/GLOSSARY.md";

/// Pages without a link yet. It may only shrink.
const EXCEPTIONS: &[(&str, usize)] = &[];

/// True for pages of prose: neither generated, nor a decision, which is one screen.
fn is_page(file: &str) -> bool {
    let inside = file.strip_prefix("docs/").unwrap_or_default();
    file != GLOSSARY
        && (inside.starts_with("operating/") || !inside.contains('/') && !inside.is_empty())
}

#[test]
fn page_links_the_glossary() {
    let mut found = Vec::new();
    for (file, text) in Files::documents().iter().filter(|(file, _)| is_page(file)) {
        if !text.contains("](GLOSSARY.md") && !text.contains("](../GLOSSARY.md") {
            found.push((file.to_owned(), "no link to a term of the glossary".to_owned()));
        }
    }
    compare("pages without the glossary", &found, EXCEPTIONS);
}

#[test]
fn pages_are_those_of_prose() {
    let pages = ["docs/RPC.md", "docs/operating/watch.md"];
    let others = [GLOSSARY, "README.md", "docs/reference/cli.md", "docs/decisions/0001-x.md"];
    assert!(pages.into_iter().all(is_page) && !others.into_iter().any(is_page));
}
