//! Repairs during which the disk does not deliver an intact record.

use super::checks::{assert_all, copy, failing};
use super::support::{assert_clean, block, every};
use super::{PACKED, TIMES, open, records, store};

/// The caller gives the record in place of one that cannot be kept.
#[test]
fn record_that_the_disk_does_not_deliver_to_a_repair_leaves_its_place() {
    let store = store(true);
    for base in [PACKED - 4, PACKED + 4] {
        let (mut first, mut refused) = (0, 0);
        let mut ended = false;
        while !ended {
            for times in TIMES {
                let what = format!("segment {base}, call {first}, {times} times");
                let dir = copy(store.path());
                let mut opened = open(dir.path()).unwrap();
                let mut repair = opened.writer.repair(base).unwrap().unwrap();
                assert!(repair.keep(base).unwrap());
                let (kept, calls) = failing(first, times, || repair.keep(base + 1).unwrap());
                if !kept {
                    let appended = repair.append(&block(base + 1, 0));
                    appended.unwrap_or_else(|error| panic!("{what}: {error}"));
                    refused += 1;
                }
                (base + 2..base + 4).for_each(|height| assert!(repair.keep(height).unwrap()));
                assert!(opened.writer.replace(repair.finish().unwrap()).unwrap(), "{what}");
                assert_eq!(opened.reader.damaged(), [], "{what}");
                assert_all(&opened, records());
                drop(opened);
                assert_clean(dir.path());
                ended = first >= calls;
            }
            first += every();
        }
        assert!(refused > 0 || every() > 1, "{refused}");
    }
}
