//! Directories with packed files of a made chain, in ranges of four heights.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use neve_archive::Chain as ArchivedChain;
use neve_devnet::{Block, Chain, ChainConfig, Config, Helicon, Part};
use neve_jsonrpc::Rules;
use neve_packed::{HeightTexts, Identity, pack};
use tempfile::TempDir;

use crate::archive::local::{chain_of, packed_files};

/// Heights of a file.
pub(super) const RANGE: u32 = 4;

/// Writes a file of a test.
pub(super) fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::write(path, bytes).expect("it can be written");
}

/// The first blocks of a chain.
fn blocks_of(config: ChainConfig, count: usize) -> Vec<Block> {
    let mut chain = Chain::new(config);
    (0..count).map(|_| chain.next_block()).collect()
}

/// A directory with packed files.
pub(in crate::archive) struct PackedDir {
    pub(super) dir: TempDir,
    /// The files, ascending by height.
    pub(super) files: Vec<PathBuf>,
}

impl PackedDir {
    /// Packs so many ranges of a chain from height 0 on.
    pub(super) fn new(ranges: usize) -> Self {
        Self::of_ranges(ranges, RANGE)
    }

    /// Packs so many ranges of another length.
    pub(in crate::archive) fn of_ranges(ranges: usize, length: u32) -> Self {
        Self::forged(ranges, length, |_, _| ())
    }

    /// Packs so many ranges after the receipts of each height were changed.
    pub(super) fn forged(ranges: usize, length: u32, change: impl Fn(u64, &mut Vec<u8>)) -> Self {
        Self::of_chain(Helicon::Never, ranges, length, change)
    }

    /// Packs so many ranges of a chain whose later headers settle receipts, after these were changed.
    pub(super) fn settled_later(ranges: usize, change: impl Fn(u64, &mut Vec<u8>)) -> Self {
        Self::settled_later_of(ranges, RANGE, change)
    }

    /// Packs so many ranges of such a chain of another length.
    pub(super) fn settled_later_of(
        ranges: usize,
        length: u32,
        change: impl Fn(u64, &mut Vec<u8>),
    ) -> Self {
        Self::of_chain(Helicon::FromGenesis, ranges, length, change)
    }

    /// Packs so many ranges, with the blocks of another chain from a height on.
    pub(super) fn torn(ranges: usize, height: usize) -> Self {
        let [mut blocks, other] = [1, 2].map(|seed| {
            let config = ChainConfig { seed, ..Config::test().with_helicon(Helicon::Never).chain };
            blocks_of(config, ranges * RANGE as usize)
        });
        blocks.truncate(height);
        blocks.extend(other.into_iter().skip(height));
        Self::of_blocks(&blocks, Rules::BeforeHelicon, RANGE, |_, _| ())
    }

    fn of_chain(
        helicon: Helicon,
        ranges: usize,
        length: u32,
        change: impl Fn(u64, &mut Vec<u8>),
    ) -> Self {
        let rules = if helicon == Helicon::Never { Rules::BeforeHelicon } else { Rules::Helicon };
        let config = Config::test().with_helicon(helicon).chain;
        Self::of_blocks(&blocks_of(config, ranges * length as usize), rules, length, change)
    }

    fn of_blocks(
        blocks: &[Block],
        rules: Rules,
        length: u32,
        change: impl Fn(u64, &mut Vec<u8>),
    ) -> Self {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let identity = Identity { chain_id: 43_112, genesis: blocks[0].hash() };
        let mut files = Vec::new();
        for range in blocks.chunks(length as usize) {
            let texts: Vec<_> = range
                .iter()
                .map(|block| {
                    let mut receipts = block.receipts().to_vec();
                    change(block.number(), &mut receipts);
                    (block.answer(Part::Full, rules), receipts)
                })
                .collect();
            let heights: Vec<_> =
                texts.iter().map(|(block, receipts)| HeightTexts { block, receipts }).collect();
            let packed = pack(identity, length, &heights, &mut || ControlFlow::Continue(()));
            let path = dir.path().join(format!("{:010}.pack", range[0].number()));
            fs::write(&path, packed.expect("it can be packed").bytes).expect("it can be written");
            files.push(path);
        }
        Self { dir, files }
    }

    /// The chain of the files.
    pub(super) fn chain(&self) -> ArchivedChain {
        let files = packed_files(self.path()).expect("they can be read").files;
        chain_of(&files[0].header)
    }

    pub(in crate::archive) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A directory with some of the files.
    pub(super) fn some(&self, which: impl IntoIterator<Item = usize>) -> TempDir {
        let dir = tempfile::tempdir().expect("a directory can be made");
        for at in which {
            let file = &self.files[at];
            let name = file.file_name().expect("it has one");
            fs::copy(file, dir.path().join(name)).expect("it can be copied");
        }
        dir
    }
}
