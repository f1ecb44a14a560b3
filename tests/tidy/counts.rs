//! Sizes of the code, as decision 0030 gives them: `cargo test --test tidy counts -- --nocapture`.

use std::collections::BTreeMap;

use crate::circles;
use crate::imports::{self, paths};
use crate::layout::is_source;
use crate::source::{Tree, code};

/// Files of each folder of sources, without doors.
fn folders(tree: &Tree) -> BTreeMap<&str, usize> {
    let mut folders = BTreeMap::new();
    for (path, _) in tree.below("").filter(|(path, _)| is_source(path)) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *folders.entry(folder).or_default() += usize::from(!path.ends_with("/mod.rs"));
    }
    folders
}

/// Paths that name an item of another file or crate of the workspace.
fn named(tree: &Tree) -> usize {
    let sources = tree.below("").filter(|(path, _)| is_source(path));
    sources.map(|(_, text)| paths(&code(text)).len()).sum()
}

#[test]
fn counts_of_the_repository_are_those_of_a_house() {
    let tree = Tree::of_repository().unwrap();
    let folders = folders(&tree);
    let fullest = folders.iter().max_by_key(|(_, files)| **files).unwrap();
    let files: Vec<_> = tree.below("").filter(|(path, _)| is_source(path)).collect();
    let longest = files.iter().map(|(path, text)| (text.lines().count(), path)).max().unwrap();
    println!("files: {}; folders: {}; fullest: {fullest:?}", files.len(), folders.len());
    println!("imports in circles: {}", circles::check(&tree).len());
    println!("imports against the table: {} of {}", imports::check(&tree).len(), named(&tree));
    println!("longest file: {longest:?}");
    assert!(folders.len() > 50 && named(&tree) > 1_000, "the counts see the sources");
}
