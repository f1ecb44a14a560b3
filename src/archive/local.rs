//! Packed files of a data directory, and the packed files of an archive, as their codec reads them.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use neve_archive::{Chain, Digest, Key, PageList, SegmentPages, Spot};
use neve_record::packed::Codec;
use neve_store::disk::open_regular;
use neve_store::{
    Hash, PackedBytes, PackedCodec, PackedDamage, PackedHeader, PackedKeys, PackedRange, Record,
};

use super::error::Failed;
use super::source::SEGMENT_BYTES_MAX;

mod hash_tails;
#[cfg(test)]
pub(super) mod relabeled;

use hash_tails::joined_keys;
pub(super) use hash_tails::{HashTails, hash_tails};

/// A packed file on the disk.
#[derive(Debug, Clone)]
pub(crate) struct PackedOnDisk {
    pub(super) path: PathBuf,
    pub(super) header: PackedHeader,
    /// Length of the file.
    bytes: u64,
}

/// Packed files of a data directory.
#[derive(Debug, Default)]
pub(crate) struct PackedFiles {
    /// Files of which the header is right, ascending by height.
    pub(crate) files: Vec<PackedOnDisk>,
    /// Files that no archive takes.
    pub(crate) bad: Vec<BadFile>,
}

/// A packed file that no archive takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadFile {
    pub(crate) path: PathBuf,
    /// Reason in words.
    pub(crate) why: String,
}

/// Lists the packed files of a data directory. They never change, but a server that is running may evict one:
/// such a file is left out.
pub(crate) fn packed_files(dir: &Path) -> Result<PackedFiles, Failed> {
    let file = |error| Failed::File { path: dir.to_owned(), error };
    let mut found = PackedFiles::default();
    for entry in dir.read_dir().map_err(file)? {
        let path = entry.map_err(file)?.path();
        if path.extension().is_none_or(|extension| extension != "pack") {
            continue;
        }
        match unless_evicted(look(&path)) {
            Ok(packed) => found.files.extend(packed),
            Err(Failed::Packed { path, why }) => found.bad.push(BadFile { path, why }),
            Err(failed) => return Err(failed),
        }
    }
    found.files.sort_by_key(|packed| packed.header.first);
    Ok(found)
}

/// `None` for a file that is not there any more.
pub(super) fn unless_evicted<T>(read: Result<T, Failed>) -> Result<Option<T>, Failed> {
    match read {
        Err(Failed::File { error, .. }) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// A file that is gone, or one that cannot be read.
fn unreadable(path: &Path, error: io::Error) -> Failed {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::NotFound => Failed::File { path, error },
        _ => Failed::Packed { path, why: error.to_string() },
    }
}

fn look(path: &Path) -> Result<PackedOnDisk, Failed> {
    let codec = Codec::default();
    let file = |error| unreadable(path, error);
    let mut start = Vec::new();
    let opened = open_regular(path).map_err(file)?;
    let length = opened.metadata().map_err(file)?.len();
    opened.take(codec.start_bytes() as u64).read_to_end(&mut start).map_err(file)?;
    let packed = |why: String| Failed::Packed { path: path.to_owned(), why };
    let start = codec.start(&start).map_err(|damage| packed(damage.to_string()))?;
    match start.bytes {
        bytes if bytes != length => {
            Err(packed(format!("the file has {length} bytes, its header says {bytes}")))
        }
        bytes if bytes > SEGMENT_BYTES_MAX => {
            Err(packed(format!("it has {bytes} bytes, an archive takes {SEGMENT_BYTES_MAX}")))
        }
        bytes => Ok(PackedOnDisk { path: path.to_owned(), header: start.header, bytes }),
    }
}

impl PackedOnDisk {
    /// First height, and the height after the last one.
    pub(super) fn heights(&self) -> (u64, u64) {
        (self.header.first, self.header.end())
    }

    /// Bytes of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the file whole, as long as it was when it was listed.
    pub(super) fn read(&self) -> Result<Vec<u8>, Failed> {
        // The length is bounded: `look` refuses longer files. `vec![0; n]` would have pages cleared that the read fills.
        let mut bytes = Vec::with_capacity(self.bytes as usize);
        let file = open_regular(&self.path);
        let read = file.and_then(|file| file.take(self.bytes).read_to_end(&mut bytes));
        match read.map(|read| read as u64 == self.bytes) {
            Ok(true) => Ok(bytes),
            Ok(false) => Err(unreadable(&self.path, ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(unreadable(&self.path, error)),
        }
    }
}

/// Chain of a packed file.
pub(super) fn chain_of(header: &PackedHeader) -> Chain {
    let (identity, range) = (header.identity, header.heights);
    Chain { chain_id: identity.chain_id, genesis: Digest(identity.genesis.0), range }
}

/// A packed file in memory, with all checksums compared.
pub(super) struct OpenedFile {
    range: Box<dyn PackedRange>,
    /// Pages of the file.
    pub(super) pages: SegmentPages,
}

impl OpenedFile {
    pub(super) fn of(codec: &Codec, bytes: impl Into<Arc<Vec<u8>>>) -> Result<Self, String> {
        let bytes = bytes.into();
        let start = bytes.get(..codec.start_bytes()).unwrap_or(&bytes);
        let start = codec.start(start).map_err(|damage| damage.to_string())?;
        let front = u32::try_from(start.opening).map_err(|_| "a front over 4 GiB".to_owned())?;
        let pages = SegmentPages { front, pages: PageList::of(&bytes) };
        let range = codec.open(PackedBytes::in_memory(bytes));
        let range = range.map_err(|damage| damage.to_string())?;
        range.check().map_err(|damage| damage.to_string())?;
        Ok(Self { range, pages })
    }

    /// Has a test change what is read.
    #[cfg(test)]
    pub(super) fn changed(
        self,
        change: impl FnOnce(Box<dyn PackedRange>) -> Box<dyn PackedRange>,
    ) -> Self {
        Self { range: change(self.range), ..self }
    }

    /// Returns the pages, and lets go of the bytes.
    pub(super) fn into_pages(self) -> SegmentPages {
        self.pages
    }

    pub(super) fn header(&self) -> PackedHeader {
        self.range.header()
    }

    /// Hash of the last block.
    pub(super) fn last(&self) -> Result<Digest, String> {
        let hash = self.range.hash(self.header().end().saturating_sub(1));
        hash.map(|hash| Digest(hash.0)).ok_or_else(|| "has no last block".to_owned())
    }

    /// Returns the keys of all blocks and transactions. Receipts stay packed.
    pub(super) fn keys(&self) -> Result<Vec<Key>, String> {
        let (header, mut keys) = (self.header(), Vec::new());
        let text = |damage: PackedDamage| damage.to_string();
        for height in header.first..header.end() {
            let hash = self.range.hash(height).ok_or_else(|| format!("has no height {height}"))?;
            keys.push(Key::new(&hash.0, Spot { height, transaction: None }));
            let hashes = self.range.transaction_hashes(height).map_err(text)?;
            for (number, hash) in (0..).zip(hashes) {
                let at = Spot { height, transaction: Some(number) };
                keys.push(Key::new(&hash.0, at));
            }
        }
        Ok(keys)
    }

    /// Returns the same keys. Nothing is unpacked for them if a table has the hashes of the file.
    pub(super) fn keys_by(&self, tails: &HashTails) -> Result<Vec<Key>, String> {
        if tails.is_empty() {
            return self.keys();
        }
        // An index that cannot be read says nothing of the blocks: readers of a span never use it.
        let index = self.range.indexed_hashes(tails.len()).ok().flatten();
        let joined = index.and_then(|index| joined_keys(&index, self.header().first, tails));
        joined.map_or_else(|| self.keys(), Ok)
    }

    /// Returns the terms of all logs, each once. The index has them.
    pub(super) fn terms(&self) -> Result<Vec<u64>, String> {
        self.range.all_terms().map_err(|damage| damage.to_string())
    }

    /// Returns the hash of a block, as the directory says.
    pub(super) fn hash(&self, height: u64) -> Option<Hash> {
        self.range.hash(height)
    }

    /// Returns the hash of a block, made of its header again, and that of its parent.
    pub(super) fn link(&self, height: u64) -> Result<(Hash, Hash), String> {
        let record = self.range.proven(height).map_err(|damage| damage.to_string())?;
        Ok((record.hash, record.parent))
    }

    /// Unpacks a height whole.
    pub(super) fn record(&self, height: u64) -> Result<Record, String> {
        self.range.record(height).map_err(|damage| damage.to_string())
    }

    /// Compares both indexes with those of these keys, which are all of the file.
    pub(super) fn check_indexes(&self, keys: &PackedKeys) -> Result<(), String> {
        self.range.check_indexes(keys).map_err(|damage| damage.to_string())
    }
}
