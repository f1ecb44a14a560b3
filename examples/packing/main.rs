//! Packs the blocks of a set and prints sizes and times as JSON.
//!
//! Usage: `cargo run --release --example packing -- FILE [DIR HEIGHTS PACKED]`. The file has the form of
//! `granite_75.0M-75.1M_nosig.jsonl.zst`; the set's missing values are filled in, see `set.rs`. Its blocks are packed as one
//! file, which is read. A temporary store has them over and over, all packed: `bytes_a_block` is the bytes of the one file
//! and of the store's other files. With DIR it makes a store of HEIGHTS heights there, of which the first PACKED are packed, for a server to
//! be measured with.

#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "figures for people")]

mod set;
mod store;

use std::error::Error;
use std::ops::ControlFlow;
use std::time::Instant;

use neve_packed::{
    B256, HeightTexts, Identity, LogOut, ModelCache, PackError, PackedError, PackedFile,
    PackedHeight, Packing, TotalDifficulty, pack, term, unpacked_bytes,
};
use serde_json::{Map, Value, json};

/// Rounds over all blocks; each read counts with its least time.
const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: packing FILE [DIR HEIGHTS PACKED]";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let lines = set::read(arguments.first().ok_or(usage)?)?;
    if let [_, dir, heights, packed] = &arguments[..] {
        return store::make(&lines, dir.as_ref(), heights.parse()?, packed.parse()?);
    }
    println!("{:#}", report(&lines)?);
    Ok(())
}

fn report(lines: &[Value]) -> Result<Value, Box<dyn Error>> {
    let filled = set::fill(lines);
    let heights: Vec<HeightTexts<'_>> = filled
        .iter()
        .map(|one| HeightTexts { block: one.block.as_bytes(), receipts: one.receipts.as_bytes() })
        .collect();
    let (packing, pack_us) = packed(&heights)?;
    let a_block = |bytes: u64| round(bytes as f64 / heights.len() as f64);
    let by_part = packing.parts.iter().map(|(part, bytes)| (*part, json!(a_block(*bytes))));
    let stored = packing.stored_as_came.iter().map(|(why, count)| (why.name(), json!(count)));
    let map = |(key, value): (&str, Value)| (key.to_owned(), value);
    let files = store::measure(lines)?;
    let of_store = |bytes: u64| bytes as f64 / files.heights as f64;
    // A range of the store has blocks twice, so its packed files are too small. They count as the one file does.
    let file = packing.bytes.len() as f64 / heights.len() as f64;
    let other_files = of_store(files.merged_tables + files.others);
    let texts: usize = filled.iter().map(|one| one.block.len() + one.receipts.len()).sum();
    Ok(json!({
        "blocks": heights.len(),
        "filled_in": "signatures (random), access lists and extra data (empty), constants of Granite, \
                      milliseconds and transaction roots (random); hashes and sizes are made anew",
        "json_bytes_a_block": a_block(texts as u64),
        "bytes_a_block": round(file + other_files),
        "packed_file_bytes_a_block": round(file),
        "merged_table_bytes_a_block": round(of_store(files.merged_tables)),
        "store": {
            "heights": files.heights,
            "bytes_a_block": round(of_store(files.packed) + other_files),
            "packed_file_bytes_a_block": round(of_store(files.packed)),
        },
        "by_part": by_part.map(map).collect::<Map<_, _>>(),
        "stored_as_they_came": stored.map(map).collect::<Map<_, _>>(),
        "pack_us": round(pack_us),
        "tables_in_memory_bytes": tables_bytes(&packing.bytes)?,
        "reads_of_two_pages": reads_of_two_pages(&packing.bytes)?,
        "unpacked_bytes": unpacked(&packing.bytes)?,
        "read_us": reads(&packing.bytes)?,
    }))
}

/// Packs all heights as one file, twice. Returns the lesser time of a height too, in microseconds.
fn packed(heights: &[HeightTexts<'_>]) -> Result<(Packing, f64), Box<dyn Error>> {
    let identity = Identity { chain_id: 43114, genesis: B256::ZERO };
    let pack_once = || {
        let start = Instant::now();
        let made = pack(identity, 1024, heights, &mut || ControlFlow::Continue(()))?;
        Ok::<_, PackError>((made, start.elapsed().as_secs_f64() * 1e6 / heights.len() as f64))
    };
    let ((_, first), (made, second)) = (pack_once()?, pack_once()?);
    Ok((made, first.min(second)))
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Bytes of memory that an open file takes for its tables and its dictionary.
fn tables_bytes(bytes: &[u8]) -> Result<usize, Box<dyn Error>> {
    let cache = ModelCache::new(usize::MAX);
    let _open = PackedFile::open_in(bytes, &cache)?;
    Ok(cache.bytes())
}

/// Heights whose bytes lie in at most two adjacent pages of 64 KiB, and all heights.
fn reads_of_two_pages(bytes: &[u8]) -> Result<[usize; 2], Box<dyn Error>> {
    const PAGE: u64 = 64 << 10;
    let file = PackedFile::open(bytes)?;
    let mut counts = [0, 0];
    for height in file.heights() {
        let (offset, len) = file.extent(height)?;
        let pages = (offset + len as u64 - 1) / PAGE - offset / PAGE + 1;
        counts[0] += usize::from(pages <= 2);
        counts[1] += 1;
    }
    Ok(counts)
}

/// Bytes that one read unpacks, over all of them: mean and greatest.
fn unpacked(bytes: &[u8]) -> Result<Value, Box<dyn Error>> {
    let file = PackedFile::open(bytes)?;
    let (mut whole, mut one) = (Vec::new(), Vec::new());
    let count = |counts: &mut Vec<u64>, work: &mut dyn FnMut() -> bool| {
        let before = unpacked_bytes();
        let done = work();
        counts.push(unpacked_bytes() - before);
        done
    };
    for height in file.heights() {
        let packed = file.height(height)?;
        let mut out = Vec::new();
        count(&mut whole, &mut || packed.receipts(&mut out).is_ok());
        for at in 0..packed.counts()?.0 {
            count(&mut one, &mut || packed.receipt(at, &mut out).is_ok());
            count(&mut one, &mut || packed.transaction(at, &mut out).is_ok());
        }
    }
    let figures = |counts: &[u64]| {
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        json!({ "mean": round(mean), "worst": counts.iter().max() })
    };
    Ok(json!({ "all_receipts": figures(&whole), "one_receipt_or_transaction": figures(&one) }))
}

/// Mean and percentiles of the reads, in microseconds.
fn reads(bytes: &[u8]) -> Result<Value, Box<dyn Error>> {
    let start = Instant::now();
    let file = PackedFile::open(bytes)?;
    let open = start.elapsed().as_secs_f64() * 1e6;
    let total = TotalDifficulty::Zero;
    let mut hashes = Vec::new();
    for height in file.heights() {
        hashes.push(file.height(height)?.transaction_hash(random_of(&file, height)?)?);
    }
    let transfer: B256 = alloy_primitives::keccak256("Transfer(address,address,uint256)");
    let measured = json!({
        "opening": round(open),
        "block": measure(&file, |file, height, out| file.height(height)?.block(total, out)),
        "block_with_hashes":
            measure(&file, |file, height, out| file.height(height)?.block_with_hashes(total, out)),
        "header": measure(&file, |file, height, out| file.height(height)?.header(total, out)),
        "all_receipts": measure(&file, |file, height, out| file.height(height)?.receipts(out)),
        "receipt": measure(&file, |file, height, out| {
            file.height(height)?.receipt(random_of(file, height)?, out).map(|_| ())
        }),
        "transaction": measure(&file, |file, height, out| {
            file.height(height)?.transaction(random_of(file, height)?, out).map(|_| ())
        }),
        "transaction_by_hash": measure(&file, |file, height, out| {
            by_hash(file, hashes[height as usize].as_ref(), |packed, at, hash| {
                packed.transaction_of(at, Some(hash), out)
            })
        }),
        "receipt_by_hash": measure(&file, |file, height, out| {
            by_hash(file, hashes[height as usize].as_ref(), |packed, at, hash| {
                packed.receipt_of(at, Some(hash), out)
            })
        }),
        "logs_without_match": measure(&file, |file, height, _| {
            file.height(height)?.logs(|_, _| false, &mut LogOut::default())
        }),
        "transfers": measure(&file, |file, height, _| {
            let wanted = |_: &[u8; 20], topics: &[[u8; 32]]| topics.first() == Some(&transfer.0);
            file.height(height)?.logs(wanted, &mut LogOut::default())
        }),
        "postings_of_a_term": measure(&file, |file, _, _| {
            file.heights_of_term(term(1, &transfer[..])).map(|_| ())
        }),
    });
    Ok(measured)
}

/// A transaction of the block, the same in each round.
fn random_of(file: &PackedFile<&[u8]>, height: u64) -> Result<usize, PackedError> {
    let (transactions, _) = file.height(height)?.counts()?;
    Ok((height as usize * 7919) % transactions.max(1))
}

/// Finds a hash in the index of the file, and reads what it names, if there is a hash.
fn by_hash(
    file: &PackedFile<&[u8]>,
    hash: Option<&B256>,
    mut read: impl FnMut(&PackedHeight<'_>, usize, &B256) -> Result<bool, PackedError>,
) -> Result<(), PackedError> {
    let Some(hash) = hash else { return Ok(()) };
    let found = file.find_with(hash, |at| {
        let position = at.transaction.unwrap_or(0) as usize;
        Ok(read(&file.height(at.height)?, position, hash)?.then_some(()))
    });
    found.map(|_| ())
}

fn measure(
    file: &PackedFile<&[u8]>,
    mut read: impl FnMut(&PackedFile<&[u8]>, u64, &mut Vec<u8>) -> Result<(), PackedError>,
) -> Value {
    let mut out = Vec::with_capacity(1 << 20);
    let mut best: Vec<f64> = file.heights().map(|_| f64::INFINITY).collect();
    for _ in 0..ROUNDS {
        for (height, best) in file.heights().zip(&mut best) {
            out.clear();
            let start = Instant::now();
            if read(file, height, &mut out).is_err() {
                return json!("failed");
            }
            *best = best.min(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    best.sort_by(f64::total_cmp);
    let at = |share: f64| round(best[((best.len() - 1) as f64 * share) as usize]);
    let mean = best.iter().sum::<f64>() / best.len() as f64;
    json!({ "mean": round(mean), "p50": at(0.5), "p99": at(0.99), "worst": at(1.0) })
}
