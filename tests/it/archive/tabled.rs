//! A push of packed files with merged hash tables beside them, and of the same files without one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use neve_devnet::{Config, DevnetThread};

use crate::store::archive::{objects, packed_store, pushed};
use crate::store::packed::wait_for_packed;
use crate::support::neve::{LIMIT, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};

/// Nine whole ranges of 32 heights, and a part of another. A table has eight of them.
const HEAD: u64 = 310;
const PACKED: u64 = 288;

fn tables(store: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(store.join("store")).expect("the store is there");
    let paths = files.map(|file| file.expect("it can be listed").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "idx")).collect()
}

/// Objects of a push of a store, by their names: the manifest has times.
fn pushed_objects(store: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let bucket = fresh_dir();
    let place = format!("file://{}", bucket.path().display());
    assert_eq!(pushed(store, &[&place])["pushed"], 9);
    let relative = |path: &PathBuf| path.strip_prefix(bucket.path()).map(Path::to_owned);
    let read = |path: PathBuf| {
        let name = relative(&path).expect("it is below the bucket");
        (name, fs::read(path).expect("it is there"))
    };
    let all = objects(bucket.path()).into_iter().map(read);
    all.filter(|(name, _)| name.as_os_str() != "manifest.json").collect()
}

#[test]
fn push_with_hash_tables_puts_the_objects_of_one_without() {
    let (node, dir) = (DevnetThread::start(Config::test().with_head(HEAD)), fresh_dir());
    let source = packed_store(dir.path(), &node.expect("loopback has free ports"), HEAD);
    wait_for_packed(&source, PACKED);
    let is_merged = || match tables(dir.path()).len() {
        0 => Err(Miss::NotYet("no table".to_owned())),
        _ => Ok(()),
    };
    wait_until("a merged table", LIMIT, is_merged).expect("eight segments are merged");
    source.stop_in_time();
    let with_tables = pushed_objects(dir.path());
    let tables = tables(dir.path());
    tables.iter().for_each(|path| fs::remove_file(path).expect("it is there"));
    assert!(!tables.is_empty() && with_tables.len() == 9 + 4);
    assert_eq!(pushed_objects(dir.path()), with_tables);
}
