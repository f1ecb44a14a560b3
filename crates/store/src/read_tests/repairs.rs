//! Repairs during which the disk does not deliver an intact record.

use std::path::Path;

use super::checks::{assert_all, at_each_call, copy, failing};
use super::support::{assert_clean, block, every};
use super::{PACKED, TIMES, open, records, store};

/// Repairs the segment that begins at `base`, with calls failing that read its second record. Returns false if this
/// was not kept, and the number of calls.
fn repair_past(dir: &Path, base: u64, first: usize, times: usize) -> (bool, usize) {
    let what = format!("segment {base}, call {first}, {times} times");
    let mut opened = open(dir).unwrap();
    let mut repair = opened.writer.repair(base).unwrap().unwrap();
    assert!(repair.keep(base).unwrap());
    let (kept, calls) = failing(first, times, || repair.keep(base + 1).unwrap());
    if !kept {
        let appended = repair.append(&block(base + 1, 0));
        appended.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    (base + 2..base + 4).for_each(|height| assert!(repair.keep(height).unwrap()));
    assert!(opened.writer.replace(repair.finish().unwrap()).unwrap(), "{what}");
    assert_eq!(opened.reader.damaged(), [], "{what}");
    assert_all(&opened, records());
    drop(opened);
    assert_clean(dir);
    (kept, calls)
}

/// The caller gives the record in place of one that cannot be kept.
#[test]
fn record_that_the_disk_does_not_deliver_to_a_repair_leaves_its_place() {
    let store = store(true);
    for base in [PACKED - 4, PACKED + 4] {
        let mut refused = 0;
        at_each_call(|first| {
            let repaired = TIMES.map(|times| {
                let dir = copy(store.path());
                repair_past(dir.path(), base, first, times)
            });
            refused += repaired.iter().filter(|(kept, _)| !kept).count();
            repaired[TIMES.len() - 1].1
        });
        assert!(refused > 0 || every() > 1, "{refused}");
    }
}
