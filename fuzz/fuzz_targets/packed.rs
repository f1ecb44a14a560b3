//! A packed file after arbitrary changes, all checksums made right: every read gives bytes or an error.
//! A file of two texts, if it can be packed at all, gives back both.

#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use neve_packed::{B256, HeightTexts, Identity, LogOut, PackedFile, TotalDifficulty, pack};

const IDENTITY: Identity = Identity { chain_id: 43_112, genesis: B256::ZERO };
const HEADER_BYTES: usize = 512;
const SECTIONS: usize = 6;
const ENTRY_BYTES: usize = 40;

fuzz_target!(|input: &[u8]| {
    // No JSON has a zero byte, and a packed file has one.
    match input.iter().position(|byte| *byte == 0) {
        Some(at) if !input.starts_with(b"nevepack") => {
            round_trip(&input[..at], &input[at + 1..]);
        }
        _ => {
            let mut bytes = input.to_vec();
            read_all(&bytes);
            mend(&mut bytes);
            read_all(&bytes);
        }
    }
});

fn round_trip(block: &[u8], receipts: &[u8]) {
    let texts = HeightTexts { block, receipts };
    let Ok(packing) = pack(IDENTITY, 1, &[texts], &mut || ControlFlow::Continue(())) else {
        return;
    };
    let file = PackedFile::open(&packing.bytes[..]).expect("the file was just made");
    let number = file.heights().next().expect("one height");
    let height = file.height(number).expect("the height was packed");
    let mut found = Vec::new();
    let same = [TotalDifficulty::Zero, TotalDifficulty::Number].into_iter().any(|total| {
        found.clear();
        height.block(total, &mut found).is_ok() && found == block
    });
    assert!(same, "another block");
    found.clear();
    height.receipts(&mut found).expect("receipts were packed");
    assert_eq!(found, receipts);
    read_all(&packing.bytes);
}

/// Reads everything that is there.
fn read_all(bytes: &[u8]) {
    let Ok(file) = PackedFile::open(bytes) else { return };
    let _ = (file.check(), file.find(&B256::repeat_byte(3)), file.heights_of_term(7));
    for number in file.heights() {
        let Ok(height) = file.height(number) else { continue };
        let mut out = Vec::new();
        let _ = height.block(TotalDifficulty::Number, &mut out);
        let _ = height.block_with_hashes(TotalDifficulty::Zero, &mut out);
        let _ = (height.header(TotalDifficulty::Zero, &mut out), height.receipts(&mut out));
        let _ = height.logs(|_, topics| topics.len() != 1, &mut LogOut::default());
        let count = height.counts().map_or(0, |(transactions, _)| transactions);
        for at in [0, 1, 15, 16, count.saturating_sub(1), count] {
            let _ = (height.receipt(at, &mut out), height.transaction(at, &mut out));
            if let Ok(Some(hash)) = height.transaction_hash(at) {
                let _ = file.find(&hash);
            }
        }
    }
}

/// Makes the checksums right: of each frame, of each section, of the header.
fn mend(bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let length = bytes.len() as u64;
    bytes[104..112].copy_from_slice(&length.to_le_bytes());
    let word = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    };
    let ranges: [_; SECTIONS] = std::array::from_fn(|at| {
        let entry = 112 + 24 * at;
        let start = usize::try_from(word(bytes, entry + 8)).unwrap_or(usize::MAX);
        start..start.saturating_add(usize::try_from(word(bytes, entry + 16)).unwrap_or(usize::MAX))
    });
    let first = word(bytes, 16);
    let (directory, frames) = (ranges[0].clone(), ranges[SECTIONS - 1].clone());
    let mut start = 0;
    for at in 0..directory.len() / ENTRY_BYTES {
        let entry = directory.start.saturating_add(at * ENTRY_BYTES);
        let Some(found) = bytes.get(entry + 32..entry + 36) else { break };
        let end = u32::from_le_bytes(found.try_into().expect("four bytes")) as usize;
        let frame = frames.start.saturating_add(start)..frames.start.saturating_add(end);
        let Some(frame) = bytes.get(frame) else { break };
        let number = first.wrapping_add(at as u64).to_le_bytes();
        let crc = crc32fast::hash(&[&number, frame].concat());
        let Some(place) = bytes.get_mut(entry + 36..entry + 40) else { break };
        place.copy_from_slice(&crc.to_le_bytes());
        start = end;
    }
    for (at, range) in ranges.into_iter().enumerate().take(SECTIONS - 1) {
        let Some(section) = bytes.get(range) else { continue };
        let crc = crc32fast::hash(section);
        bytes[116 + 24 * at..120 + 24 * at].copy_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes[..508]);
    bytes[508..512].copy_from_slice(&crc.to_le_bytes());
}
