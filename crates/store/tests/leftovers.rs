//! Two files with the same heights, as a crash or a full disk leaves them, of which one is damaged or cannot be read: the
//! longest run that ends at the newest head is served, and nothing is removed whose heights are not intact elsewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use neve_store::disk::RealDisk;
use neve_store::{Identity, Opened, Options, Record};

use crate::support::toy::Toy;
use crate::support::{
    self, Heard, IDENTITY, assert_clean, assert_exactly, block, files, open_as, rewrite, small,
    verify,
};

fn options() -> Options {
    Options { segment_blocks: 5, ..small() }
}

fn open(dir: &Path) -> Opened {
    open_as(Arc::new(RealDisk::new(dir)), options(), true)
}

fn segment(dir: &Path, base: u64) -> PathBuf {
    dir.join(format!("{base:020}.seg"))
}

fn packed(dir: &Path, base: u64) -> PathBuf {
    dir.join(format!("{base:020}.pack"))
}

fn aside(dir: &Path) -> Vec<String> {
    files(dir, ".quarantined-0")
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Packs the heights 2 to 21 but for the newest, each of which was a segment. Returns the segments of 8 to 11, too.
fn pack(dir: &Path) -> (Vec<Record>, Vec<(u64, Vec<u8>)>) {
    let records: Vec<_> = (2..22).map(|height| block(height, 0)).collect();
    let mut store = open(dir);
    store.writer.bind(IDENTITY, 1).unwrap();
    for record in &records {
        store.writer.append(record).unwrap();
        store.writer.seal().unwrap();
    }
    let sources = (8..12).map(|base| (base, fs::read(segment(dir, base)).unwrap())).collect();
    assert_eq!(support::pack(&mut store, 21).unwrap(), 16);
    (records, sources)
}

/// Puts segments back, as a loss of power does whose removal was not durable.
fn put_back(dir: &Path, sources: &[(u64, Vec<u8>)]) {
    sources.iter().for_each(|(base, bytes)| fs::write(segment(dir, *base), bytes).unwrap());
}

#[test]
fn segment_of_a_packed_file_with_damage_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (records, sources) = pack(dir.path());
    put_back(dir.path(), &sources[1..]);
    // The second record, behind the length of the first one.
    let bytes = fs::read(packed(dir.path(), 8)).unwrap();
    let first = u32::from_le_bytes(bytes[96..100].try_into().unwrap()) as usize;
    flip(&packed(dir.path(), 8), 96 + 8 + first + 8 + 100);
    let store = open(dir.path());
    assert_eq!(store.reader.range(), Some(2..=21));
    assert!(store.reader.record(9).is_none() && store.reader.record(10).is_some());
    assert_eq!(aside(dir.path()), ["00000000000000000009.seg.quarantined-0"], "{:?}", store.notes);
    let kept = fs::read(dir.path().join(&aside(dir.path())[0])).unwrap();
    assert!(kept == sources[1].1 && !segment(dir.path(), 10).exists());
    assert_exactly_but(&store, &records, 9);
}

fn assert_exactly_but(store: &Opened, records: &[Record], damaged: u64) {
    let others = records.iter().filter(|record| record.height != damaged);
    others.for_each(|record| support::assert_holds(&store.reader, record));
}

/// A repair had written the segments of a packed file, which is still there, and one of them is damaged since.
#[test]
fn packed_file_of_segments_with_damage_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (records, sources) = pack(dir.path());
    put_back(dir.path(), &sources);
    flip(&segment(dir.path(), 10), 4096 + 5 * 64 + 100);
    let store = open(dir.path());
    assert_eq!(store.reader.range(), Some(2..=21));
    assert_eq!(aside(dir.path()), ["00000000000000000008.pack.quarantined-0"]);
    assert_exactly_but(&store, &records, 10);
}

/// In its place a file whose bytes at 0 are an EIO, for any user.
fn fail(path: &Path) {
    let _ = fs::remove_file(path);
    symlink("/proc/self/mem", path).unwrap();
    assert_eq!(fs::read(path).unwrap_err().raw_os_error(), Some(5));
}

/// Opens the store. It serves all records, and quarantines the segment of `base`.
fn assert_serves_all_but_sets_aside(dir: &Path, records: &[Record], base: u64) {
    let store = open(dir);
    assert_exactly(&store.reader, records);
    assert_eq!(aside(dir), [format!("{base:020}.seg.quarantined-0")]);
    drop(store);
    assert_clean(dir);
}

#[test]
fn unreadable_header_beside_a_packed_file_is_set_aside_and_stops_no_start() {
    for base in 8..12 {
        let dir = tempfile::tempdir().unwrap();
        let (records, sources) = pack(dir.path());
        put_back(dir.path(), &sources);
        fail(&segment(dir.path(), base));
        assert_serves_all_but_sets_aside(dir.path(), &records, base);
    }
}

/// The packed file had been written anew as one segment, and before it segments were left over.
#[test]
fn damaged_seal_of_a_segment_whose_heights_are_elsewhere_hides_no_history() {
    let cases = [false, true].map(|rewrites| (8 + u64::from(rewrites)..12, rewrites));
    let cases =
        cases.into_iter().flat_map(|(bases, rewrites)| bases.map(move |base| (base, rewrites)));
    for (base, rewrites) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (records, sources) = pack(dir.path());
        let left_over = fs::read(packed(dir.path(), 8)).unwrap();
        if rewrites {
            rewrite(&mut open(dir.path()), 8);
            fs::write(packed(dir.path(), 8), left_over).unwrap();
        }
        put_back(dir.path(), &sources[usize::from(rewrites)..]);
        flip(&segment(dir.path(), base), 600);
        assert_serves_all_but_sets_aside(dir.path(), &records, base);
    }
}

/// A segment across ranges was split on a full disk, and one of the parts was packed.
#[test]
fn packed_file_inside_a_longer_segment_hides_no_history() {
    for (longer, first, is_damaged) in [(3, 4, false), (8, 8, false), (3, 4, true)] {
        let dir = tempfile::tempdir().unwrap();
        let disk = || Arc::new(RealDisk::new(dir.path()));
        let records = support::fill_across(&mut open_as(disk(), options(), false));
        let before = fs::read(segment(dir.path(), longer)).unwrap();
        assert_eq!(support::pack(&mut open(dir.path()), 21).unwrap(), 16);
        fs::write(segment(dir.path(), longer), before).unwrap();
        if longer == first {
            // The other part was not packed yet.
            fs::remove_file(packed(dir.path(), 12)).unwrap();
            let later = tempfile::tempdir().unwrap();
            let mut unpacked = open(later.path());
            unpacked.writer.bind(IDENTITY, 1).unwrap();
            for record in &records[11..14] {
                unpacked.writer.append(record).unwrap();
            }
            unpacked.writer.seal().unwrap();
            drop(unpacked);
            fs::copy(segment(later.path(), 13), segment(dir.path(), 13)).unwrap();
        }
        if is_damaged {
            let slot = 4096 + 2 * 64; // of height 5
            let bytes = fs::read(segment(dir.path(), longer)).unwrap();
            let offset = u16::from_le_bytes([bytes[slot], bytes[slot + 1]]);
            flip(&segment(dir.path(), longer), usize::from(offset) + 100);
        }
        let store = open(dir.path());
        assert_exactly_but(&store, &records, if is_damaged { 5 } else { 0 });
        assert_eq!(store.reader.range(), Some(2..=21));
        assert!(!packed(dir.path(), first).exists() && segment(dir.path(), longer).exists());
        let kept = format!("{first:020}.pack.quarantined-0");
        assert_eq!(aside(dir.path()), if is_damaged { vec![kept] } else { Vec::new() });
        drop(store);
        if !is_damaged {
            assert_clean(dir.path());
        }
    }
}

/// An opening refuses the directory for it.
#[test]
fn segment_of_another_chain_whose_heights_are_packed_is_named() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    pack(dir.path());
    let mut store = open(other.path());
    store.writer.bind(Identity { chain_id: 7, ..IDENTITY }, 1).unwrap();
    store.writer.append(&block(9, 0)).unwrap();
    store.writer.seal().unwrap();
    drop(store);
    fs::copy(segment(other.path(), 9), segment(dir.path(), 9)).unwrap();
    let found = verify(dir.path()).findings;
    let found: Vec<_> = found.iter().map(|found| (found.file.as_str(), found.kind)).collect();
    assert_eq!(found, [("00000000000000000009.seg", "identity")]);
    let error = neve_store::open_with(dir.path(), options(), Arc::new(Toy)).err();
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("00000000000000000009.seg holds chain 7"), "{error}");
}

#[test]
fn verified_range_ends_with_the_highest_height_whatever_its_file_is_called() {
    let dir = tempfile::tempdir().unwrap();
    pack(dir.path());
    fs::rename(segment(dir.path(), 2), segment(dir.path(), 90)).unwrap();
    let summary = neve_store::verify::directory(dir.path(), &mut Heard::default()).unwrap();
    assert_eq!(summary.range.map(|(_, last)| last), Some(21));
}
