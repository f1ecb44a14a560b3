//! Packed files that arrive: in chunks, over restarts, whole or not at all.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use neve_store::disk::RealDisk;
use neve_store::{
    Opened, PACKED_SENT_BYTES_MAX, PackedCodec, PartialSegment, SealedFile, SealedPage, arriving,
};

use crate::support::toy::{HIDES_TRANSACTIONS, Toy};
use crate::support::{
    Heard, IDENTITY, assert_clean, assert_exactly, block, every, open_as, pack, small,
};

fn open(dir: &Path) -> Opened {
    fs::create_dir_all(dir).unwrap();
    let mut opened = open_as(Arc::new(RealDisk::new(dir)), small(), true);
    opened.writer.bind(IDENTITY, 1).unwrap();
    opened
}

/// The packed file of heights 12 to 15: its page and its bytes.
fn file() -> (SealedPage, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    (10..30).for_each(|height| opened.writer.append(&block(height, 0)).unwrap());
    assert_eq!(pack(&mut opened, 29).unwrap(), 16);
    assert_eq!(opened.reader.packed()[0], (12, 4));
    let file = SealedFile::open_packed(dir.path(), 12, &Toy).unwrap().unwrap();
    let bytes = file.read(0, file.page.bytes as usize).unwrap();
    assert_eq!(bytes, fs::read(dir.path().join(format!("{:020}.pack", 12))).unwrap());
    (file.page, bytes)
}

/// A store that begins where the file ends.
fn begun(dir: &Path) -> Opened {
    let mut opened = open(dir);
    if opened.reader.range().is_none() {
        opened.writer.append(&block(16, 0)).unwrap();
    }
    opened
}

fn receive(opened: &Opened, base: u64) -> PartialSegment {
    opened.writer.history().unwrap().receive_packed(base).unwrap().unwrap()
}

#[test]
fn bytes_that_came_before_a_restart_are_kept_as_far_as_they_are_whole() {
    let (page, bytes) = file();
    let mut kept = 0;
    let cuts = (0..bytes.len()).step_by(bytes.len() / 23).step_by(every());
    for cut in cuts.chain([Toy.start_bytes(), bytes.len()]) {
        let dir = tempfile::tempdir().unwrap();
        let opened = begun(dir.path());
        let mut incoming = receive(&opened, page.base);
        assert!(bytes[..cut].chunks(100).all(|piece| incoming.write(piece).unwrap()));
        assert_eq!((incoming.have(), incoming.is_whole()), (cut as u64, cut == bytes.len()));
        drop((incoming, opened));
        let mut opened = begun(dir.path()); // which leaves it alone
        let mut incoming = receive(&opened, page.base);
        let have = incoming.have() as usize;
        assert!(have <= cut, "{have} of {cut}");
        kept += usize::from(have > Toy.start_bytes());
        assert_eq!(arriving(dir.path()).unwrap().len(), usize::from(have > 0));
        assert!(bytes[have..].chunks(77).all(|piece| incoming.write(piece).unwrap()));
        let mut heard = Heard::default();
        let summary = incoming.verify(&mut heard).unwrap();
        assert_eq!((heard.findings, summary.records), (vec![], 4), "cut at {cut}");
        let built = incoming.finish().unwrap();
        assert_eq!(opened.writer.prepend(built).unwrap(), 4);
        let all: Vec<_> = (12..=16).map(|at| block(at, 0)).collect();
        assert_exactly(&opened.reader, &all);
        assert_eq!(opened.reader.packed(), [(12, 4)]);
        drop(opened);
        assert_clean(dir.path());
        assert_exactly(&open(dir.path()).reader, &all);
    }
    assert!(kept * every() > 10, "{kept}");
}

/// The header is made anew, with a checksum that is right.
fn with_length(bytes: &[u8], length: u64) -> Vec<u8> {
    let (mut changed, at) = (bytes.to_vec(), Toy.start_bytes() - 4);
    changed[at - 8..at].copy_from_slice(&length.to_le_bytes());
    let crc = crc32fast::hash(&changed[..at]).to_le_bytes();
    changed[at..at + 4].copy_from_slice(&crc);
    changed
}

#[test]
fn bytes_of_no_such_file_are_refused() {
    let (page, bytes) = file();
    let dir = tempfile::tempdir().unwrap();
    let opened = begun(dir.path());
    let mut longer = bytes.clone();
    longer.push(0);
    let mut headless = bytes.clone();
    headless[20] ^= 1;
    let huge = with_length(&bytes, PACKED_SENT_BYTES_MAX + 1);
    for wrong in [longer, headless, huge, vec![0; 5000]] {
        let mut incoming = receive(&opened, page.base);
        incoming.restart().unwrap();
        assert!(!wrong.chunks(100).all(|piece| incoming.write(piece).unwrap()));
    }
    let mut largest = receive(&opened, page.base);
    largest.restart().unwrap();
    assert!(largest.write(&with_length(&bytes, PACKED_SENT_BYTES_MAX)).unwrap());
    assert!(!largest.is_whole());
    largest.restart().unwrap();
    let mut another = receive(&opened, page.base + 4);
    assert!(!bytes.chunks(100).all(|piece| another.write(piece).unwrap()), "it begins elsewhere");
    assert_clean(dir.path());
}

#[test]
fn flipped_byte_is_found_and_cannot_be_published() {
    let (page, bytes) = file();
    let dir = tempfile::tempdir().unwrap();
    let opened = begun(dir.path());
    for at in (Toy.start_bytes()..bytes.len()).step_by(41 * every()) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        let mut incoming = receive(&opened, page.base);
        incoming.restart().unwrap();
        assert!(incoming.write(&flipped).unwrap());
        let mut heard = Heard::default();
        incoming.verify(&mut heard).unwrap();
        assert!(!heard.findings.is_empty(), "byte {at} is not looked at");
    }
}

#[test]
fn file_whose_index_hides_transactions_is_found() {
    let (page, bytes) = file();
    let dir = tempfile::tempdir().unwrap();
    let opened = begun(dir.path());
    let mut incoming = receive(&opened, page.base);
    assert!(incoming.write(&bytes).unwrap());
    for hides in [true, false] {
        HIDES_TRANSACTIONS.set(hides);
        let mut heard = Heard::default();
        incoming.verify(&mut heard).unwrap();
        assert_eq!(heard.findings.iter().any(|found| found.kind == "index"), hides);
    }
}

#[test]
fn file_that_does_not_join_is_not_published() {
    let (page, bytes) = file();
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path());
    opened.writer.append(&block(16, 1)).unwrap(); // of another branch
    let mut incoming = receive(&opened, page.base);
    assert!(incoming.write(&bytes).unwrap());
    let built = incoming.finish().unwrap();
    assert!(opened.writer.prepend(built).is_err());
    assert_eq!((opened.reader.range(), opened.reader.packed()), (Some(16..=16), vec![]));
    assert_eq!(arriving(dir.path()).unwrap(), [0; 0]);
}
