//! Splits of segments whose records cannot be copied.

use std::sync::Arc;

use super::checks::{assert_right, repair_all, walk};
use super::support::{
    assert_clean, assert_exactly, block, fill_across, fork, fresh_dir, open_as, pack,
};
use super::{assert_named, open, options};
use crate::Options;
use crate::disk::RealDisk;

/// A segment of 3 to 7 in which 6 names another parent than 5: no release should have written one.
#[test]
fn record_that_does_not_follow_is_damaged_when_its_segment_is_split() {
    let dir = fresh_dir();
    let records: Vec<_> = (3..10).map(|height| block(height, 0)).collect();
    let disk = Arc::new(RealDisk::new(dir.path()));
    let mut unpacked = open_as(disk, Options { segment_blocks: 5, ..options() }, false);
    unpacked.writer.bind(super::IDENTITY, 1).unwrap();
    for record in &records {
        let other = fork(6, 0, 1);
        if record.height == other.height {
            unpacked.writer.head = Some((5, other.parent));
        }
        unpacked
            .writer
            .append(if record.height == other.height { &other } else { record })
            .unwrap();
    }
    unpacked.writer.seal().unwrap();
    drop(unpacked);
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

#[test]
fn splitting_survives_a_read_error_at_every_call() {
    let store = fresh_dir();
    let disk = Arc::new(RealDisk::new(store.path()));
    let records =
        fill_across(&mut open_as(disk, Options { segment_blocks: 5, ..options() }, false));
    let calls = walk(
        &store,
        |dir| open(dir).unwrap(),
        |opened, dir| {
            if let Err(error) = pack(opened, 12) {
                assert_named(&error, dir, "splitting");
            }
        },
        |mut opened, dir, _, what| {
            assert_right(&opened.reader, &records, what);
            repair_all(&mut opened, &records, what);
            assert!(pack(&mut opened, 12).is_ok(), "{what}");
            assert_eq!(opened.reader.usage().packed_blocks, 8, "{what}");
            assert_exactly(&opened.reader, &records);
            drop(opened);
            assert_exactly(&open(dir).unwrap().reader, &records);
            assert_clean(dir);
        },
    );
    assert!(calls > 50, "{calls}");
}
