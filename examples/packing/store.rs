//! A store of the set's blocks, over and over: the first heights packed, the others not.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use neve_packed::{B256, HeightTexts, Identity as PackedIdentity, pack};
use neve_record::packed::Codec;
use neve_store::{Hash, Identity, Opened, Options, PackEnd, PackedBytes, PackedCodec, open_with};
use serde_json::Value;

use crate::set::Filler;

const RANGE: u32 = 1024;
const CHAIN_ID: u64 = 43114;

/// Makes the store. Both counts are multiples of 1,024.
pub(crate) fn make(
    lines: &[Value],
    dir: &Path,
    heights: u64,
    packed: u64,
) -> Result<(), Box<dyn Error>> {
    let options = Options { segment_blocks: RANGE, segment_bytes: 192 << 20, ..Options::default() };
    let mut store = open_with(dir, options, Arc::new(Codec::default()))?;
    let identity = Identity { chain_id: CHAIN_ID, genesis: Hash([0; 32]) };
    store.writer.bind(identity, 1)?;
    let (mut filler, mut lines) = (Filler::new(), lines.iter().cycle());
    for first in (0..heights).step_by(RANGE as usize) {
        add(&mut store, &mut filler, &mut lines, first)?;
        pack_below(&mut store, packed)?;
    }
    store.writer.seal()?;
    store.writer.sync()?;
    pack_below(&mut store, packed)?;
    store.writer.merge_tables()?;
    let usage = store.reader.usage();
    println!("{usage:#?}");
    Ok(())
}

/// Appends a range. The packed form gives the records.
fn add<'l>(
    store: &mut Opened,
    filler: &mut Filler,
    lines: &mut impl Iterator<Item = &'l Value>,
    first: u64,
) -> Result<(), Box<dyn Error>> {
    let filled: Vec<_> = lines.take(RANGE as usize).map(|line| filler.next(line)).collect();
    let texts: Vec<_> = filled
        .iter()
        .map(|one| HeightTexts { block: one.block.as_bytes(), receipts: one.receipts.as_bytes() })
        .collect();
    let identity = PackedIdentity { chain_id: CHAIN_ID, genesis: B256::ZERO };
    let packing = pack(identity, RANGE, &texts, &mut || ControlFlow::Continue(()))?;
    let range = Codec::default().open(PackedBytes::in_memory(packing.bytes))?;
    for height in first..first + u64::from(RANGE) {
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
