//! Files that no packer wrote, texts that no node sends, and the determinism of packing.

use std::ops::ControlFlow;

use neve_packed::{
    Bounds, FileHeader, FileStart, HEADER_BYTES, HeightTexts, ModelCache, PackError, PackedError,
    PackedFile, Packing, Part, Reason, TotalDifficulty, intact_bytes, pack, pack_within, term,
};

use crate::support::forge::{self, Chunk, Forged, fields, group, one_log_shape, section};
use crate::support::{IDENTITY, Texts, check, packed, read_all, recorded, with_long_inputs};

/// Heights of the sample: enough for a dictionary.
const HEIGHTS: usize = 40;

/// Blocks of both forms of header, with few transactions.
fn sample() -> Vec<Texts> {
    recorded("v1.15.0")[202..202 + HEIGHTS].to_vec()
}

/// A file with tables and a dictionary.
fn sample_file() -> Packing {
    let packing = packed(&sample(), 64);
    let [dictionary, tables] = ["dictionary", "tables"].map(|part| packing.parts[part]);
    assert!(dictionary > 100 && tables > 100, "{dictionary} and {tables} bytes");
    packing
}

#[test]
fn file_with_a_flipped_byte_is_refused_or_reads_the_same() {
    let packing = sample_file();
    let expected = read_all(&packing.bytes).unwrap();
    let (mut random, mut places) = (fastrand::Rng::with_seed(1), fastrand::Rng::with_seed(3));
    let places =
        (0..512).step_by(3).chain((0..300).map(|_| places.usize(512..packing.bytes.len())));
    for at in places {
        let mut changed = packing.bytes.clone();
        changed[at] ^= 1 << random.u8(0..8);
        let found = read_all(&changed);
        assert!(found.is_none_or(|found| found == expected), "byte {at}");
    }
}

/// Only a whole header tells of another release: otherwise a flipped bit would ask for one.
#[test]
fn header_of_another_version_is_told_from_a_damaged_one() {
    let mut other = sample_file().bytes;
    other[8] = 2;
    let refusal = |file: &[u8]| FileHeader::of_start(file).map(drop).unwrap_err();
    assert!(matches!(refusal(&other), PackedError::Checksum(_)), "{}", refusal(&other));
    let crc = crc32fast::hash(&other[..508]);
    other[508..512].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(refusal(&other), PackedError::Version(2)), "{}", refusal(&other));
}

#[test]
fn intact_bytes_end_before_what_did_not_arrive() {
    let whole = sample_file().bytes;
    let FileStart { header, length, opening } = FileHeader::of_start(&whole).unwrap();
    let directory = HEADER_BYTES as u64 + 40 * u64::from(header.heights);
    assert!(opening > directory && opening < length, "{opening} of {length}");
    let is_whole = header.first.is_multiple_of(64) && HEIGHTS == 64;
    assert_eq!((length, header.is_whole_range()), (whole.len() as u64, is_whole));
    assert_eq!(intact_bytes(&whole), length);
    let (mut last, mut steps) = (0, 0);
    for cut in (0..whole.len()).step_by(whole.len() / 150).chain([whole.len()]) {
        let mut partial = whole.clone();
        partial[cut..].fill(0);
        let intact = intact_bytes(&partial);
        assert!(intact <= length && (intact == 0 || intact >= 512), "{intact} at {cut}");
        // A frame may end with zeros that stand for themselves.
        assert!(partial[..intact as usize] == whole[..intact as usize], "{intact} at {cut}");
        assert!(intact >= last, "{intact} at {cut}, {last} before");
        (last, steps) = (intact, steps + u32::from(intact > last));
    }
    assert_eq!(last, length);
    assert!(steps > 15, "{steps} steps: each section and each frame is one");
    assert_eq!(intact_bytes(&whole[..600]), 0, "its length is not the whole file's");
}

#[test]
fn start_that_no_packer_writes_is_refused() {
    let whole = sample_file().bytes;
    for short in [0, 8, 12, 103, 111, 511] {
        assert!(FileHeader::of_start(&whole[..short]).is_err(), "{short} bytes");
    }
    for at in 0..512 {
        let mut start = whole[..512].to_vec();
        start[at] ^= 1;
        assert!(FileHeader::of_start(&start).is_err(), "byte {at}");
    }
}

#[test]
fn check_finds_each_flipped_byte() {
    let packing = sample_file();
    PackedFile::open(&packing.bytes[..]).unwrap().check().unwrap();
    let directory = HEADER_BYTES + 40 * HEIGHTS;
    for at in (0..directory).chain((directory..packing.bytes.len()).step_by(5)) {
        let mut changed = packing.bytes.clone();
        changed[at] ^= 1 << (at % 8);
        let found = PackedFile::open(&changed[..]).and_then(|file| file.check());
        assert!(found.is_err(), "byte {at} of {}", packing.bytes.len());
    }
}

/// The checksum of the frame is made right again: the decoder itself has to cope.
#[test]
fn frame_with_a_flipped_byte_and_a_right_checksum_never_panics() {
    let packing = sample_file();
    let word = |at: usize| u64::from_le_bytes(packing.bytes[at..at + 8].try_into().unwrap());
    let [directory, frames] = [0, 5].map(|section: usize| word(112 + 24 * section + 8) as usize);
    let ends: Vec<usize> =
        (0..HEIGHTS).map(|at| word(directory + 40 * at + 32) as usize & 0xffff_ffff).collect();
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..300 {
        let height = random.usize(0..HEIGHTS);
        let start = height.checked_sub(1).map_or(0, |before| ends[before]);
        let mut changed = packing.bytes.clone();
        let at = frames + random.usize(start..ends[height]);
        changed[at] = random.u8(..);
        let frame = frames + start..frames + ends[height];
        let number = word(16) + height as u64;
        let crc = crc32fast::hash(&[&number.to_le_bytes(), &changed[frame]].concat());
        let entry = directory + 40 * height + 36;
        changed[entry..entry + 4].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32fast::hash(&changed[directory..directory + 40 * HEIGHTS]);
        changed[116..120].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32fast::hash(&changed[..508]);
        changed[508..512].copy_from_slice(&crc.to_le_bytes());
        let _ = read_all(&changed);
    }
}

/// Streams are behind zstd, where changes of a file's bytes do not reach them.
#[test]
fn random_streams_never_panic() {
    let mut random = fastrand::Rng::with_seed(4);
    let tables = section(&one_log_shape());
    let mut read = 0;
    for _ in 0..4000 {
        let mut stream = |most: usize| -> Vec<u8> {
            // Small symbols lead further than others.
            let ceiling = [4, 40, 255][random.usize(..3)];
            (0..random.usize(..most)).map(|_| random.u8(..=ceiling)).collect()
        };
        let streams = [stream(60), stream(90), stream(60), stream(90)];
        let (txs, logs) = (random.usize(1..4), random.usize(..4));
        let content = group(&[Chunk { txs, logs, streams }]);
        let frame = fields(txs, &[content]);
        let file = Forged { tables: tables.clone(), frame, ..Forged::empty() }.write();
        read += usize::from(read_all(&file).is_some());
    }
    println!("{read} of 4000 files can be read");
}

#[test]
fn shortened_file_is_refused() {
    let packing = sample_file();
    for length in (0..packing.bytes.len()).step_by(97) {
        assert!(read_all(&packing.bytes[..length]).is_none(), "{length}");
    }
}

#[test]
fn text_that_fields_do_not_give_back_is_stored_as_it_came() {
    let changes = [
        ("\"removed\":false", "\"removed\":true", Reason::ReceiptsDiffer),
        ("\"status\":\"0x1\"", "\"status\":\"0x2\"", Reason::ReceiptsText),
        ("\"uncles\":[]", "\"uncles\":[\"0x1\"]", Reason::BlockForm),
        ("\"transactionIndex\":\"0x0\"", "\"transactionIndex\":\"0x9\"", Reason::BlockDiffers),
    ];
    for (old, new, reason) in changes {
        for (mut texts, at) in [(sample(), 1), (recorded("v1.15.0")[196..212].to_vec(), 5)] {
            let one = &mut texts[at];
            assert!(one.block.contains(old) || one.receipts.contains(old), "{at} lacks {old}");
            one.block = one.block.replacen(old, new, 1);
            one.receipts = one.receipts.replacen(old, new, 1);
            one.hashes = None;
            let packing = packed(&texts, 64);
            let stored: Vec<_> = packing.stored_as_came.into_iter().collect();
            assert_eq!(stored, [(reason, 1)], "{new}");
            check_texts(&packing.bytes, &texts);
        }
    }
}

#[test]
fn height_over_two_mebibytes_is_stored_as_it_came() {
    let mut texts = recorded("v1.15.0")[207..210].to_vec();
    let short = with_long_inputs(&texts[1], 1, 0);
    let room = (2 << 20) - short.block.len() - short.receipts.len();
    for (input_bytes, expected) in [(room / 2, &[][..]), (room / 2 + 1, &[(Reason::TooLarge, 1)])] {
        texts[1] = with_long_inputs(&texts[1], 1, input_bytes);
        let packing = packed(&texts, 4);
        let stored: Vec<_> = packing.stored_as_came.into_iter().collect();
        assert_eq!(stored, expected, "{input_bytes} bytes");
        check_texts(&packing.bytes, &texts);
    }
}

/// Each part of a range at its bound, and one over it.
#[test]
fn range_over_a_bound_is_not_packed_and_the_part_is_named() {
    let texts = sample();
    let heights: Vec<HeightTexts<'_>> = texts.iter().map(Texts::as_heights).collect();
    let longest = |of: fn(&HeightTexts<'_>) -> usize| heights.iter().map(of).max().unwrap();
    let file = sample_file().bytes;
    let hashes = texts
        .iter()
        .map(|one| neve_chain::Block::parse(one.block.as_bytes()).unwrap().transactions.len() + 1);
    let exact = Bounds {
        block_bytes: longest(|texts| texts.block.len()),
        receipts_bytes: longest(|texts| texts.receipts.len()),
        fields_bytes: longest(|texts| texts.block.len() + texts.receipts.len()),
        hashes: hashes.sum(),
        terms: texts.iter().map(term_count).sum(),
        file_bytes: file.len(),
        ..Bounds::default()
    };
    let pack = |bounds: &Bounds| {
        pack_within(IDENTITY, 64, &heights, bounds, &mut || ControlFlow::Continue(()))
    };
    assert!(pack(&exact).unwrap().bytes == file);
    for (bounds, part) in [
        (Bounds { block_bytes: exact.block_bytes - 1, ..exact }, Part::Block),
        (Bounds { receipts_bytes: exact.receipts_bytes - 1, ..exact }, Part::Receipts),
        (Bounds { hashes: exact.hashes - 1, ..exact }, Part::HashIndex),
        (Bounds { terms: exact.terms - 1, ..exact }, Part::LogIndex),
        (Bounds { file_bytes: exact.file_bytes - 1, ..exact }, Part::File),
        (Bounds { file_bytes: 600, ..exact }, Part::File),
    ] {
        let refused = pack(&bounds).map(drop).unwrap_err();
        assert!(matches!(refused, PackError::TooLarge(found) if found == part), "{refused}");
        assert_eq!(refused.reason(), part.name());
    }
    let shorter = exact.fields_bytes - 1;
    let stored = pack(&Bounds { fields_bytes: shorter, ..Bounds::default() }).unwrap();
    assert!(stored.stored_as_came.contains_key(&Reason::TooLarge));
}

/// Counts the different terms of a height.
fn term_count(texts: &Texts) -> usize {
    let receipts = neve_chain::Receipts::parse(texts.receipts.as_bytes()).unwrap();
    let mut terms = std::collections::BTreeSet::new();
    for log in &receipts.logs {
        terms.insert(term(0, &log.address[..]));
        let topics = log.topics.iter().zip(1..);
        terms.extend(topics.map(|(topic, at)| term(at, &topic[..])));
    }
    terms.len()
}

/// Compares both texts of each height.
fn check_texts(bytes: &[u8], texts: &[Texts]) {
    let file = PackedFile::open(bytes).unwrap();
    for (number, one) in file.heights().zip(texts) {
        let height = file.height(number).unwrap();
        let (mut block, mut receipts) = (Vec::new(), Vec::new());
        height.block(one.total(), &mut block).unwrap();
        height.receipts(&mut receipts).unwrap();
        assert!(block == one.block.as_bytes() && receipts == one.receipts.as_bytes(), "{number}");
    }
}

#[test]
fn release_of_the_node_does_not_change_the_file() {
    let mut other = sample();
    let zero = sample_file().bytes;
    for one in &mut other {
        let number = neve_chain::Block::parse(one.block.as_bytes()).unwrap().header.number;
        let value = format!("\"totalDifficulty\":\"{number:#x}\"");
        one.block = one.block.replacen("\"totalDifficulty\":\"0x0\"", &value, 1);
        one.hashes = None;
    }
    let number = packed(&other, 64).bytes;
    assert_eq!(zero, number);
    check(&number, &other);
}

#[test]
fn packing_stops_when_the_caller_breaks() {
    let texts = sample();
    let heights: Vec<HeightTexts<'_>> = texts.iter().map(Texts::as_heights).collect();
    let mut left = 20;
    let mut proceed = || {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    assert!(matches!(pack(IDENTITY, 64, &heights, &mut proceed), Err(PackError::Stopped)));
    let mut proceed = || ControlFlow::Continue(());
    let eight = pack(IDENTITY, 8, &heights, &mut proceed);
    assert!(matches!(eight, Err(PackError::Heights { heights: HEIGHTS, max: 8 })));
    let odd = pack(IDENTITY, 12, &heights[..4], &mut proceed);
    assert!(matches!(odd, Err(PackError::RangeLength(12))));
}

/// A mirror verifies texts with the height as total difficulty, and may serve them with zero. The height stands in other
/// places, too: with zero there, a text that was verified would be false.
#[test]
fn total_difficulty_is_put_in_at_its_own_place_only() {
    let texts = &recorded("v1.14.2/main")[7];
    let read = |place: Option<usize>, total| {
        let mut block = texts.block.clone();
        if let Some(place) = place {
            block.replace_range(place..place + "\"0x7\"".len(), "");
        }
        let frame = forge::texts(place, [&block, &texts.receipts]);
        let file = Forged { frame, ..Forged::empty() }.write();
        let mut out = Vec::new();
        let height = PackedFile::open(&file[..]).unwrap();
        height.height(7).unwrap().block(total, &mut out).ok().map(|()| out)
    };
    let of = |key: &str| {
        let member = format!("\"{key}\":\"0x7\"");
        Some(texts.block.find(&member).unwrap() + key.len() + "\"\":".len())
    };
    let zero = texts.block.replace("\"totalDifficulty\":\"0x7\"", "\"totalDifficulty\":\"0x0\"");
    let right = of("totalDifficulty");
    assert!(
        read(right, TotalDifficulty::Number).is_some_and(|found| found == texts.block.as_bytes())
    );
    assert!(read(right, TotalDifficulty::Zero).is_some_and(|found| found == zero.as_bytes()));
    for place in [of("number"), of("blockNumber"), None] {
        for total in [TotalDifficulty::Number, TotalDifficulty::Zero] {
            assert!(read(place, total).is_none(), "{place:?} {total:?}");
        }
    }
}

/// The bits of a word in blooms are remembered by its name, from the first read on. A sender of 32 bytes would be known by
/// the name of that word, and be another one as a topic: the first read would be right, and later ones wrong.
#[test]
fn address_of_more_than_twenty_bytes_is_refused() {
    // A template without fields, and one word.
    let mut tables = [&[1; 30][..], &[0, 1, 0, 0, 0, 32]].concat();
    let mut read_twice = |start: u8| {
        let mut word = [5; 32];
        word[..12].fill(start);
        tables.truncate(36);
        tables.extend(word);
        let (tables, entry, from) = (section(&tables), 73, 1);
        let transaction = vec![0, 0, 0, entry, 0, 0, 0, 0];
        // Two logs without data, each of one topic: the word, and the sender.
        let receipt = vec![0, 0, 1, 1, 0, entry, 0, 1, 1, 0, from, 0, 0];
        let streams = [transaction, Vec::new(), receipt, Vec::new()];
        let frame = fields(1, &[group(&[Chunk { txs: 1, logs: 2, streams }])]);
        let file = Forged { tables, frame, ..Forged::empty() }.write();
        let file = PackedFile::open(&file[..]).unwrap();
        [(); 2].map(|()| {
            let mut out = Vec::new();
            file.height(7).unwrap().receipts(&mut out).ok().map(|()| out)
        })
    };
    let [first, second] = read_twice(0);
    assert!(first.is_some() && first == second);
    let [first, second] = read_twice(1);
    assert!(first == second, "the second read differs");
    assert!(first.is_none());
}

/// Fields that no height uses, of megabytes that take nothing on the disk.
#[test]
fn long_template_counts_as_memory() {
    let mut literals = Vec::new();
    forge::varint(&mut literals, 1 << 20);
    literals.resize(literals.len() + (1 << 20), 0);
    let mut tables = vec![1; 30];
    tables[8] = 5; // extra data, a long literal
    forge::varint(&mut tables, literals.len() as u64);
    tables.extend(literals);
    tables.extend([0; 4]);
    let file = Forged { tables: section(&tables), ..Forged::empty() }.write();
    assert!(file.len() < 4 << 10, "{} bytes", file.len());
    let cache = ModelCache::new(usize::MAX);
    let _opened = PackedFile::open_in(&file[..], &cache).unwrap();
    assert!(cache.bytes() > 1 << 20, "{} bytes", cache.bytes());
    let small = ModelCache::new(1 << 20);
    let _opened = PackedFile::open_in(&file[..], &small).unwrap();
    assert_eq!(small.bytes(), 0);
}

/// A few kilobytes can have millions of chunks that add nothing to a text, and each costs a read some time.
#[test]
fn groups_and_chunks_beyond_the_transactions_are_refused() {
    let chunk = |txs: usize| {
        let transactions = vec![0; 8 * txs];
        Chunk { txs, logs: 0, streams: [transactions, Vec::new(), vec![0; 3 * txs], Vec::new()] }
    };
    let chunks = |txs: &[usize]| group(&txs.iter().map(|txs| chunk(*txs)).collect::<Vec<_>>());
    let reads = |txs: usize, groups: &[Vec<u8>]| {
        let file = Forged { frame: fields(txs, groups), ..Forged::empty() }.write();
        let file = PackedFile::open(&file[..]).unwrap();
        let height = file.height(7).unwrap();
        height.block(TotalDifficulty::Zero, &mut Vec::new()).is_ok()
    };
    for txs in [&[][..], &[0]] {
        assert!(reads(0, &[chunks(txs)]), "a block without transactions");
    }
    assert!(reads(2, &[chunks(&[1, 1])]) && reads(2, &[chunks(&[]), chunks(&[2])]));
    assert!(!reads(0, &[chunks(&[0, 0])]) && !reads(0, &[chunks(&[]), chunks(&[])]));
    assert!(!reads(2, &[chunks(&[1, 0, 1])]) && !reads(1, &[chunks(&[0]), chunks(&[1])]));
    // Symbols of a header in a later group.
    let mut padded = chunks(&[2]);
    padded[0] = 32;
    padded.insert(1, 0);
    assert!(!reads(2, &[chunks(&[]), padded]));
}

/// A log of one byte has a text of some 500. Texts that no packer takes would only fill the memory of who verifies them.
#[test]
fn text_that_is_longer_than_a_packer_takes_is_refused() {
    let read = |logs: usize| {
        let mut receipt = vec![0, 0, 3];
        receipt.resize(2 + logs, 2);
        receipt.push(0);
        let streams = [vec![0; 8], Vec::new(), receipt, Vec::new()];
        let frame = fields(1, &[group(&[Chunk { txs: 1, logs, streams }])]);
        let file = Forged { tables: section(&one_log_shape()), frame, ..Forged::empty() }.write();
        assert!(file.len() < 4 << 10, "{} bytes", file.len());
        let mut out = Vec::new();
        let file = PackedFile::open(&file[..]).unwrap();
        file.height(7).unwrap().receipts(&mut out).ok().map(|()| out.len())
    };
    let usual = read(50_000).unwrap();
    let most = (64 << 20) / (usual / 50_000);
    assert!(read(most - 5000).is_some_and(|found| found > 60 << 20));
    assert!(read(most + 5000).is_none());
}

/// A batch has the texts of many heights in one response: those before say nothing of this one.
#[test]
fn text_before_a_height_does_not_make_it_too_long() {
    let file = sample_file().bytes;
    let file = PackedFile::open(&file[..]).unwrap();
    let height = file.height(*file.heights().start()).unwrap();
    // The length that a text may have; the kernel gives zeros without memory.
    let mut out = vec![0; 64 << 20];
    height.receipts(&mut out).unwrap();
    height.block(TotalDifficulty::Zero, &mut out).unwrap();
    assert!(out.len() > 64 << 20);
}
