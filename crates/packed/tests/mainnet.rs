//! Size and reads of the recorded blocks of mainnet, as docs/operating/size.md has them.

#[allow(dead_code, reason = "each program uses its part")]
#[path = "../../../examples/packing/set.rs"]
mod set;

use std::ops::ControlFlow;

use neve_packed::{B256, HeightTexts, Identity, PackedFile, pack};

const SET: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../chain/tests/data/mainnet/c_chain/granite_75.0M-75.1M_nosig.jsonl.zst"
);
/// Bytes of a packed file, all its parts, over its blocks: 4,483 on 2026-11-25. The tables of the store, 245 bytes a
/// block since 2026-11-29, are not among them.
const BYTES_A_BLOCK_MAX: usize = 4500;
/// Pages in which an archive is read.
const PAGE: u64 = 64 << 10;

#[test]
fn blocks_of_mainnet_take_the_documented_bytes_and_two_pages_a_read() {
    let filled = set::fill(&set::read(SET).unwrap());
    let heights = filled
        .iter()
        .map(|one| HeightTexts { block: one.block.as_bytes(), receipts: one.receipts.as_bytes() });
    let heights: Vec<_> = heights.collect();
    let identity = Identity { chain_id: 43_114, genesis: B256::ZERO };
    let packing = pack(identity, 1024, &heights, &mut || ControlFlow::Continue(())).unwrap();
    assert_eq!(heights.len(), 668);
    assert!(packing.stored_as_came.is_empty(), "{:?}", packing.stored_as_came);
    let bytes_a_block = packing.bytes.len() / heights.len();
    println!("{bytes_a_block} bytes a block: {:?}", packing.parts);
    assert!(bytes_a_block <= BYTES_A_BLOCK_MAX, "{bytes_a_block} bytes: {:?}", packing.parts);
    let file = PackedFile::open(&packing.bytes[..]).unwrap();
    let in_two_pages = |height: &u64| {
        let (offset, bytes) = file.extent(*height).unwrap();
        (offset + bytes as u64 - 1) / PAGE - offset / PAGE < 2
    };
    let found = file.heights().filter(in_two_pages).count();
    println!("{found} of {} heights are read in two pages", heights.len());
    assert!(100 * found >= 99 * heights.len(), "{found} of {} heights", heights.len());
}
