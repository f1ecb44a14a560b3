//! Verification of a store whose files are replaced or removed meanwhile, as by a running neve.

use std::path::Path;
use std::sync::Arc;

use neve_store::disk::RealDisk;
use neve_store::verify::{self, Finding, Stored, Summary, Visitor};
use neve_store::{Opened, PackedCodec, Retention};

use crate::support::{self, Heard, block, open_as, small};

/// Does something to the store when it gets the record of a height.
struct Amid<'a> {
    heard: Heard,
    at: u64,
    work: &'a mut dyn FnMut(),
}

impl Visitor for Amid<'_> {
    fn finding(&mut self, finding: Finding) {
        self.heard.finding(finding);
    }

    fn record(&mut self, record: &Stored<'_>) {
        self.heard.record(record);
        if record.height == self.at {
            (self.work)();
        }
    }

    fn codec(&self) -> Option<Arc<dyn PackedCodec>> {
        self.heard.codec()
    }

    fn progress(&mut self, _: u64) {}
}

/// A store of the heights 0 to 31 in segments of two heights each.
fn store(dir: &Path) -> Opened {
    let mut opened = open_as(Arc::new(RealDisk::new(dir)), small(), true);
    opened.writer.bind(support::IDENTITY, 1).unwrap();
    for height in 0..32 {
        opened.writer.append(&block(height, 0)).unwrap();
        if height % 2 == 1 {
            opened.writer.seal().unwrap();
        }
    }
    opened.writer.sync().unwrap();
    opened
}

fn verify_amid(dir: &Path, at: u64, work: &mut dyn FnMut()) -> (Summary, Heard) {
    let mut amid = Amid { heard: Heard::default(), at, work };
    let summary = verify::directory(dir, &mut amid).unwrap();
    (summary, amid.heard)
}

/// Heights that were verified.
fn heights(heard: &Heard) -> Vec<u64> {
    heard.records.iter().map(|(height, _)| *height).collect()
}

#[test]
fn heights_that_are_packed_meanwhile_are_verified_in_the_packed_files() {
    for at in 0..32 {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = store(dir.path());
        let mut pack = || assert_eq!(support::pack(&mut opened, 31).unwrap(), 32);
        let (summary, heard) = verify_amid(dir.path(), at, &mut pack);
        assert_eq!(heard.findings, [], "at {at}");
        assert_eq!(heights(&heard), (0..32).collect::<Vec<_>>(), "at {at}");
        assert_eq!((summary.records, summary.range), (32, Some((0, 31))), "at {at}");
    }
}

#[test]
fn damaged_packed_file_that_came_meanwhile_is_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = store(dir.path());
    let mut work = || {
        assert_eq!(support::pack(&mut opened, 31).unwrap(), 32);
        let path = dir.path().join(format!("{:020}.pack", 16));
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
    };
    let (_, heard) = verify_amid(dir.path(), 5, &mut work);
    assert!(heard.findings.iter().any(|finding| finding.file.contains("16.pack")));
}

#[test]
fn heights_that_stay_are_counted_when_others_are_evicted_meanwhile() {
    for (at, keep) in [(0, 8), (9, 8), (21, 8), (9, 26)] {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = store(dir.path());
        let retention = Retention { blocks: Some(keep), ..Retention::default() };
        let mut evict = || assert!(opened.writer.evict(&retention, 0).unwrap().segments > 0);
        let (summary, heard) = verify_amid(dir.path(), at, &mut evict);
        assert_eq!(heard.findings, [], "at {at}");
        // Files that were read before count while none is missed.
        let first = if at < 32 - keep { 32 - keep } else { 0 };
        assert_eq!(summary.range, Some((first, 31)), "at {at}");
        assert_eq!(summary.records, 32 - first, "at {at}");
    }
}
