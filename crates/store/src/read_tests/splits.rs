//! Splits of segments whose records cannot be copied.

use std::path::Path;
use std::sync::Arc;

use super::checks::{assert_right, repair_all, walk};
use super::support::{
    assert_clean, assert_exactly, block, fill_across, fork, fresh_dir, open_as, pack,
};
use super::{assert_named, open, options};
use crate::disk::RealDisk;
use crate::{Opened, Options, Record};

/// A store of long segments without a codec.
fn open_unpacked(dir: &Path) -> Opened {
    let disk = Arc::new(RealDisk::new(dir));
    open_as(disk, Options { segment_blocks: 5, ..options() }, false)
}

/// Stores the records, with another one at 6, which does not follow 5.
fn fill_with_break(dir: &Path, records: &[Record]) {
    let (mut unpacked, other) = (open_unpacked(dir), fork(6, 0, 1));
    unpacked.writer.bind(super::IDENTITY, 1).unwrap();
    for record in records {
        if record.height == other.height {
            unpacked.writer.head = Some((5, other.parent));
            unpacked.writer.append(&other).unwrap();
        } else {
            unpacked.writer.append(record).unwrap();
        }
    }
    unpacked.writer.seal().unwrap();
}

/// A segment of 3 to 7 in which 6 names another parent than 5: no release should have written one.
#[test]
fn record_that_does_not_follow_is_damaged_when_its_segment_is_split() {
    let dir = fresh_dir();
    let records: Vec<_> = (3..10).map(|height| block(height, 0)).collect();
    fill_with_break(dir.path(), &records);
    let mut opened = open(dir.path()).unwrap();
    let due = opened.writer.begin_split(7, 0).expect("3 to 7");
    assert!(opened.writer.show_parts(due.run(&mut || true)).unwrap().is_none());
    let damaged = opened.reader.damaged();
    assert_eq!((damaged[0].base, &damaged[0].heights[..]), (3, &[6][..]));
    assert!(opened.writer.begin_split(7, 0).is_none(), "it is repaired first");
    repair_all(&mut opened, &records, "repaired");
    assert_exactly(&opened.reader, &records);
    assert!(opened.writer.begin_split(7, 0).is_some());
}

/// Everything is served, and is packed once it is repaired.
fn assert_packs(mut opened: Opened, dir: &Path, records: &[Record], what: &str) {
    assert_right(&opened.reader, records, what);
    repair_all(&mut opened, records, what);
    assert!(pack(&mut opened, 12).is_ok(), "{what}");
    assert_eq!(opened.reader.usage().packed_blocks, 8, "{what}");
    assert_exactly(&opened.reader, records);
    drop(opened);
    assert_exactly(&open(dir).unwrap().reader, records);
    assert_clean(dir);
}

#[test]
fn splitting_survives_a_read_error_at_every_call() {
    let store = fresh_dir();
    let records = fill_across(&mut open_unpacked(store.path()));
    let calls = walk(
        &store,
        |dir| open(dir).unwrap(),
        |opened, dir| {
            if let Err(error) = pack(opened, 12) {
                assert_named(&error, dir, "splitting");
            }
        },
        |opened, dir, _, what| assert_packs(opened, dir, &records, what),
    );
    assert!(calls > 50, "{calls}");
}
