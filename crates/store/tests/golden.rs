//! The bytes on disk, offset by offset, against docs/FORMAT.md and not against the code.

use std::fs;

use neve_store::{Encoding, Hash, Identity, Options, Part, Record, open};

use crate::support;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn put(bytes: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
}

/// CRC-32 as zlib and PNG have it, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

fn record() -> Record {
    Record {
        height: 7,
        timestamp: 0x0102_0304_0506_0708,
        hash: Hash([0xaa; 32]),
        parent: Hash([0xbb; 32]),
        transactions: vec![Hash([0xcc; 32]), Hash([0xdd; 32])],
        logs: vec![[0x0a, 0x0c, 0, 0, 0], [0x0a, 0, 0, 0, 0x0b]],
        flags: 0x1122_3344,
        parts: vec![
            Part::uncompressed(b"first".to_vec()),
            Part { bytes: b"second!".as_slice().into(), encoding: Encoding::Other(9) },
        ],
    }
}

fn segment_bytes(sealed: bool) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        segment_blocks: 2,
        segment_bytes: 64 << 10,
        disk_reserve_bytes: 0,
        expected: None,
    };
    let mut opened = open(dir.path(), options).unwrap();
    opened.writer.bind(Identity { chain_id: 43114, genesis: Hash([0x31; 32]) }, 0).unwrap();
    opened.writer.append(&record()).unwrap();
    if sealed {
        opened.writer.seal().unwrap();
    }
    fs::read(dir.path().join("00000000000000000007.seg")).unwrap()
}

/// 88 bytes of head, two hashes, terms of two logs, 5 + 7 bytes of parts.
const RECORD_LEN: usize = 88 + 64 + 80 + 12;
const DATA: usize = 4096 + 2 * 64;

#[test]
fn an_active_segment() {
    let bytes = segment_bytes(false);
    assert_eq!(&bytes[..8], b"neveseg\0");
    assert_eq!(u32_at(&bytes, 8), 1);
    assert_eq!(u32_at(&bytes, 12), 2);
    assert_eq!(u64_at(&bytes, 16), 7);
    assert_eq!(u64_at(&bytes, 24), 43114);
    assert_eq!(bytes[32..64], [0x31; 32]);
    assert_eq!(u64_at(&bytes, 64), DATA as u64);
    assert_eq!(u64_at(&bytes, 72), bytes.len() as u64);
    assert_eq!(u32_at(&bytes, 80), crc32(&bytes[..80]));
    assert!(bytes[84..4096].iter().all(|byte| *byte == 0));
    assert_eq!(bytes.len(), (DATA + (64 << 10)).next_multiple_of(4096));
}

#[test]
fn a_slot_and_its_record() {
    let bytes = segment_bytes(false);
    let slot = &bytes[4096..4096 + 64];
    assert_eq!(u64_at(slot, 0), DATA as u64);
    assert_eq!(u32_at(slot, 8), RECORD_LEN as u32);
    let record = &bytes[DATA..DATA + RECORD_LEN];
    assert_eq!(u32_at(slot, 12), crc32(record));
    let bounds: Vec<u32> = (0..8).map(|at| u32_at(slot, 16 + 4 * at)).collect();
    assert_eq!(bounds, [232, 237, 244, 244, 244, 244, 244, 244]);
    assert_eq!(slot[48..56], [0, 9, 0, 0, 0, 0, 0, 0]);
    assert_eq!(u32_at(slot, 56), 0x1122_3344);
    let covered = [&7_u64.to_le_bytes()[..], &slot[..60]].concat();
    assert_eq!(u32_at(slot, 60), crc32(&covered));
    assert_eq!(u64_at(record, 0), 7);
    assert_eq!(u64_at(record, 8), 0x0102_0304_0506_0708);
    assert_eq!(record[16..48], [0xaa; 32]);
    assert_eq!(record[48..80], [0xbb; 32]);
    assert_eq!((u32_at(record, 80), u32_at(record, 84)), (2, 2));
    assert_eq!(record[88..120], [0xcc; 32]);
    assert_eq!(record[120..152], [0xdd; 32]);
    let terms: Vec<u64> = (0..10).map(|at| u64_at(record, 152 + 8 * at)).collect();
    assert_eq!(terms, [0x0a, 0x0c, 0, 0, 0, 0x0a, 0, 0, 0, 0x0b]);
    assert_eq!(&record[232..], b"firstsecond!");
    assert!(bytes[4096 + 64..DATA].iter().all(|byte| *byte == 0), "the second slot is unused");
}

#[test]
fn a_sealed_segment() {
    let bytes = segment_bytes(true);
    let seal = &bytes[512..];
    let data_end = (DATA + RECORD_LEN).next_multiple_of(8);
    // Three entries: homes for 3 + 1 + 1, and each hash's home is where its first bytes point.
    let entry = |first: u8, ordinal: u64| {
        let prefix = u64::from_le_bytes([first; 8]);
        let home = (u128::from(prefix) * 5) >> 64;
        (home as usize, prefix, (7 << 16 | ordinal) + 1)
    };
    let entries = [entry(0xaa, 0), entry(0xcc, 1), entry(0xdd, 2)];
    assert_eq!(entries.map(|(home, ..)| home), [3, 3, 4]);
    let mut table = vec![0; 16 + 6 * 16];
    table[..8].copy_from_slice(&5_u64.to_le_bytes());
    table[8..16].copy_from_slice(&3_u64.to_le_bytes());
    for (place, (_, prefix, locator)) in [3, 4, 5].into_iter().zip(entries) {
        table[16 + 16 * place..][..8].copy_from_slice(&prefix.to_le_bytes());
        table[24 + 16 * place..][..8].copy_from_slice(&locator.to_le_bytes());
    }
    assert_eq!(bytes[data_end..data_end + table.len()], table);
    // One height, three keys: a of logs 0 and 1, b of log 1, c of log 0.
    let mut index = Vec::new();
    put(&mut index, &[1, 3]);
    [0x0a_u64, 0x0b, 0x0c].iter().for_each(|key| index.extend(key.to_le_bytes()));
    put(&mut index, &[0, 2, 3, 4]);
    put(&mut index, &[0, 2]);
    put(&mut index, &[0, 1, 1, 0]);
    let index_at = data_end + table.len();
    assert_eq!(bytes[index_at..index_at + index.len()], index);
    assert_eq!(&seal[..8], b"sealed\0\0");
    assert_eq!((u32_at(seal, 8), u32_at(seal, 12)), (1, 2));
    assert_eq!(u64_at(seal, 16), data_end as u64);
    assert_eq!(u64_at(seal, 24), 0x0102_0304_0506_0708);
    assert_eq!(u64_at(seal, 32), (index_at + index.len()) as u64);
    assert_eq!(seal[40..72], [0xaa; 32]);
    assert_eq!((u32_at(seal, 72), u32_at(seal, 76)), (1, 0));
    assert_eq!(u64_at(seal, 80), data_end as u64);
    assert_eq!(u64_at(seal, 88), table.len() as u64);
    assert_eq!((u32_at(seal, 96), u32_at(seal, 100)), (crc32(&table), 0));
    assert_eq!((u32_at(seal, 104), u32_at(seal, 108)), (2, 0));
    assert_eq!(u64_at(seal, 112), index_at as u64);
    assert_eq!(u64_at(seal, 120), index.len() as u64);
    assert_eq!((u32_at(seal, 128), u32_at(seal, 132)), (crc32(&index), 0));
    assert!(seal[136..200].iter().all(|byte| *byte == 0));
    assert_eq!(u32_at(seal, 200), crc32(&seal[..200]));
}

/// Numbers of one width after the other, in words of 8 bytes.
fn packed_by_bits(numbers: &[u64], width: usize) -> Vec<u8> {
    let mut bytes = vec![0; (numbers.len() * width).div_ceil(64) * 8];
    for at in 0..numbers.len() * width {
        let is_set = numbers[at / width] >> (at % width) & 1 == 1;
        bytes[at / 8] |= u8::from(is_set) << (at % 8);
    }
    bytes
}

#[test]
fn a_merged_table() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = support::open(dir.path(), Options { segment_blocks: 1, ..support::small() });
    let records: Vec<_> = (20..29).map(|height| support::block(height, 0)).collect();
    records.iter().for_each(|record| opened.writer.append(record).unwrap());
    assert_eq!(opened.writer.merge_tables().unwrap(), 1);
    let name = "00000000000000000020-00000000000000000027.idx";
    let bytes = fs::read(dir.path().join(name)).unwrap();
    // Ordinals up to 4 take 3 bits, heights from 20 to 27 as many; few entries have two buckets.
    let mut entries = Vec::new();
    for record in &records[..8] {
        for (ordinal, hash) in std::iter::once(&record.hash).chain(&record.transactions).enumerate()
        {
            let prefix = u64::from_le_bytes(hash.0[..8].try_into().unwrap());
            entries.push((prefix >> 13, (record.height - 20) << 3 | ordinal as u64));
        }
    }
    entries.sort_unstable();
    let first = entries.iter().filter(|(bits, _)| bits >> 50 == 0).count() as u32;
    let mut table = Vec::new();
    put(&mut table, &[0, first, entries.len() as u32, 0]);
    let others: Vec<_> = entries.iter().map(|(bits, _)| bits & ((1 << 50) - 1)).collect();
    table.extend(packed_by_bits(&others, 50));
    let locators: Vec<_> = entries.iter().map(|(_, locator)| *locator).collect();
    table.extend(packed_by_bits(&locators, 6));
    assert_eq!(bytes[4096..], table);
    assert_eq!(&bytes[..8], b"neveidx\0");
    assert_eq!((u32_at(&bytes, 8), u32_at(&bytes, 12)), (2, 1));
    assert_eq!((u64_at(&bytes, 16), u64_at(&bytes, 24)), (20, 27));
    assert_eq!((u64_at(&bytes, 32), u64_at(&bytes, 40)), (43112, table.len() as u64));
    assert_eq!(bytes[48..80], records[7].hash.0);
    assert_eq!((u32_at(&bytes, 80), u32_at(&bytes, 84)), (crc32(&table), entries.len() as u32));
    assert_eq!((u32_at(&bytes, 88), u32_at(&bytes, 92)), (3, crc32(&bytes[..92])));
    assert!(bytes[96..4096].iter().all(|byte| *byte == 0));
}

/// Another release's segment is not guessed at, and not thrown away either.
#[test]
fn another_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = segment_bytes(true);
    bytes[8] = 2;
    let crc = crc32(&bytes[..80]);
    bytes[80..84].copy_from_slice(&crc.to_le_bytes());
    let path = dir.path().join("00000000000000000007.seg");
    fs::write(&path, &bytes).unwrap();
    let error = open(dir.path(), support::small()).err().unwrap();
    let text = "is of a format version that this program does not know; run the release that wrote it, or use \
                another data directory";
    assert_eq!(error.to_string(), format!("{} {text}", path.display()));
    assert_eq!(fs::read(&path).unwrap(), bytes);
}
