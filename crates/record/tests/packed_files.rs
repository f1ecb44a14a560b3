//! Packed files that no packer wrote, as the store meets them: at an opening, a verification, a download, and a
//! repair.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at its first failure")]

#[path = "../../packed/tests/support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use neve_chain::{AdmittedKeys, Checks};
use neve_record::assemble::assemble;
use neve_record::packed::Codec;
use neve_store::verify::{self, Finding, Stored, Visitor};
use neve_store::{
    Hash, Identity, Opened, Options, PackEnd, PackFailed, PackedBytes, PackedCodec, PackedDamage,
    PackedFile, PackedRange, PackedStart, Record, RecordRef, open_with,
};
use support::forge::{Forged, put_together, section, sections};
use support::{packed, recorded};

const IDENTITY: Identity = Identity { chain_id: 43112, genesis: Hash([7; 32]) };

/// Findings of a verification.
#[derive(Default)]
struct Heard(Vec<Finding>);

impl Visitor for Heard {
    fn finding(&mut self, finding: Finding) {
        self.0.push(finding);
    }

    fn record(&mut self, _: &Stored<'_>) {}

    fn codec(&self) -> Option<Arc<dyn PackedCodec>> {
        Some(Arc::new(Codec::default()))
    }

    fn progress(&mut self, _: u64) {}
}

fn verified(path: &Path) -> Vec<Finding> {
    let mut heard = Heard::default();
    verify::segment(path, &mut heard).unwrap();
    heard.0
}

fn options() -> Options {
    Options { disk_reserve_bytes: 1 << 20, segment_blocks: 16, ..Options::default() }
}

fn store(dir: &Path) -> Opened {
    open_with(dir, options(), Arc::new(Codec::default())).unwrap()
}

fn open(bytes: Vec<u8>) -> Box<dyn PackedRange> {
    Codec::default().open(PackedBytes::in_memory(bytes)).unwrap()
}

/// Writes a file into a store under way, as a download does. Returns the findings about it.
fn received(dir: &Path, file: &[u8]) -> Vec<Finding> {
    let mut opened = store(dir);
    opened.writer.bind(IDENTITY, 1).unwrap();
    let receive = || opened.writer.history().unwrap().receive_packed(7).unwrap().unwrap();
    assert!(receive().write(file).unwrap());
    // As after a restart: what came before is looked at again.
    let mut incoming = receive();
    assert!(incoming.page().is_some() && incoming.have() <= file.len() as u64);
    let mut heard = Heard::default();
    incoming.verify(&mut heard).unwrap();
    incoming.restart().unwrap();
    heard.0
}

#[test]
fn repair_copies_no_height_whose_hash_is_not_that_of_its_header() {
    let texts = &recorded("v1.15.0")[202..210];
    let good = packed(texts, 8).bytes;
    for at in 0..8 {
        let mut changed = sections(&good).map(<[u8]>::to_vec);
        changed[0][40 * at + 5] ^= 0x10;
        // All checksums are right: a reader believes the directory.
        let range = open(put_together(&good[..104], &changed.each_ref().map(Vec::as_slice)));
        for (index, height) in (range.header().first..range.header().end()).enumerate() {
            let believed = range.record(height).unwrap();
            assert_eq!(Some(believed.hash), range.hash(height));
            // The hash of a block stands in the header of the next one, too.
            let is_right = index != at && index != at + 1;
            assert_eq!(range.proven(height).is_ok(), is_right, "{index} of {at}");
        }
    }
    let range = open(good);
    for height in range.header().first..range.header().end() {
        assert_eq!(range.proven(height).unwrap().hash, range.hash(height).unwrap());
    }
}

/// zstd refuses a dictionary that begins with its magic number and has no tables behind it.
#[test]
fn dictionary_that_zstd_refuses_is_a_finding_and_no_panic() {
    let dictionary = section(&[0x37, 0xa4, 0x30, 0xec, 0, 0, 0, 0]);
    let file = Forged { dictionary, ..Forged::empty() }.write();
    assert!(Codec::default().open(PackedBytes::in_memory(file.clone())).is_err());
    let dir = tempfile::tempdir().unwrap();
    assert!(!received(dir.path(), &file).is_empty());
    let path = dir.path().join("00000000000000000007.pack");
    fs::write(&path, &file).unwrap();
    let findings = verified(&path);
    assert!(findings.iter().any(|finding| finding.detail.contains("dictionary")), "{findings:?}");
    let opened = store(dir.path());
    assert!(opened.notes.iter().any(|note| note.contains("set aside")), "{:?}", opened.notes);
    assert!(!path.exists() && opened.reader.range().is_none());
}

/// Records of a whole range and of the height behind it, which settles nothing here.
fn records() -> Vec<Record> {
    let checks = Checks { chain_id: 43112, senders: false, admitted: AdmittedKeys::default() };
    let texts = &recorded("v1.14.2/main")[208..226];
    let record = |texts: &support::Texts| {
        assemble(texts.block.as_bytes(), texts.receipts.as_bytes(), &checks).unwrap().record
    };
    texts.iter().map(record).collect()
}

/// The codec, with one byte of a section changed in the files that it makes. All their checksums are right.
struct Changed {
    codec: Codec,
    section: usize,
}

impl PackedCodec for Changed {
    fn pack(
        &self,
        identity: Identity,
        range_blocks: u32,
        records: &[RecordRef],
        proceed: &mut dyn FnMut() -> bool,
    ) -> Result<PackedFile, PackFailed> {
        let made = self.codec.pack(identity, range_blocks, records, proceed)?;
        let mut changed = sections(&made.bytes).map(<[u8]>::to_vec);
        *changed[self.section].last_mut().unwrap() ^= 1;
        let bytes = put_together(&made.bytes[..104], &changed.each_ref().map(Vec::as_slice));
        Ok(PackedFile { bytes, ..made })
    }

    fn start_bytes(&self) -> usize {
        self.codec.start_bytes()
    }

    fn start(&self, start: &[u8]) -> Result<PackedStart, PackedDamage> {
        self.codec.start(start)
    }

    fn intact_bytes(&self, file: &[u8]) -> u64 {
        self.codec.intact_bytes(file)
    }

    fn open(&self, bytes: PackedBytes) -> Result<Box<dyn PackedRange>, PackedDamage> {
        self.codec.open(bytes)
    }
}

#[test]
fn file_with_a_wrong_index_does_not_replace_the_segments() {
    let records = records();
    for (section, index) in [(3, "hash index"), (4, "log index")] {
        let dir = tempfile::tempdir().unwrap();
        let codec = Arc::new(Changed { codec: Codec::default(), section });
        let mut opened = open_with(dir.path(), options(), codec).unwrap();
        opened.writer.bind(IDENTITY, 1).unwrap();
        records.iter().for_each(|record| opened.writer.append(record).unwrap());
        opened.writer.sync().unwrap();
        let due = opened.writer.begin_pack(records[16].height, 0).unwrap();
        let ended = opened.writer.end_pack(due.run(&mut || true)).unwrap();
        let PackEnd::Unpackable(range) = ended else { panic!("packed with a wrong {index}") };
        assert_eq!((range.first, range.reason), (records[0].height, "read_back"));
        assert!(range.error.starts_with("wrong index: "), "{}", range.error);
        assert!(range.error.contains(index), "{}", range.error);
        assert_eq!(misses(&opened, &records, index), 0);
        let names = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name());
        let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        assert!(names.iter().all(|name| !name.contains(".pack")), "{names:?}");
        drop(opened);
        let mut heard = Heard::default();
        verify::directory(dir.path(), &mut heard).unwrap();
        assert!(heard.0.is_empty(), "{:?}", heard.0);
    }
}

/// A store whose first sixteen heights are packed.
fn packed_store(dir: &Path, records: &[Record]) {
    let mut opened = store(dir);
    opened.writer.bind(IDENTITY, 1).unwrap();
    records.iter().for_each(|record| opened.writer.append(record).unwrap());
    opened.writer.sync().unwrap();
    let due = opened.writer.begin_pack(records[16].height, 0).unwrap();
    let ended = opened.writer.end_pack(due.run(&mut || true)).unwrap();
    let PackEnd::Packed(_, name) = ended else { panic!("the range is packed") };
    opened.writer.remove_packed(name.run()).unwrap();
}

fn is_same(found: &RecordRef, record: &Record) -> bool {
    let parts = (0..).zip(&record.parts);
    (found.hash(), found.parent()) == (record.hash, record.parent)
        && parts.into_iter().all(|(at, part)| *found.part(at).slice.as_ref() == *part.bytes)
}

/// Reads every height. Returns how many are misses; all others must be right.
fn misses(opened: &Opened, records: &[Record], about: &str) -> usize {
    let found = records.iter().map(|record| (record, opened.reader.record(record.height)));
    let missed = found.filter(|(record, found)| {
        assert!(found.as_ref().is_none_or(|found| is_same(found, record)), "{about}");
        found.is_none()
    });
    missed.count()
}

/// Repairs as `neve` does: what is damaged comes from an upstream, here from `records`.
fn repair(opened: &mut Opened, records: &[Record]) -> bool {
    let base = records[0].height;
    let mut repair = opened.writer.repair(base).unwrap().unwrap();
    assert_eq!(repair.last_hash(), Some(records[15].hash));
    let damaged = repair.damaged();
    for record in &records[..16] {
        if damaged.contains(&record.height) {
            repair.append(record).unwrap();
        } else {
            assert!(repair.keep(record.height).unwrap());
        }
    }
    let built = repair.finish().unwrap();
    opened.writer.replace(built).unwrap()
}

/// Every field of the directory, of the first, the last and other heights; and each other section.
#[test]
fn byte_that_changes_under_an_open_store_is_scrubbed_and_repaired() {
    let records = records();
    assert!(records[0].height.is_multiple_of(16));
    let whole = tempfile::tempdir().unwrap();
    packed_store(whole.path(), &records);
    let name = format!("{:020}.pack", records[0].height);
    let length = whole.path().join(&name).metadata().unwrap().len();
    let fields = |entry: u64| [1, 17, 31, 32, 35, 37].map(|byte| 512 + 40 * entry + byte);
    let rest = [9, 110, 509].into_iter().chain((1152..length).step_by(length as usize / 15));
    for at in [0, 1, 9, 15].into_iter().flat_map(fields).chain(rest) {
        let dir = tempfile::tempdir().unwrap();
        for file in fs::read_dir(whole.path()).unwrap() {
            let path = file.unwrap().path();
            fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
        }
        let about = format!("byte {at} of {length}");
        let mut opened = store(dir.path());
        assert_eq!(misses(&opened, &records, &about), 0);
        let file = File::options().read(true).write(true).open(dir.path().join(&name)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        misses(&opened, &records, &about);
        assert!(opened.reader.scrub(dir.path(), records[0].height, &mut |_| {}).unwrap());
        assert_eq!(opened.reader.damaged().len(), 1, "{about}");
        assert!(repair(&mut opened, &records), "{about}");
        assert_eq!(misses(&opened, &records, &about), 0);
        assert!(opened.reader.damaged().is_empty() && !dir.path().join(&name).exists());
        drop(opened);
        let mut heard = Heard::default();
        verify::directory(dir.path(), &mut heard).unwrap();
        assert!(heard.0.is_empty(), "{about}: {:?}", heard.0);
        assert_eq!(misses(&store(dir.path()), &records, &about), 0);
    }
}
