//! Inventory of a store: each file with its tier, its heights and its bytes. Only the starts of the
//! files are read, and no lock is taken: a server may run on the directory meanwhile.

use std::io;
use std::path::Path;

use crate::disk::{
    list, parse_packed_name, parse_quarantined_name, parse_segment_name, parse_table_name,
    parse_unfinished_name,
};
use crate::error::Error;
use crate::format::{SLOT_LEN, SegmentHeader, slot_offset};
use crate::reads;
use crate::segment::{OpenedSegment, PackedCodec, inspect};

/// Ending of downloads that are not whole.
const PARTIAL: &str = ".part";

/// Kind of a file of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The segment that is written.
    Active,
    /// A final segment.
    Sealed,
    /// A range of heights in a packed file.
    Packed,
    /// A segment or packed file that is set aside and not served.
    Quarantined,
    /// A merged hash table.
    Tables,
    /// A file that is written or downloaded.
    Unfinished,
    /// A file with the name of a segment or a packed file whose start cannot be read.
    Unreadable,
}

impl Tier {
    /// All tiers, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::Active,
        Self::Sealed,
        Self::Packed,
        Self::Quarantined,
        Self::Tables,
        Self::Unfinished,
        Self::Unreadable,
    ];

    /// Name of the tier, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Sealed => "sealed",
            Self::Packed => "packed",
            Self::Quarantined => "quarantined",
            Self::Tables => "tables",
            Self::Unfinished => "unfinished",
            Self::Unreadable => "unreadable",
        }
    }
}

/// A file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Name in the directory.
    pub name: String,
    /// Kind of the file.
    pub tier: Tier,
    /// First and last height, if its start names any.
    pub heights: Option<(u64, u64)>,
    /// Bytes on disk, with what is reserved ahead.
    pub bytes: u64,
}

/// Lists the files of the store in `dir`, in the order of their names. `codec` reads packed files. A
/// file that goes meanwhile is not listed.
pub fn inventory(dir: &Path, codec: &dyn PackedCodec) -> Result<Vec<StoredFile>, Error> {
    let mut found = Vec::new();
    for name in list(dir)? {
        let path = dir.join(&name);
        let Some((tier, heights)) = look(&path, &name, codec) else { continue };
        match disk_bytes(&path) {
            Ok(bytes) => found.push(StoredFile { name, tier, heights, bytes }),
            // A server that runs meanwhile evicts and packs.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::read(path, error)),
        }
    }
    forget_replaced(&mut found);
    Ok(found)
}

/// Until the name of a packed file is durable the segments that it replaces are there too, and a segment until the names
/// of its parts are: their heights count once.
fn forget_replaced(files: &mut [StoredFile]) {
    let packed = files.iter().filter(|file| file.tier == Tier::Packed);
    let packed: Vec<_> = packed.filter_map(|file| file.heights).collect();
    let mut before = None;
    for file in files.iter_mut().filter(|file| file.tier == Tier::Sealed) {
        let is_within = |first, last| {
            let mut others = packed.iter().chain(&before);
            others.any(|(from, to)| *from <= first && last <= *to)
        };
        file.heights = file.heights.filter(|(first, last)| !is_within(*first, *last));
        before = file.heights.or(before);
    }
}

fn disk_bytes(path: &Path) -> io::Result<u64> {
    match reads::open_regular(path) {
        Ok(file) => reads::disk_bytes(&file),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(0), // no regular file
        Err(error) => Err(error),
    }
}

/// Tier and heights of a file; `None` if its name is none of a store.
fn look(path: &Path, name: &str, codec: &dyn PackedCodec) -> Option<(Tier, Option<(u64, u64)>)> {
    if let Some(heights) = parse_table_name(name) {
        return Some((Tier::Tables, Some(heights)));
    }
    if let Some((base, _)) = parse_quarantined_name(name) {
        let heights = sealed(path, base).or_else(|| packed(path, base, codec));
        return Some((Tier::Quarantined, heights));
    }
    if let Some(base) = parse_packed_name(name) {
        let heights = packed(path, base, codec);
        return Some((heights.map_or(Tier::Unreadable, |_| Tier::Packed), heights));
    }
    if let Some(base) = parse_segment_name(name) {
        let heights = sealed(path, base);
        return Some(heights.map_or_else(|| active(path, base), |_| (Tier::Sealed, heights)));
    }
    let unfinished = parse_unfinished_name(name).or_else(|| name.strip_suffix(PARTIAL))?;
    let is_ours = parse_packed_name(unfinished).is_some()
        || parse_segment_name(unfinished).is_some()
        || parse_table_name(unfinished).is_some();
    is_ours.then_some((Tier::Unfinished, None))
}

/// Heights of a sealed segment.
fn sealed(path: &Path, base: u64) -> Option<(u64, u64)> {
    let Ok(OpenedSegment::Sealed(header, seal)) = inspect(path, base) else { return None };
    Some((base, header.base_height + u64::from(seal.count).checked_sub(1)?))
}

/// Heights of a segment that is not sealed: those of the slots in use.
fn active(path: &Path, base: u64) -> (Tier, Option<(u64, u64)>) {
    match inspect(path, base) {
        Ok(OpenedSegment::Active(header)) => (Tier::Active, used_slots(path, &header)),
        Ok(OpenedSegment::Blank) => (Tier::Active, None),
        _ => (Tier::Unreadable, None),
    }
}

fn used_slots(path: &Path, header: &SegmentHeader) -> Option<(u64, u64)> {
    let mut slots = vec![0; header.slot_count as usize * SLOT_LEN];
    let file = reads::open_regular(path).ok()?;
    reads::read_exact(&file, &mut slots, slot_offset(0)).ok()?;
    // Not by checksum: a server may be writing the newest one.
    let is_used = |slot: &&[u8]| slot.iter().any(|byte| *byte != 0);
    let count = slots.chunks_exact(SLOT_LEN).take_while(is_used).count() as u64;
    Some((header.base_height, header.base_height + count.checked_sub(1)?))
}

/// Heights of a packed file.
fn packed(path: &Path, base: u64, codec: &dyn PackedCodec) -> Option<(u64, u64)> {
    let mut start = vec![0; codec.start_bytes()];
    let file = reads::open_regular(path).ok()?;
    reads::read_exact(&file, &mut start, 0).ok()?;
    let header = codec.start(&start).ok().filter(|start| start.header.first == base)?.header;
    Some((header.first, header.end().checked_sub(1)?))
}
