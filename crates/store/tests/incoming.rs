//! Segments that arrive as files: in chunks, over restarts, whole or not at all.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use neve_store::{
    Opened, Options, PartialSegment, SLOT_COUNT_MAX, SealedFile, SealedPage, arriving,
};

use crate::support::{
    Heard, Recorder, assert_clean, assert_exactly, block, every, files, open, small,
};

/// The first segment of a store of 40 heights: its page and the bytes that hold anything.
fn file() -> (SealedPage, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), small());
    (10..50).for_each(|height| opened.writer.append(&block(height, 0)).unwrap());
    let (base, records) = opened.reader.sealed()[0];
    let file = SealedFile::open(dir.path(), base).unwrap().unwrap();
    assert_eq!((file.page.base, file.page.records), (base, records));
    let bytes = file.read(0, file.page.bytes as usize).unwrap();
    (file.page, bytes)
}

/// A store that begins where the segment ends.
fn begun(dir: &Path, page: &SealedPage) -> Opened {
    let mut opened = open(dir, small());
    if opened.reader.range().is_none() {
        opened.writer.append(&block(page.end_height(), 0)).unwrap();
    }
    opened
}

fn receive(opened: &Opened, page: &SealedPage) -> PartialSegment {
    opened.writer.history().unwrap().receive(page.base).unwrap()
}

/// Changes a byte of the file that is on its way.
fn damage(dir: &Path, page: &SealedPage, at: u64) {
    use std::os::unix::fs::FileExt;
    let path = dir.join(format!("{:020}.seg.part", page.base));
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

#[test]
fn bytes_from_before_a_restart_are_kept_as_far_as_they_are_whole() {
    let (page, bytes) = file();
    let mut kept = 0;
    let cuts = (0..bytes.len()).step_by(bytes.len() / 23).step_by(every());
    let within_the_index = SealedPage::BYTES + 100; // one slot of 64 bytes, and a part of the next one
    for cut in cuts.chain([SealedPage::BYTES, within_the_index, bytes.len()]) {
        for damaged in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let opened = begun(dir.path(), &page);
            let mut incoming = receive(&opened, &page);
            assert!(bytes[..cut].chunks(1000).all(|piece| incoming.write(piece).unwrap()));
            assert_eq!((incoming.have(), incoming.is_whole()), (cut as u64, cut == bytes.len()));
            drop((incoming, opened));
            let damaged = damaged && cut > SealedPage::BYTES;
            if damaged {
                damage(dir.path(), &page, cut as u64 - 1);
            }
            let mut opened = begun(dir.path(), &page); // which leaves it alone
            let mut incoming = receive(&opened, &page);
            let have = incoming.have() as usize;
            assert!(have <= cut, "{have} of {cut}");
            kept += usize::from(have > SealedPage::BYTES);
            assert_eq!(arriving(dir.path()).unwrap().len(), usize::from(have > 0));
            assert!(bytes[have..].chunks(777).all(|piece| incoming.write(piece).unwrap()));
            let mut heard = Heard::default();
            incoming.verify(&mut heard).unwrap();
            assert_eq!(heard.findings, [], "cut at {cut}");
            let built = incoming.finish().unwrap();
            assert_eq!(opened.writer.prepend(built).unwrap(), u64::from(page.records));
            let all: Vec<_> = (page.base..=page.end_height()).map(|at| block(at, 0)).collect();
            assert_exactly(&opened.reader, &all);
            drop(opened);
            assert_clean(dir.path());
            assert_exactly(&open(dir.path(), small()).reader, &all);
        }
    }
    assert!(kept * every() > 20, "{kept}");
}

/// A transfer was given up, and a thread of it still writes, or looks at what came.
#[test]
fn a_second_transfer_of_a_segment_waits_for_the_first_one() {
    let (page, bytes) = file();
    let dir = tempfile::tempdir().unwrap();
    let opened = begun(dir.path(), &page);
    for is_whole in [false, true] {
        let mut first = receive(&opened, &page);
        first.restart().unwrap();
        assert!(first.write(&bytes[..bytes.len() - 1]).unwrap());
        let (begun, begins) = mpsc::channel();
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                begun.send(()).unwrap();
                receive(&opened, &page).have()
            });
            begins.recv().unwrap();
            thread::park_timeout(Duration::from_millis(50));
            assert!(!second.is_finished(), "both have the file");
            assert!(first.write(&bytes[bytes.len() - 1..]).unwrap());
            if is_whole {
                drop(first.finish().unwrap()); // it is not published, so its file goes
            } else {
                drop(first);
            }
            assert_eq!(second.join().unwrap() > 0, !is_whole);
        });
    }
}

#[test]
fn bytes_of_another_segment_are_refused() {
    let (page, bytes) = file();
    let dir = tempfile::tempdir().unwrap();
    let opened = begun(dir.path(), &page);
    let mut longer = bytes.clone();
    longer.push(0);
    let (mut headless, mut other) = (bytes.clone(), bytes.clone());
    headless[600] ^= 1;
    other[12] ^= 1;
    for wrong in [longer, headless, other, vec![0; 5000]] {
        let mut incoming = receive(&opened, &page);
        incoming.restart().unwrap();
        assert!(!wrong.chunks(1000).all(|piece| incoming.write(piece).unwrap()));
    }
    let mut another = opened.writer.history().unwrap().receive(page.base + 1).unwrap();
    assert!(!bytes.chunks(1000).all(|piece| another.write(piece).unwrap()), "it begins elsewhere");
    assert_clean(dir.path());
}

/// A source says how long its file is, and that is allocated before anything else of the file is here.
#[test]
fn segment_over_the_bound_of_bytes_is_refused_before_it_is_allocated() {
    let (page, bytes) = file();
    let of_capacity = |capacity: u64| {
        let mut page = bytes[..SealedPage::BYTES].to_vec();
        page[72..80].copy_from_slice(&capacity.to_le_bytes());
        let crc = crc32fast::hash(&page[..80]);
        page[80..84].copy_from_slice(&crc.to_le_bytes());
        page
    };
    let dir = tempfile::tempdir().unwrap();
    let disk = Recorder::new(dir.path());
    let opened = disk.open(Options { disk_reserve_bytes: 1, ..small() });
    *disk.free.lock().unwrap() = Some(0); // what would be allocated is refused, and takes no bytes
    let max = 4096 + 64 * u64::from(SLOT_COUNT_MAX) + (256 << 20);
    let taken = receive(&opened, &page).write(&of_capacity(max));
    assert!(taken.is_err_and(|error| error.is_disk_full()));
    for capacity in [max + 1, 1 << 40] {
        assert!(!receive(&opened, &page).write(&of_capacity(capacity)).unwrap(), "{capacity}");
    }
    // An earlier release allocated it, and took more than the index.
    let part = dir.path().join(format!("{:020}.seg.part", page.base));
    std::fs::write(&part, [&of_capacity(max + 1), &bytes[SealedPage::BYTES..]].concat()).unwrap();
    assert_eq!(receive(&opened, &page).have(), 0);
    assert_eq!(arriving(dir.path()).unwrap(), [0; 0]);
}

/// A source may begin as many files as it likes, and end none.
#[test]
fn download_that_is_not_wanted_is_removed_unless_a_thread_has_it() {
    let (page, bytes) = file();
    let dir = tempfile::tempdir().unwrap();
    let opened = begun(dir.path(), &page);
    let wanted = format!("{:020}.seg.part", 14);
    let others = ["00000000000000000020.pack.part", "00000000000000000030.seg.part"];
    for name in [&*wanted, others[0], others[1], "x.seg.part"] {
        std::fs::write(dir.path().join(name), "begun").unwrap();
    }
    let mut under_way = receive(&opened, &page);
    assert!(under_way.write(&bytes[..5000]).unwrap());
    let forget = || opened.writer.history().unwrap().forget_arriving(|base| base == 14).unwrap();
    forget();
    assert_eq!(arriving(dir.path()).unwrap(), [page.base, 14]);
    drop(under_way);
    forget();
    assert_eq!(files(dir.path(), ".part"), [&*wanted, "x.seg.part"]);
}

/// Every byte that is sent is looked at.
#[test]
fn a_flipped_byte_is_found() {
    let (page, bytes) = file();
    let dir = tempfile::tempdir().unwrap();
    let opened = begun(dir.path(), &page);
    for at in (SealedPage::BYTES..bytes.len()).step_by(97 * every()) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        let mut incoming = receive(&opened, &page);
        incoming.restart().unwrap();
        assert!(incoming.write(&flipped).unwrap());
        let mut heard = Heard::default();
        incoming.verify(&mut heard).unwrap();
        assert!(!heard.findings.is_empty(), "byte {at} is not looked at");
    }
}
