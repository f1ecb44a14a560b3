//! Every recorded block of both releases comes back byte for byte.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::{env, fs, io};

use alloy_primitives::{Bloom, BloomInput};
use neve_chain::Receipts;
use neve_packed::{
    Bounds, LogOut, ModelCache, PackedFile, Position, Source, TotalDifficulty, pack_within, term,
    unpacked_bytes,
};
use sha2::{Digest, Sha256};

use crate::support::{
    IDENTITY, Texts, check, check_every, packed, recorded, set, with_long_inputs,
};

/// File with the length and SHA-256 of the packed file of each recorded chain.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt");

/// Held to write the file: the tests of its lines run beside each other.
static WRITING: Mutex<()> = Mutex::new(());

/// Distance between the heights of a chain that are read back. `NEVE_PACKED_EVERY` sets it: an emulator reads slowly.
fn every() -> usize {
    env::var("NEVE_PACKED_EVERY").map_or(1, |text| text.parse().unwrap())
}

/// Neves compare packed files, so no change of the code, of zstd, or of the processor may change a byte: one that
/// does needs another version of the format. `UPDATE=1` writes the file.
fn comes_back_as_before(corpus: &str) {
    let texts = recorded(corpus);
    let packing = packed(&texts, 1024);
    println!("{corpus}: {:?}, {} heights", packing.parts, texts.len());
    assert!(packing.stored_as_came.is_empty(), "{corpus}: {:?}", packing.stored_as_came);
    check_every(&packing.bytes, &texts, every());
    let digest = const_hex::encode(Sha256::digest(&packing.bytes));
    let found = format!("{corpus} {} {digest}\n", packing.bytes.len());
    let _only = WRITING.lock();
    let golden = fs::read_to_string(GOLDEN).unwrap();
    let before = golden.split_inclusive('\n').find(|line| line.starts_with(&format!("{corpus} ")));
    if env::var_os("UPDATE").is_some() {
        fs::write(GOLDEN, golden.replace(before.unwrap(), &found)).unwrap();
    } else {
        assert_eq!(Some(&found[..]), before);
    }
}

#[test]
fn recorded_blocks_come_back_and_their_file_is_that_of_before_in_main() {
    comes_back_as_before("v1.14.2/main");
}

#[test]
fn recorded_blocks_come_back_and_their_file_is_that_of_before_in_forks() {
    comes_back_as_before("v1.14.2/forks");
}

#[test]
fn recorded_blocks_come_back_and_their_file_is_that_of_before_in_apricot() {
    comes_back_as_before("v1.14.2/apricot0");
}

#[test]
fn recorded_blocks_come_back_and_their_file_is_that_of_before_in_helicon() {
    comes_back_as_before("v1.15.0");
}

/// Facts that find no space are taken from the texts again.
#[test]
fn file_is_the_same_however_many_facts_wait_in_memory() {
    let texts = &recorded("v1.15.0")[180..260];
    let expected = packed(texts, 128).bytes;
    let heights: Vec<_> = texts.iter().map(Texts::as_heights).collect();
    for kept_bytes in [0, 3000, 50_000, 200_000] {
        let mut proceed = || ControlFlow::Continue(());
        let bounds = Bounds { kept_bytes, ..Bounds::default() };
        let packing = pack_within(IDENTITY, 128, &heights, &bounds, &mut proceed).unwrap();
        assert!(packing.bytes == expected, "{kept_bytes} bytes");
    }
}

#[test]
fn each_hash_is_found_at_its_position() {
    let texts = recorded("v1.15.0");
    let packing = packed(&texts, 512);
    let file = PackedFile::open(&packing.bytes[..]).unwrap();
    for (height, texts) in file.heights().zip(&texts).step_by(7) {
        let block = neve_chain::Block::parse(texts.block.as_bytes()).unwrap();
        let expected = Position { height, transaction: None };
        assert_eq!(file.find(&block.hash).unwrap(), Some(expected));
        for (transaction, at) in block.transactions.iter().zip(0..) {
            let expected = Position { height, transaction: Some(at) };
            assert_eq!(file.find(&transaction.hash).unwrap(), Some(expected));
        }
    }
    assert_eq!(file.find(&neve_packed::B256::repeat_byte(3)).unwrap(), None);
}

/// Puts the address of each log with two topics in the place of its second topic, and the blooms right.
fn with_addresses_as_topics(one: &Texts) -> Texts {
    let mut made = Texts { hashes: None, ..one.clone() };
    let receipts = Receipts::parse(one.receipts.as_bytes()).unwrap();
    for log in receipts.logs.iter().filter(|log| log.topics.len() > 1) {
        let pair = |second: String| format!("[\"{}\",\"{second}\"", log.topics[0]);
        let address = format!("{}", log.address.into_word());
        made.receipts = made.receipts.replace(&pair(log.topics[1].to_string()), &pair(address));
    }
    let changed = Receipts::parse(made.receipts.as_bytes()).unwrap();
    let mut blooms = Vec::new();
    for (old, new) in receipts.receipts.iter().zip(&changed.receipts) {
        let mut bloom = Bloom::ZERO;
        for log in changed.logs_of(new) {
            bloom.accrue(BloomInput::Raw(&log.address[..]));
            log.topics.iter().for_each(|topic| bloom.accrue(BloomInput::Raw(&topic[..])));
        }
        blooms.push((old.logs_bloom.to_string(), bloom.to_string()));
    }
    let mut rest = made.receipts.as_str();
    let mut text = String::new();
    for (old, new) in blooms {
        let at = rest.find(&old).unwrap();
        text += &rest[..at];
        text += &new;
        rest = &rest[at + old.len()..];
    }
    made.receipts = text + rest;
    made
}

#[test]
fn topic_that_equals_the_address_of_its_log_is_packed_as_fields() {
    let texts: Vec<_> = recorded("v1.15.0")[..32].iter().map(with_addresses_as_topics).collect();
    let packing = packed(&texts, 32);
    assert!(packing.stored_as_came.is_empty(), "{:?}", packing.stored_as_came);
    check(&packing.bytes, &texts);
}

/// Memory that the tables of a file take.
fn tables_bytes(file: &[u8]) -> usize {
    let cache = ModelCache::new(usize::MAX);
    let _open = PackedFile::open_in(file, &cache).unwrap();
    cache.bytes()
}

#[test]
fn tables_of_many_files_stay_within_the_bound_of_their_cache() {
    let texts = &recorded("v1.15.0")[202..218];
    let packing = packed(texts, 16);
    let of_one = tables_bytes(&packing.bytes);
    let cache = ModelCache::new(3 * of_one + of_one / 2);
    let open = || PackedFile::open_in(&packing.bytes[..], &cache).unwrap();
    let mut files: Vec<_> = (0..300).map(|_| open()).collect();
    assert_eq!(cache.bytes(), 3 * of_one);
    assert_eq!(files.iter().filter(|file| file.is_ready()).count(), 3);
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..1000 {
        let (file, at) = (&files[random.usize(..300)], random.usize(..16));
        let height = file.height(file.heights().start() + at as u64).unwrap();
        let mut out = Vec::new();
        height.receipts(&mut out).unwrap();
        assert_eq!(out, texts[at].receipts.as_bytes());
        assert!(file.is_ready() && cache.bytes() == 3 * of_one);
    }
    // One that is read all the time stays.
    for at in 0..100 {
        for file in [&files[0], &files[at + 1]] {
            file.height(*file.heights().start()).unwrap();
        }
        assert!(files[0].is_ready());
    }
    files.clear();
    assert_eq!(cache.bytes(), 0, "closed files give their room back");
}

#[test]
fn file_whose_tables_exceed_the_bound_is_read_all_the_same() {
    let texts = &recorded("v1.15.0")[202..218];
    let packing = packed(texts, 16);
    let cache = ModelCache::new(1);
    let file = PackedFile::open_in(&packing.bytes[..], &cache).unwrap();
    let mut out = Vec::new();
    file.height(*file.heights().start()).unwrap().block(texts[0].total(), &mut out).unwrap();
    assert_eq!(out, texts[0].block.as_bytes());
    assert!(!file.is_ready() && cache.bytes() == 0);
    assert!(file.locate(*file.heights().start()).unwrap().is_none());
}

/// A file that notes what is read of it.
struct Noting<'f> {
    file: &'f [u8],
    read: RefCell<Vec<(u64, usize)>>,
}

impl Source for Noting<'_> {
    fn len(&self) -> u64 {
        self.file.len() as u64
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Cow<'_, [u8]>> {
        self.read.borrow_mut().push((offset, bytes));
        self.file.read_at(offset, bytes)
    }
}

#[test]
fn read_of_a_height_reads_its_frame_once_and_nothing_else() {
    let packing = packed(&recorded("v1.15.0")[202..218], 16);
    let noting = Noting { file: &packing.bytes, read: RefCell::default() };
    let file = PackedFile::open(&noting).unwrap();
    let opening = noting.read.take();
    let is_read_again = |(at, read)| opening[..at].contains(read);
    assert!(!opening.iter().enumerate().any(is_read_again), "{opening:?}");
    let (mut hashes, mut out) = (Vec::new(), Vec::new());
    for number in file.heights() {
        let extent = file.extent(number).unwrap();
        noting.read.take();
        let height = file.height(number).unwrap();
        height.block(TotalDifficulty::Zero, &mut out).unwrap();
        height.receipts(&mut out).unwrap();
        hashes.extend(height.transaction_hash(0).unwrap());
        assert_eq!(file.hash(number), Some(height.hash()));
        assert_eq!(noting.read.take(), [extent]);
        let located = file.locate(number).unwrap().expect("the tables are in memory");
        assert_eq!(file.extent_of(&located).unwrap(), extent);
        assert_eq!(file.read(located).unwrap().hash(), height.hash());
        assert_eq!(noting.read.take(), [extent]);
    }
    let found = |file: &PackedFile<_>, hash| file.find_with(hash, |_| Ok(Some(()))).unwrap();
    let in_space = |bytes| PackedFile::open_in(&noting, &ModelCache::new(bytes)).unwrap();
    // Without space for tables, and with space for tables alone.
    let [unkept, alone] = [0, tables_bytes(&packing.bytes) + 1].map(in_space);
    assert!(!unkept.is_ready() && alone.is_ready());
    for (file, reads) in [(&file, 0), (&unkept, 2), (&alone, 2)] {
        // The first look-up compares the checksum of the index.
        assert!(found(file, &hashes[0]).is_some());
        for hash in &hashes {
            noting.read.take();
            assert!(found(file, hash).is_some());
            assert_eq!(noting.read.take().len(), reads, "the ends of a bucket, and the bucket");
        }
    }
}

#[test]
fn index_has_the_first_bits_of_each_hash_in_order() {
    let packing = packed(&recorded("v1.14.2/main")[..64], 64);
    let file = PackedFile::open(&packing.bytes[..]).unwrap();
    let count = file.heights().map(|height| file.height(height).unwrap().counts().unwrap().0 + 1);
    let count: usize = count.sum();
    assert_eq!(file.indexed_hashes(count - 1).unwrap(), None);
    let (bits, indexed) = file.indexed_hashes(count).unwrap().unwrap();
    assert!((20..=51).contains(&bits), "{bits} bits");
    let mut expected = Vec::new();
    for number in file.heights() {
        let height = file.height(number).unwrap();
        let transactions = (0..).zip(height.transaction_hashes().unwrap());
        let transactions = transactions.map(|(at, hash)| (Some(at), hash));
        for (transaction, hash) in std::iter::once((None, height.hash())).chain(transactions) {
            let prefix = hash[..8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            let at = Position { height: number, transaction };
            expected.push((prefix >> (64 - bits) << (64 - bits), at));
        }
    }
    expected.sort_unstable_by_key(|(prefix, at)| (*prefix, at.height, at.transaction));
    assert_eq!(indexed, expected);
}

#[test]
fn hash_index_in_memory_takes_space_of_the_cache_and_goes_with_the_tables() {
    let packing = packed(&recorded("v1.15.0")[202..218], 16);
    let look_up = |file: &PackedFile<&[u8]>| {
        assert_eq!(
            file.find(&file.hash(*file.heights().start()).unwrap()).unwrap().unwrap().transaction,
            None
        );
    };
    let cache = ModelCache::new(usize::MAX);
    let open = |cache| PackedFile::open_in(&packing.bytes[..], cache).unwrap();
    let (file, tables) = (open(&cache), cache.bytes());
    (0..2).for_each(|_| look_up(&file));
    let index = cache.bytes() - tables;
    assert_eq!(index, packing.parts["hashes"] as usize);
    drop(file);
    assert_eq!(cache.bytes(), 0);
    // Space for the tables of two files, and for one index.
    let cache = ModelCache::new(2 * tables + index);
    let files = [open(&cache), open(&cache)];
    look_up(&files[0]);
    assert_eq!(cache.bytes(), 2 * tables + index);
    look_up(&files[1]);
    assert!(!files[0].is_ready() && cache.bytes() == tables + index);
    look_up(&files[0]); // by the pages of the file
}

/// Counts the bytes that `read` unpacks.
fn unpacking(read: impl FnOnce()) -> u64 {
    let before = unpacked_bytes();
    read();
    unpacked_bytes() - before
}

#[test]
fn read_of_one_transaction_unpacks_at_most_64_kib_of_a_large_block() {
    let texts = [with_long_inputs(&recorded("v1.15.0")[208], 200, 3000)];
    let packing = packed(&texts, 1);
    assert!(packing.stored_as_came.is_empty(), "{:?}", packing.stored_as_came);
    check(&packing.bytes, &texts);
    let file = PackedFile::open(&packing.bytes[..]).unwrap();
    let height = file.height(*file.heights().start()).unwrap();
    let mut out = Vec::new();
    let whole = unpacking(|| height.block(TotalDifficulty::Zero, &mut out).unwrap());
    assert!(whole > 500 << 10, "{whole} bytes in all");
    assert_eq!(height.unpacked_len().unwrap() as u64, whole);
    for at in 0..height.counts().unwrap().0 {
        out.clear();
        let receipt = unpacking(|| assert!(height.receipt(at, &mut out).unwrap()));
        let transaction = unpacking(|| assert!(height.transaction(at, &mut out).unwrap()));
        assert!(receipt.max(transaction) <= 64 << 10, "transaction {at}: {receipt}, {transaction}");
    }
}

/// A stored bloom is in the first group. A derived one needs the logs of all groups.
#[test]
fn header_unpacks_one_group_unless_its_bloom_is_derived() {
    // The bloom of a Helicon header is that of the blocks that it settles. These transactions have no logs.
    let settled = with_long_inputs(&recorded("v1.15.0")[208], 200, 3000);
    let mut derived = settled.clone();
    set(&mut derived.block, "logsBloom", &format!("0x{}", "0".repeat(512)));
    assert!(settled.block != derived.block);
    for (texts, is_whole) in [(settled, false), (derived, true)] {
        // The template of the file has the bloom of the first height.
        let texts = [recorded("v1.15.0")[207].clone(), texts];
        let packing = packed(&texts, 512);
        assert!(packing.stored_as_came.is_empty(), "{:?}", packing.stored_as_came);
        let file = PackedFile::open(&packing.bytes[..]).unwrap();
        let height = file.height(*file.heights().end()).unwrap();
        let (whole, mut out) = (height.unpacked_len().unwrap() as u64, Vec::new());
        assert!(whole > 500 << 10, "{whole} bytes in all");
        let header = unpacking(|| height.header(texts[1].total(), &mut out).unwrap());
        if is_whole {
            assert_eq!(header, whole);
        } else {
            assert!((1..=64 << 10).contains(&header), "{header} of {whole} bytes");
        }
    }
}

/// The index excludes heights without unpacking them. Of the others all groups are unpacked, each once: any may have
/// a log that matches.
#[test]
fn search_for_one_log_unpacks_only_heights_with_its_terms_and_each_once() {
    let texts = recorded("v1.15.0");
    let packing = packed(&texts, 512);
    let file = PackedFile::open(&packing.bytes[..]).unwrap();
    let logs = texts.iter().zip(file.heights()).flat_map(|(one, height)| {
        let receipts = Receipts::parse(one.receipts.as_bytes()).unwrap();
        receipts.logs.iter().map(|log| (height, log.address.0.0)).collect::<Vec<_>>()
    });
    let logs: Vec<_> = logs.collect();
    for (number, address) in logs.iter().step_by(37) {
        let mut found = Vec::new();
        let looking_up = unpacking(|| found = file.heights_of_term(term(0, address)).unwrap());
        let expected: BTreeSet<_> =
            logs.iter().filter(|(_, of)| of == address).map(|(height, _)| *height).collect();
        assert_eq!((looking_up, &found), (0, &Vec::from_iter(expected)));
        let height = file.height(*number).unwrap();
        let (mut out, whole) = (LogOut::default(), height.unpacked_len().unwrap() as u64);
        let mut has_found = false; // one log alone
        let is_wanted = |of: &[u8; 20], _: &[[u8; 32]]| {
            of == address && !std::mem::replace(&mut has_found, true)
        };
        assert_eq!(unpacking(|| height.logs(is_wanted, &mut out).unwrap()), whole);
        assert_eq!(out.found.len(), 1);
    }
    let absent = unpacking(|| assert!(file.heights_of_term(3 << 38).unwrap().is_empty()));
    assert_eq!(absent, 0);
}

#[test]
fn transaction_and_receipt_of_another_hash_are_not_given() {
    for corpus in ["v1.14.2/main", "v1.15.0"] {
        let texts = &recorded(corpus)[100..116];
        let packing = packed(texts, 16);
        let file = PackedFile::open(&packing.bytes[..]).unwrap();
        for number in file.heights() {
            let height = file.height(number).unwrap();
            for at in 0..height.counts().unwrap().0 {
                let hash = height.transaction_hash(at).unwrap().unwrap();
                let (mut wanted, mut found) = (Vec::new(), Vec::new());
                height.receipt(at, &mut wanted).unwrap();
                height.transaction(at, &mut wanted).unwrap();
                assert!(height.receipt_of(at, Some(&hash), &mut found).unwrap());
                assert!(height.transaction_of(at, Some(&hash), &mut found).unwrap());
                assert_eq!(found, wanted);
                let other = height.hash();
                assert!(!height.receipt_of(at, Some(&other), &mut found).unwrap());
                assert!(!height.transaction_of(at, Some(&other), &mut found).unwrap());
                assert_eq!(found, wanted, "nothing is appended");
            }
        }
    }
}

#[test]
fn heights_of_many_terms_take_one_read_of_the_index() {
    let bytes = packed(&recorded("v1.14.2/main")[..64], 64).bytes;
    let noting = Noting { file: &bytes, read: RefCell::default() };
    let file = PackedFile::open(&noting).unwrap();
    let all = file.all_terms().unwrap();
    // Every seventh is in the file. Of all of them only the low 40 bits count.
    let of_file = |at: usize| all[at % all.len()] | 3 << 41;
    let term = |at: usize| if at.is_multiple_of(7) { of_file(at) } else { at as u64 };
    for count in [0, 1, 30, 256, 257, 5000] {
        let terms: Vec<u64> = (0..count).map(term).collect();
        let mut expected: Vec<u64> =
            terms.iter().flat_map(|term| file.heights_of_term(*term).unwrap()).collect();
        expected.sort_unstable();
        expected.dedup();
        noting.read.take();
        assert_eq!(file.heights_of_terms(&terms).unwrap(), expected, "{count} terms");
        let reads = noting.read.take().len();
        assert!(reads <= 3 * count && (count <= 256 || reads == 1), "{count} terms: {reads}");
    }
}
