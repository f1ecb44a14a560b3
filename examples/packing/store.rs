//! A store of the set's blocks, over and over: the first heights packed, the others not.

use std::error::Error;
use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use neve_packed::{B256, HeightTexts, Identity as PackedIdentity, pack};
use neve_record::packed::Codec;
use neve_store::{Hash, Identity, Opened, Options, PackEnd, PackedBytes, PackedCodec, open_with};
use serde_json::Value;

use crate::set::Filler;

/// Heights of a range, unless the counts are multiples of less.
const RANGE_MAX: u32 = 1024;
const CHAIN_ID: u64 = 43114;
/// Heights of a store whose files are measured: eight ranges, of which one merged table is made.
const MEASURED: u64 = 8192;

/// Bytes of the files of a store.
pub(crate) struct Files {
    /// Heights of the store, all packed.
    pub(crate) heights: u64,
    pub(crate) packed: u64,
    pub(crate) merged_tables: u64,
    /// The stamp, the lock and any other file.
    pub(crate) others: u64,
}

/// Makes a temporary store, packs all its heights, and adds up the bytes of its files.
pub(crate) fn measure(lines: &[Value]) -> Result<Files, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let store = fill(lines, dir.path(), MEASURED, MEASURED)?;
    let usage = store.reader.usage();
    if usage.packed_blocks != MEASURED {
        return Err(format!("{} of {MEASURED} heights are packed", usage.packed_blocks).into());
    }
    drop(store);
    let mut files = Files { heights: MEASURED, packed: 0, merged_tables: 0, others: 0 };
    for file in fs::read_dir(dir.path())? {
        let (path, bytes) = file.and_then(|file| Ok((file.path(), file.metadata()?.len())))?;
        let sum = match path.extension().and_then(|extension| extension.to_str()) {
            Some("pack") => &mut files.packed,
            Some("idx") => &mut files.merged_tables,
            _ => &mut files.others,
        };
        *sum += bytes;
    }
    Ok(files)
}

/// Makes the store. A range has 1,024 heights, or the largest power of two that divides both counts if that is less.
pub(crate) fn make(
    lines: &[Value],
    dir: &Path,
    heights: u64,
    packed: u64,
) -> Result<(), Box<dyn Error>> {
    let store = fill(lines, dir, heights, packed)?;
    println!("{:#?}", store.reader.usage());
    Ok(())
}

fn fill(lines: &[Value], dir: &Path, heights: u64, packed: u64) -> Result<Opened, Box<dyn Error>> {
    let range = 1 << (heights | packed).trailing_zeros().min(RANGE_MAX.ilog2());
    let options = Options { segment_blocks: range, segment_bytes: 192 << 20, ..Options::default() };
    let mut store = open_with(dir, options, Arc::new(Codec::default()))?;
    let identity = Identity { chain_id: CHAIN_ID, genesis: Hash([0; 32]) };
    store.writer.bind(identity, 1)?;
    let (mut filler, mut lines) = (Filler::new(), lines.iter().cycle());
    for first in (0..heights).step_by(range as usize) {
        add(&mut store, &mut filler, &mut lines, first..first + u64::from(range))?;
        pack_below(&mut store, packed)?;
    }
    store.writer.seal()?;
    store.writer.sync()?;
    pack_below(&mut store, packed)?;
    store.writer.merge_tables()?;
    Ok(store)
}

/// Appends a range. The packed form gives the records.
fn add<'l>(
    store: &mut Opened,
    filler: &mut Filler,
    lines: &mut impl Iterator<Item = &'l Value>,
    heights: Range<u64>,
) -> Result<(), Box<dyn Error>> {
    let length = u32::try_from(heights.end - heights.start)?;
    let filled: Vec<_> = lines.take(length as usize).map(|line| filler.next(line)).collect();
    let texts: Vec<_> = filled
        .iter()
        .map(|one| HeightTexts { block: one.block.as_bytes(), receipts: one.receipts.as_bytes() })
        .collect();
    let identity = PackedIdentity { chain_id: CHAIN_ID, genesis: B256::ZERO };
    let packing = pack(identity, length, &texts, &mut || ControlFlow::Continue(()))?;
    let range = Codec::default().open(PackedBytes::in_memory(packing.bytes))?;
    for height in heights {
        store.writer.append(&range.record(height)?)?;
    }
    Ok(())
}

fn pack_below(store: &mut Opened, end: u64) -> Result<(), Box<dyn Error>> {
    while let Some(due) = end.checked_sub(1).and_then(|last| store.writer.begin_pack(last, 0)) {
        if let PackEnd::Packed(_, name) = store.writer.end_pack(due.run(&mut || true))? {
            store.writer.remove_packed(name.run())?;
        }
    }
    Ok(())
}
