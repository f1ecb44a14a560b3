//! Splits of segments whose records cannot be copied.

use std::sync::Arc;

use super::checks::heal;
use super::support::{assert_exactly, block, fork, open_as};
use super::{open, options};
use crate::Options;
use crate::disk::RealDisk;

/// A segment of 3 to 7 in which 6 names another parent than 5: no release should have written one.
#[test]
fn record_that_does_not_follow_is_damaged_when_its_segment_is_split() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (3..10).map(|height| block(height, 0)).collect();
    let disk = Arc::new(RealDisk::new(dir.path()));
    let mut unpacked = open_as(disk, Options { span: 5, ..options() }, false);
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
    heal(&mut opened, &records, "repaired");
    assert_exactly(&opened.reader, &records);
    assert!(opened.writer.begin_split(7, 0).is_some());
}
