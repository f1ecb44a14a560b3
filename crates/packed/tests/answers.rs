//! Files that no packer wrote, whose reads must agree. A mirror verifies the block and the receipts of a height, each read
//! once, and serves all other reads from then on.

use neve_packed::{LogOut, PackedFile, TotalDifficulty};

use crate::support::forge::{Chunk, Forged, fields, group, section};

/// Height of a forged file.
const HEIGHT: u64 = 7;

/// A text that a file has of its height.
#[derive(Debug, Clone, Copy)]
enum Text {
    Block,
    Hashes,
    Header,
    Receipts,
    Logs,
    Transaction(usize),
    Receipt(usize),
}

fn read(file: &PackedFile<&[u8]>, text: Text) -> Option<String> {
    let (height, total) = (file.height(HEIGHT).ok()?, TotalDifficulty::Number);
    let (mut out, mut logs) = (Vec::new(), LogOut::default());
    let read = match text {
        Text::Block => height.block(total, &mut out),
        Text::Hashes => height.block_with_hashes(total, &mut out),
        Text::Header => height.header(total, &mut out),
        Text::Receipts => height.receipts(&mut out),
        Text::Logs => height.logs(|_, _| true, &mut logs),
        Text::Transaction(at) => height.transaction(at, &mut out).map(drop),
        Text::Receipt(at) => height.receipt(at, &mut out).map(drop),
    };
    read.ok()?;
    Some(String::from_utf8([out, logs.text].concat()).unwrap())
}

/// Tables with words, of which no two are equal, and shapes of logs with some of them.
fn tables(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut tables = [&[1; 30][..], &[0, 8, 0, 0, 4]].concat();
    tables.extend([32; 8]);
    for word in 1..=8_u8 {
        // Four addresses, and others that may be longer.
        let start = if word > 4 && random.bool() { word } else { 0 };
        tables.extend([[start; 12].as_slice(), &[word; 20]].concat());
    }
    for shape in 0..4 {
        // Count of topics, words of the address and of the first topic, and no data.
        tables.extend([1, 1 + shape, 1 + random.u8(..8), 0]);
    }
    tables.extend([random.u8(..=4), random.u8(..=4), random.u8(..=4), random.u8(..=4)]);
    section(&tables)
}

/// Streams of transactions and receipts that are right in their form, of random words.
fn streams(random: &mut fastrand::Rng, txs: usize) -> Chunk {
    // Duties, entries of the table, recent words, and literals of 20 and 32 bytes.
    let word = |random: &mut fastrand::Rng, literals: &mut Vec<u8>| match random.u8(..8) {
        0 => random.u8(..6),
        1 => 6,
        length @ (2 | 3) => {
            let length = if length == 2 { 20 } else { 32 };
            literals.extend(vec![random.u8(1..4); usize::from(length)]);
            37 + length
        }
        _ => 73 + random.u8(..8),
    };
    let address = |random: &mut fastrand::Rng, literals: &mut Vec<u8>| {
        if random.u8(..4) > 0 { 73 + random.u8(..4) } else { word(random, literals) }
    };
    let mut streams = [const { Vec::new() }; 4];
    let [symbols, literals, receipts, receipt_literals] = &mut streams;
    for _ in 0..txs {
        symbols.extend([0, 0, 0]);
        symbols.push(address(random, literals));
        symbols.extend([0; 3]);
        symbols.push(word(random, literals));
    }
    let mut logs = 0;
    for _ in 0..txs {
        receipts.extend([1, 0]);
        for _ in 0..random.u8(..4) {
            if random.bool() {
                receipts.push(3 + random.u8(..4));
            } else {
                receipts.extend([1, 1]);
                receipts.push(address(random, receipt_literals));
                receipts.push(word(random, receipt_literals));
                receipts.push(0);
            }
            logs += 1;
        }
        receipts.push(0);
    }
    Chunk { txs, logs, streams }
}

#[test]
fn each_read_of_a_forged_height_agrees_with_the_verified_ones() {
    let mut random = fastrand::Rng::with_seed(5);
    let mut verified = 0;
    for number in 0..3000 {
        let counts: Vec<usize> = (0..random.usize(1..3)).map(|_| random.usize(1..4)).collect();
        let chunks: Vec<_> = counts.iter().map(|txs| streams(&mut random, *txs)).collect();
        let txs = counts.iter().sum();
        let frame = fields(txs, &[group(&chunks)]);
        let file = Forged { tables: tables(&mut random), frame, ..Forged::empty() }.write();
        let open = || PackedFile::open(&file[..]).unwrap();
        let opened = open();
        let right = [Text::Block, Text::Receipts].map(|text| read(&opened, text));
        let [Some(block), Some(receipts)] = right else { continue };
        verified += 1;
        let mut all = vec![Text::Block, Text::Hashes, Text::Header, Text::Receipts, Text::Logs];
        all.extend((0..txs).flat_map(|at| [Text::Transaction(at), Text::Receipt(at)]));
        // The first read of a file, and one behind others.
        for text in &all {
            let (first, later) = (read(&open(), *text), read(&opened, *text));
            assert!(first.is_some() && first == later, "file {number}, {text:?}");
        }
        let list = |text: fn(usize) -> Text| {
            let texts: Vec<_> = (0..txs).map(|at| read(&opened, text(at)).unwrap()).collect();
            format!("[{}]", texts.join(","))
        };
        assert_eq!(read(&opened, Text::Block), Some(block.clone()), "file {number}");
        assert_eq!(list(Text::Receipt), receipts, "file {number}");
        let transactions = list(Text::Transaction);
        assert!(block.contains(&format!("\"transactions\":{transactions}")), "file {number}");
        let logs = read(&opened, Text::Logs).unwrap();
        assert!(logs.split("},{").all(|log| receipts.contains(log)), "file {number}");
    }
    assert!(verified > 1000, "{verified} files can be read");
}
