//! Read errors of the disk while a store is opened in which two files have the same heights.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::checks::{assert_all, assert_named, assert_right, quarantined, walk};
use super::support::{IDENTITY, block, fresh_dir, pack};
use super::{open, records};
use crate::{Opened, Record};

/// First height of the active segment, and the height after its last one.
const ACTIVE: u64 = 8;
const END: u64 = 11;

/// A store whose packed file of 4 to 7 was made of a segment a height. A loss of power brought all of these back except the first.
fn store() -> TempDir {
    let dir = fresh_dir();
    let path = |base: u64| dir.path().join(format!("{base:020}.seg"));
    let mut opened = open(dir.path()).unwrap();
    opened.writer.bind(IDENTITY, 1).unwrap();
    for height in 0..END {
        opened.writer.append(&block(height, 0)).unwrap();
        if height < ACTIVE {
            opened.writer.seal().unwrap();
        }
    }
    let sources: Vec<_> = (5..ACTIVE).map(|base| (base, fs::read(path(base)).unwrap())).collect();
    assert_eq!(pack(&mut opened, ACTIVE - 1).unwrap(), ACTIVE);
    opened.writer.sync().unwrap();
    drop(opened);
    sources.iter().for_each(|(base, bytes)| fs::write(path(*base), bytes).unwrap());
    dir
}

/// The store serves everything, once its first packed height is fetched.
fn assert_opens(dir: &Path, records: &[Record], what: &str) {
    let aside = quarantined(dir);
    let mut opened = open(dir).unwrap_or_else(|error| panic!("{what}: {error}"));
    // The packed file was set aside, and the segments reach into it: its first height is fetched.
    if opened.reader.gap() == Some(4..5) {
        let mut history = opened.writer.history().unwrap();
        history.append(&block(4, 0)).unwrap();
        assert_eq!(opened.writer.prepend(history.finish().unwrap()).unwrap(), 1);
    }
    let end = opened.reader.range().map_or(0, |range| range.end() + 1);
    let lost_active = aside.iter().any(|name| name.contains(&format!("{ACTIVE:020}")));
    assert!(end == END || lost_active && end >= ACTIVE, "{what}: {end}, {aside:?}");
    assert_all(&opened, &records[..end as usize]);
}

#[test]
fn opening_beside_two_files_of_a_height_survives_a_read_error_at_every_call() {
    let records = &records()[..END as usize];
    let opening = |opened: &mut Option<Opened>, dir: &Path| {
        *opened = open(dir).inspect_err(|error| assert_named(error, dir, "opening")).ok();
    };
    let calls = walk(
        &store(),
        |_| None,
        opening,
        |opened, dir, _, what| {
            opened.into_iter().for_each(|opened| assert_right(&opened.reader, records, what));
            assert_opens(dir, records, what);
        },
    );
    assert!(calls > 30, "{calls}");
}
