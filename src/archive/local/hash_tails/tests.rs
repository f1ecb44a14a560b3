use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use neve_archive::Digest;
use neve_record::packed::Codec;

use super::*;
use crate::archive::local::relabeled::Relabeled;
use crate::archive::local::{OpenedFile, packed_files};
use crate::archive::write::tests::fault_store::{Fault, FaultStore};
use crate::archive::write::tests::packed_dir::PackedDir;
use crate::archive::write::tests::support::{archive, pushed, run};

const RANGE: u32 = 32;
const PAGE: usize = 4096;

/// Numbers of `width` bits, as docs/FORMAT.md packs them.
fn packed_bits(numbers: impl Iterator<Item = u64>, width: u32) -> Vec<u8> {
    let bit = |number: u64, at: u32| number >> at & 1 == 1;
    let bits: Vec<bool> =
        numbers.flat_map(|number| (0..width).map(move |at| bit(number, at))).collect();
    let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    let mut bytes: Vec<u8> = bits.chunks(8).map(byte).collect();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn bits(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// A table of these heights as docs/FORMAT.md has it: each hash with its height and its ordinal.
fn table_file(first: u64, last: u64, hashes: &[([u8; 32], u64, u64)]) -> Vec<u8> {
    let number = |hash: &[u8; 32]| u64::from_le_bytes(std::array::from_fn(|byte| hash[byte])) >> 13;
    let mut entries: Vec<_> =
        hashes.iter().map(|(hash, height, at)| (number(hash), height - first, *at)).collect();
    entries.sort_unstable();
    let bucket_bits = (entries.len() / 16).max(2).ilog2();
    let ordinal_bits = bits(hashes.iter().map(|hash| hash.2).max().unwrap_or(0));
    let remainder_bits = 51 - bucket_bits;
    let mut table = Vec::new();
    for bucket in 0..=1_u64 << bucket_bits {
        let start = entries.partition_point(|(number, ..)| number >> remainder_bits < bucket);
        table.extend((start as u32).to_le_bytes());
    }
    table.extend([0; 4]);
    let remainders = entries.iter().map(|(number, ..)| number & ((1 << remainder_bits) - 1));
    table.extend(packed_bits(remainders, remainder_bits));
    let locators = entries.iter().map(|(_, index, at)| index << ordinal_bits | at);
    table.extend(packed_bits(locators, bits(last - first) + ordinal_bits));
    let mut header = b"neveidx\0\x02\0\0\0\x01\0\0\0".to_vec();
    for field in [first, last, 43_112, table.len() as u64] {
        header.extend(field.to_le_bytes());
    }
    header.extend([0; 32]); // hash of the last block
    for field in [crc32fast::hash(&table), entries.len() as u32, ordinal_bits] {
        header.extend(field.to_le_bytes());
    }
    header.extend(crc32fast::hash(&header).to_le_bytes());
    header.resize(PAGE, 0);
    [header, table].concat()
}

/// Packed files, and tables beside them.
struct Tabled {
    packed: PackedDir,
    files: Vec<PackedOnDisk>,
    /// All hashes, ascending by height.
    hashes: Vec<([u8; 32], u64, u64)>,
}

impl Tabled {
    fn new(ranges: usize) -> Self {
        let packed = PackedDir::of_ranges(ranges, RANGE);
        let files = packed_files(packed.path()).expect("they can be read").files;
        let mut hashes = Vec::new();
        for file in &files {
            let opened = open(file);
            for height in file.heights().0..file.heights().1 {
                let record = opened.record(height).expect("it can be unpacked");
                hashes.push((record.hash.0, height, 0));
                hashes
                    .extend((1..).zip(&record.transactions).map(|(at, hash)| (hash.0, height, at)));
            }
        }
        assert!(hashes.len() > 2 * ranges * RANGE as usize, "it has transactions");
        Self { packed, files, hashes }
    }

    /// Hashes of some heights.
    fn of(&self, first: u64, last: u64) -> Vec<([u8; 32], u64, u64)> {
        let heights = first..=last;
        self.hashes.iter().copied().filter(|hash| heights.contains(&hash.1)).collect()
    }

    fn write(&self, first: u64, last: u64, hashes: &[([u8; 32], u64, u64)]) {
        let path = self.packed.path().join(format!("{first:020}-{last:020}.idx"));
        fs::write(path, table_file(first, last, hashes)).expect("it can be written");
    }

    /// Number of the hashes that tables have of each file.
    fn found(&self) -> Vec<usize> {
        hash_tails(self.packed.path(), &self.files).iter().map(Vec::len).collect()
    }

    /// Number of the hashes of each file.
    fn counts(&self) -> Vec<usize> {
        let count = |file: &PackedOnDisk| {
            let (first, end) = file.heights();
            self.of(first, end - 1).len()
        };
        self.files.iter().map(count).collect()
    }

    /// Heights that are unpacked for the keys of all files, which must be the right ones.
    fn unpacked(&self) -> usize {
        let counter = Arc::new(AtomicUsize::new(0));
        let tabled = hash_tails(self.packed.path(), &self.files);
        for (file, tabled) in self.files.iter().zip(&tabled) {
            let unpacked = Arc::clone(&counter);
            let counting =
                open(file).changed(|range| Box::new(Relabeled { range, other: None, unpacked }));
            assert_eq!(sorted(counting.keys_by(tabled)), sorted(open(file).keys()));
        }
        counter.load(Ordering::SeqCst)
    }
}

fn open(file: &PackedOnDisk) -> OpenedFile {
    let bytes = file.read().expect("it is there");
    OpenedFile::of(&Codec::default(), bytes).expect("it is whole")
}

fn sorted(keys: Result<Vec<Key>, String>) -> Vec<Key> {
    let mut keys = keys.expect("they can be read");
    keys.sort_by_key(|key| (key.at, key.prefix));
    keys
}

#[test]
fn nothing_is_unpacked_for_hashes_that_a_table_has() {
    let tabled = Tabled::new(9);
    assert_eq!(tabled.unpacked(), 9 * RANGE as usize, "without a table");
    // A merge that was interrupted leaves smaller tables beside the larger one.
    for (first, last) in [(0, 8 * 32 - 1), (0, 31), (32, 63)] {
        tabled.write(first, last, &tabled.of(first, last));
    }
    assert_eq!(tabled.unpacked(), RANGE as usize, "the last range has none");
}

#[test]
fn table_that_ends_inside_a_file_is_for_the_others() {
    let tabled = Tabled::new(3);
    tabled.write(16, 80, &tabled.of(16, 80));
    let counts = tabled.counts();
    assert_eq!(tabled.found(), [0, counts[1], 0]);
    tabled.write(0, 95, &tabled.of(0, 95));
    assert_eq!(tabled.found(), counts);
}

#[test]
fn table_of_many_other_heights_is_passed_over() {
    let tabled = Tabled::new(2);
    let most = 2 * 32 * HEIGHTS_READ_MAX;
    tabled.write(0, most, &tabled.of(0, 63));
    assert_eq!(tabled.found(), [0, 0]);
    tabled.write(0, most - 1, &tabled.of(0, 63));
    assert_eq!(tabled.found(), tabled.counts());
}

#[test]
fn table_with_a_changed_byte_gives_no_hash() {
    let tabled = Tabled::new(1);
    let bytes = table_file(0, 31, &tabled.hashes);
    let path = tabled.packed.path().join(format!("{:020}-{:020}.idx", 0, 31));
    for at in (0..96).chain((PAGE..bytes.len()).step_by(61)) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        fs::write(&path, changed).expect("it can be written");
        assert_eq!(tabled.found(), [0], "byte {at}");
    }
    fs::write(&path, &bytes[..bytes.len() - 1]).expect("it can be written");
    assert_eq!(tabled.found(), [0]);
    fs::write(&path, bytes).expect("it can be written");
    assert_eq!(tabled.found(), tabled.counts());
}

/// The table of blocks that were replaced, one that lacks a hash, and one that has a hash twice: their checksums are right.
#[test]
fn file_is_unpacked_if_the_table_has_other_hashes() {
    let tabled = Tabled::new(1);
    let (all, last) = (tabled.hashes.clone(), tabled.hashes.len() - 1);
    let mut replaced = all.clone();
    replaced[5].0[2] ^= 1;
    let mut twice = all.clone();
    twice[last] = twice[last - 1];
    let mut elsewhere = all.clone();
    elsewhere[last].2 += 1;
    let mut swapped = all.clone();
    (swapped[0].0, swapped[1].0) = (swapped[1].0, swapped[0].0);
    for (hashes, unpacked) in [
        (&all, 0),
        (&replaced, 32),
        (&twice, 32),
        (&elsewhere, 32),
        (&swapped, 32),
        (&all[1..].to_vec(), 32),
    ] {
        tabled.write(0, 31, hashes);
        assert_eq!(tabled.unpacked(), unpacked);
    }
}

/// No index has bit 40 of a hash, so only the table says it: a push that reads none would put the same span.
#[test]
fn push_takes_hashes_from_the_tables_of_its_directory() {
    let tabled = Tabled::new(2);
    let span = || {
        let store = Arc::new(FaultStore::new(Fault::None));
        run(async {
            pushed(&archive(&store), tabled.packed.path()).await.expect("it can be pushed");
            let mut names = store.names().await;
            names.retain(|name| name.contains("/span-"));
            names
        })
    };
    let unpacked = span();
    tabled.write(0, 63, &tabled.hashes);
    assert_eq!(span(), unpacked);
    let mut other = tabled.hashes.clone();
    other[0].0[5] ^= 0x80;
    tabled.write(0, 63, &other);
    assert_ne!(span(), unpacked);
}

#[test]
fn keys_are_joined_for_any_number_of_bits_that_an_index_may_have() {
    let first = 7;
    let hash = |number: u8| Digest::of(&[number]).0;
    let at = |number: u8| (first + u64::from(number / 3), number % 3);
    let tails: Vec<_> = (0..9)
        .map(|number| {
            let (hash, (height, ordinal)) = (hash(number), at(number));
            let bytes = std::array::from_fn(|byte| hash[2 + byte]);
            HashTail { height: (height - first) as u16, ordinal: ordinal.into(), bytes }
        })
        .collect();
    for bits in [15, 16, 17, 25, 38, 47, 48, 51, 64] {
        let indexed = |number: u8| {
            let prefix = hash(number)[..8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            let (height, ordinal) = at(number);
            let transaction = u32::from(ordinal).checked_sub(1);
            IndexedHash { prefix: prefix >> (64 - bits) << (64 - bits), height, transaction }
        };
        let mut index = IndexedHashes { bits, hashes: (0..9).map(indexed).collect() };
        let key = |number: u8| {
            let (height, ordinal) = at(number);
            Key::new(&hash(number), Spot { height, transaction: u32::from(ordinal).checked_sub(1) })
        };
        let expected = (bits > 15).then(|| (0..9).map(key).collect());
        assert_eq!(joined_keys(&index, first, &tails), expected, "{bits} bits");
        // As many hashes, but four at one height and two at another.
        index.hashes[3].height = first;
        index.hashes[3].transaction = Some(2);
        assert_eq!(joined_keys(&index, first, &tails), None, "{bits} bits");
        index.hashes[3] = index.hashes[4];
        assert_eq!(joined_keys(&index, first, &tails), None, "twice in the index");
    }
}
