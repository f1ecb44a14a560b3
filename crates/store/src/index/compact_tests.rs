use std::collections::BTreeMap;

use proptest::prelude::*;

use super::active_table::{Entry, Locator};
use super::compact_table::{
    CompactTable, HASH_BITS, MATCHES_MAX, TableEntries, TableShape, bits, bytes_read, kept,
};
use super::compact_writer;
use crate::id::Hash;

const FIRST: u64 = 1000;
/// The least change of a prefix that an entry shows.
const UNIT: u64 = 1 << (u64::BITS - HASH_BITS);

fn shape(all: &[Entry]) -> TableShape {
    let last = all.iter().map(|(_, locator)| locator.height()).max().unwrap_or(FIRST);
    let ordinal = all.iter().map(|(_, locator)| locator.ordinal()).max().unwrap_or(0);
    TableShape::new(all.len() as u32, FIRST, last, bits(ordinal)).unwrap()
}

/// The table of sorted entries, and its checksum.
fn build(all: &[Entry]) -> (Vec<u8>, u32) {
    let shape = shape(all);
    let mut bytes = vec![0xaa; shape.len() as usize];
    let put = |offset: u64, piece: &[u8]| {
        bytes[offset as usize..][..piece.len()].copy_from_slice(piece);
        Ok::<(), std::convert::Infallible>(())
    };
    let crc = compact_writer::write(shape, all.iter().copied(), put).unwrap();
    (bytes, crc)
}

fn hash(prefix: u64) -> Hash {
    let mut hash = Hash([7; 32]);
    hash.0[..8].copy_from_slice(&prefix.to_le_bytes());
    hash
}

/// All candidates for a prefix.
fn candidates(shape: TableShape, bytes: &[u8], prefix: u64) -> Vec<Locator> {
    let mut all = Vec::new();
    let found = CompactTable::new(shape, bytes, None).find(&hash(prefix), |locator| {
        all.push(locator);
        None::<Result<(), _>>
    });
    assert_eq!(found, None);
    all.sort_unstable();
    all
}

fn sorted(mut all: Vec<Entry>) -> Vec<Entry> {
    all.sort_unstable();
    all
}

/// Entries of `heights` heights with 32 hashes each.
fn uniform(heights: u64) -> Vec<Entry> {
    let prefix = |of: u64| (of + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    let locator = |of: u64| Locator::new(FIRST + of / 32, of % 32);
    sorted((0..heights * 32).map(|of| (prefix(of), locator(of))).collect())
}

fn entry() -> impl Strategy<Value = Entry> {
    // Some share all bits of an entry, some a bucket.
    let prefix = prop_oneof![
        any::<u64>(),
        (0..4_u64).prop_map(|of| of << 62 | 0xfff),
        (0..40_u64).prop_map(|of| u64::MAX - of * UNIT / 2),
    ];
    (prefix, FIRST..FIRST + 700, 0..300_u64)
        .prop_map(|(prefix, height, ordinal)| (prefix, Locator::new(height, ordinal)))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 200 },
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn table_finds_what_a_map_has(
        all in prop::collection::vec(entry(), 0..if cfg!(miri) { 60 } else { 900 }),
        others in prop::collection::vec(any::<u64>(), 20),
    ) {
        let all = sorted(all);
        let (shape, (bytes, crc)) = (shape(&all), build(&all));
        prop_assert_eq!(crc, crc32fast::hash(&bytes));
        let mut map = BTreeMap::<u64, Vec<Locator>>::new();
        all.iter().for_each(|(prefix, at)| map.entry(kept(*prefix)).or_default().push(*at));
        map.values_mut().for_each(|found| found.sort_unstable());
        let near = |prefix: u64| [prefix, prefix.wrapping_add(UNIT), prefix.wrapping_sub(UNIT)];
        for prefix in all.iter().flat_map(|(prefix, _)| near(*prefix)).chain(others) {
            let expected = map.get(&kept(prefix)).cloned().unwrap_or_default();
            let found = candidates(shape, &bytes, prefix);
            if expected.len() <= MATCHES_MAX as usize {
                prop_assert_eq!(found, expected);
            } else {
                prop_assert_eq!(found.len(), MATCHES_MAX as usize);
                prop_assert!(found.iter().all(|at| expected.contains(at)));
            }
        }
        let table = CompactTable::new(shape, &bytes, None);
        let read: Vec<Entry> = table.entries().collect();
        let kept: Vec<Entry> = all.iter().map(|(prefix, at)| (kept(*prefix), *at)).collect();
        prop_assert_eq!(&read, &kept);
        // Merging again loses nothing.
        prop_assert_eq!(build(&read).0, bytes);
    }
}

#[test]
fn table_of_many_pieces_has_all_entries_in_order() {
    let all = uniform(if cfg!(miri) { 20 } else { 700 });
    let (shape, (bytes, crc)) = (shape(&all), build(&all));
    assert_eq!(crc, crc32fast::hash(&bytes));
    let fetch = |range: std::ops::Range<u64>| {
        Ok::<_, ()>(bytes[range.start as usize..range.end as usize].to_vec())
    };
    let mut entries = TableEntries::new(shape, fetch);
    let read: Vec<Entry> = entries.by_ref().map(Result::unwrap).collect();
    assert!(entries.is_sound());
    assert!(
        read.iter().eq(all
            .iter()
            .map(|(prefix, at)| (kept(*prefix), *at))
            .collect::<Vec<_>>()
            .iter())
    );
}

/// 2,047 transactions in one block of a table, of 32 hashes a block in the mean: mainnet's gas allows no more.
#[test]
fn hash_takes_at_most_eight_bytes_at_every_level() {
    for level in 1..=5_u32 {
        for segments in [1, 3, 5, 7, 8] {
            let heights = (1024 * segments) << (3 * (level - 1));
            let entries = 32 * heights;
            let shape = TableShape::new(entries as u32, 0, heights - 1, bits(2047)).unwrap();
            assert!(
                shape.len() <= 8 * entries + 16,
                "{heights} heights take {} bytes",
                shape.len()
            );
        }
    }
}

/// Senders can choose hashes for one bucket, and pay for some with the same bits.
#[test]
fn header_with_absurd_numbers_has_no_table() {
    for (first, last, ordinal_bits) in [(0, 1, u32::MAX), (0, 1, 17), (1, 0, 16), (0, u64::MAX, 0)]
    {
        assert_eq!(
            TableShape::new(1, first, last, ordinal_bits),
            None,
            "{first} {last} {ordinal_bits}"
        );
    }
    assert!(TableShape::new(u32::MAX, 0, 1, 16).is_some());
}

#[test]
fn hashes_of_one_bucket_cost_a_look_up_little() {
    let count = if cfg!(miri) { 300 } else { 200_000 };
    let locator = |of: u64| Locator::new(FIRST + of / 16, of % 16);
    let all: Vec<Entry> = (0..count).map(|of| ((1 << 63) | (of * UNIT), locator(of))).collect();
    let (shape, (bytes, _)) = (shape(&all), build(&all));
    for of in (0..count).step_by(97) {
        let before = bytes_read();
        assert_eq!(candidates(shape, &bytes, (1 << 63) | (of * UNIT)), [locator(of)]);
        assert!(bytes_read() - before < 1000, "{} bytes", bytes_read() - before);
    }
    let same: Vec<Entry> = (0..count).map(|of| (1 << 63, locator(of))).collect();
    let before = bytes_read();
    let found = candidates(shape, &build(&same).0, 1 << 63);
    assert_eq!(found.len(), MATCHES_MAX as usize);
    assert!(bytes_read() - before < 3000, "{} bytes", bytes_read() - before);
    assert!(candidates(shape, &build(&same).0, 1 << 63 | UNIT).is_empty());
}

/// Chance lets one hash in 2^51 / n be found: of these none.
#[test]
fn unknown_hash_has_no_candidate() {
    let all = uniform(if cfg!(miri) { 4 } else { 2000 });
    let (shape, (bytes, _)) = (shape(&all), build(&all));
    for of in 1..if cfg!(miri) { 50 } else { 200_000_u64 } {
        let prefix = of.wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(31);
        assert!(candidates(shape, &bytes, prefix).is_empty(), "{prefix:x}");
    }
}

#[test]
fn damaged_bytes_neither_panic_nor_hang_and_are_unsound_or_other_entries() {
    let all = uniform(if cfg!(miri) { 2 } else { 12 });
    let (shape, (good, _)) = (shape(&all), build(&all));
    let entries = |bytes: &[u8]| {
        let fetch = |range: std::ops::Range<u64>| {
            Ok::<_, ()>(bytes[range.start as usize..range.end as usize].to_vec())
        };
        let mut entries = TableEntries::new(shape, fetch);
        let read: Vec<Entry> = entries.by_ref().map(Result::unwrap).collect();
        (read, entries.is_sound())
    };
    let right = entries(&good);
    let mut unnoticed = 0;
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        all.iter().for_each(|(prefix, _)| drop(candidates(shape, &bad, *prefix)));
        unnoticed += usize::from(entries(&bad) == right);
    }
    assert!(unnoticed <= 4 + 8 + 8, "{unnoticed} bytes are more than each list is filled up with");
    for filler in [0, 1, 0xff] {
        let bad = vec![filler; good.len()];
        all.iter().for_each(|(prefix, _)| drop(candidates(shape, &bad, *prefix)));
        assert!(!entries(&bad).1, "{filler}");
    }
}

#[test]
fn impossible_shapes_are_refused() {
    assert!(TableShape::new(1, 5, 4, 0).is_none(), "heights the wrong way round");
    assert!(TableShape::new(1, 0, 1 << 40, 0).is_none(), "too many heights");
    assert!(TableShape::new(1, u64::MAX - 1, u64::MAX, 0).is_none(), "no such heights");
    assert!(TableShape::new(1, 0, 0, 17).is_none(), "an ordinal has 16 bits");
    assert!(TableShape::new(u32::MAX, 0, u32::MAX.into(), 16).is_some());
}
