//! Sizes of the code, as decision 0030 gives them: `cargo test --test tidy counts -- --nocapture`.

use std::collections::BTreeMap;

use crate::imports::paths;
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
fn counts_see_the_sources() {
    let tree = Tree::of_repository().unwrap();
    let folders = folders(&tree);
    let fullest = folders.iter().max_by_key(|(_, files)| **files).unwrap();
    let files: Vec<_> = tree.below("").filter(|(path, _)| is_source(path)).collect();
    let longest = files.iter().map(|(path, text)| (text.lines().count(), path)).max().unwrap();
    println!("files: {}; folders: {}; fullest: {fullest:?}", files.len(), folders.len());
    println!("longest file: {longest:?}; imports: {}", named(&tree));
    assert!(folders.len() > 50 && named(&tree) > 1_000, "none is seen");
}
