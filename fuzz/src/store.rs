//! A small store, and changes of its files.

use std::fs::{self, File};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use neve_store::{Hash, Identity, Options, Part, Record, open};

/// The first stored height.
pub const FIRST: u64 = 100;
/// The last one: eight sealed segments of two heights, with a merged table, and an active one.
pub const LAST: u64 = FIRST + 16;
/// Heights that are looked at.
pub const HEIGHTS: RangeInclusive<u64> = FIRST - 1..=LAST + 1;
/// Bytes of a segment's records at least.
const SEGMENT_BYTES: u64 = 64 << 10;
/// Files are not made longer than this.
const FILE_BYTES_MAX: usize = 1 << 20;
const PAGE: usize = 4096;

/// How the store is made and opened.
pub fn options() -> Options {
    let identity = Identity { chain_id: 43112, genesis: Hash([9; 32]) };
    Options {
        segment_blocks: 2,
        segment_bytes: SEGMENT_BYTES,
        disk_reserve_bytes: 0,
        expected: Some(identity),
    }
}

fn hash(of: u64) -> Hash {
    let mut hash = Hash::default();
    for (at, chunk) in hash.0.chunks_mut(8).enumerate() {
        let word = (of + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at as u32 * 16);
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    hash
}

/// The block of a height.
pub fn block(height: u64) -> Record {
    let part =
        |at: u64| Part::uncompressed(format!("part {at} of {height};").repeat(3).into_bytes());
    Record {
        height,
        timestamp: 1_000_000 + height,
        hash: hash(height * 100),
        parent: hash((height - 1) * 100),
        transactions: (0..height % 4).map(|at| hash(height * 100 + at + 1)).collect(),
        logs: (0..height % 3).map(|at| [1 + at, 5, 0, height, u64::MAX]).collect(),
        flags: 1,
        parts: (0..5).map(part).collect(),
    }
}

/// Files by name: bytes up to the last that is not zero, and the length.
type Files = Vec<(String, Vec<u8>, usize)>;

static FILES: LazyLock<Files> = LazyLock::new(|| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("memory can be written");
    let mut opened = open(dir.path(), options()).expect("an empty directory opens");
    let identity = options().expected.expect("it is set");
    opened.writer.bind(identity, 1).expect("it is not bound");
    (FIRST..=LAST).for_each(|height| opened.writer.append(&block(height)).expect("it follows"));
    opened.writer.merge_tables().expect("tables can be written");
    opened.writer.sync().expect("memory can be synced");
    drop(opened);
    let entries = fs::read_dir(dir.path()).expect("it is there");
    let names = entries.map(|entry| entry.expect("it can be read").file_name());
    let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| name != "lock");
    names.sort();
    assert_eq!(names.len(), 11, "{names:?}");
    let file = |name: String| {
        let mut bytes = fs::read(dir.path().join(&name)).expect("it can be read");
        let len = bytes.len();
        trim(&mut bytes);
        (name, bytes, len)
    };
    names.into_iter().map(file).collect()
});

/// Takes the zeros off the end, which a file has by its length.
fn trim(bytes: &mut Vec<u8>) {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(used);
}

/// Changes of a store, and whether its checksums are made right afterwards.
#[derive(Arbitrary, Debug)]
pub struct Input {
    mend: bool,
    edits: Vec<Edit>,
}

/// A change of a file.
#[derive(Arbitrary, Debug)]
enum Edit {
    /// Puts bytes somewhere in its first bytes.
    Set { file: u8, at: u16, bytes: Vec<u8> },
    /// Puts a number into a field: at a multiple of four.
    Number { file: u8, field: u16, number: u64, wide: bool },
    /// Gives it another length.
    Length { file: u8, len: u32 },
    /// Removes the file.
    Remove { file: u8 },
    /// Makes it a copy of another one.
    Copy { file: u8, of: u8 },
    /// Puts a copy of it beside, under another base height.
    Rename { file: u8, base: u64 },
    /// Makes it just these bytes.
    Replace { file: u8, bytes: Vec<u8> },
}

/// A store after its changes.
pub struct Changed {
    files: Files,
    /// Whether checksums were made anew.
    pub mended: bool,
}

impl Changed {
    /// Applies the changes.
    pub fn of(input: &Input) -> Self {
        let mut files = FILES.clone();
        input.edits.iter().take(12).for_each(|edit| apply(&mut files, edit));
        if input.mend {
            for (name, bytes, len) in &mut files {
                mend(name, bytes, *len);
                trim(bytes);
            }
        }
        Self { files, mended: input.mend }
    }

    /// Writes them all.
    pub fn write(&self, dir: &Path) {
        for (name, bytes, len) in &self.files {
            let path = dir.join(name);
            fs::write(&path, bytes).expect("memory can be written");
            let file = File::options().write(true).open(&path).expect("it is there");
            file.set_len(*len as u64).expect("memory is enough");
        }
    }

    /// The first segment, as a mirror would get it.
    pub fn first_segment(&self) -> Option<(&str, &[u8])> {
        let segment = self.files.iter().find(|(name, ..)| name.ends_with(".seg"))?;
        Some((&segment.0, &segment.1))
    }
}

fn apply(files: &mut Files, edit: &Edit) {
    if files.is_empty() {
        return;
    }
    let count = files.len();
    let index = |file: &u8| usize::from(*file) % count;
    match edit {
        Edit::Set { file, at, bytes } => put(&mut files[index(file)], usize::from(*at), bytes),
        Edit::Number { file, field, number, wide } => {
            let bytes = number.to_le_bytes();
            let bytes = if *wide { &bytes[..] } else { &bytes[..4] };
            put(&mut files[index(file)], usize::from(*field) % 2048 * 4, bytes);
        }
        Edit::Length { file, len } => {
            let (_, bytes, old) = &mut files[index(file)];
            *old = *len as usize % FILE_BYTES_MAX;
            bytes.truncate(*old);
        }
        Edit::Remove { file } => drop(files.remove(index(file))),
        Edit::Copy { file, of } => {
            let (bytes, len) = (files[index(of)].1.clone(), files[index(of)].2);
            let to = &mut files[index(file)];
            (to.1, to.2) = (bytes, len);
        }
        Edit::Rename { file, base } => {
            let (_, bytes, len) = files[index(file)].clone();
            let name = format!("{:020}.seg", base % (4 * LAST));
            files.retain(|(other, ..)| *other != name);
            files.push((name, bytes, len));
        }
        Edit::Replace { file, bytes } => {
            let to = &mut files[index(file)];
            (to.1, to.2) = (bytes.clone(), bytes.len());
        }
    }
}

fn put(file: &mut (String, Vec<u8>, usize), at: usize, new: &[u8]) {
    let (_, bytes, len) = file;
    let end = (at + new.len()).min(FILE_BYTES_MAX);
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at.min(end)..end].copy_from_slice(&new[..end - at.min(end)]);
    *len = (*len).max(end);
}

/// Makes the checksums of a file right.
fn mend(name: &str, bytes: &mut Vec<u8>, len: usize) {
    if name.ends_with(".seg") {
        bytes.resize(len.max(bytes.len()), 0); // checksums may cover zeros
        mend_segment(bytes);
    } else if name.ends_with(".idx") && bytes.len() > PAGE {
        bytes.resize(len.max(bytes.len()), 0);
        let table = number(bytes, 40, 8).and_then(|len| bytes.get(PAGE..PAGE.checked_add(len)?));
        if let Some(crc) = table.map(crc32fast::hash) {
            bytes[80..84].copy_from_slice(&crc.to_le_bytes());
        }
        seal(bytes, 0..92);
    } else if name == "stamp"
        && let Some(at) = bytes.windows(6).position(|window| window == b"crc32 ")
    {
        let crc = crc32fast::hash(&bytes[..at]);
        bytes.truncate(at);
        bytes.extend_from_slice(format!("crc32 {crc:#010x}\n").as_bytes());
    }
}

fn mend_segment(bytes: &mut [u8]) {
    if bytes.len() < PAGE {
        return;
    }
    seal(bytes, 0..80);
    mend_slots(bytes);
    if bytes[512] != 0 {
        for section in (584..712).step_by(32) {
            let covered = number(bytes, section + 8, 8).zip(number(bytes, section + 16, 8));
            let covered = covered.and_then(|(at, len)| bytes.get(at..at.checked_add(len)?));
            if let Some(crc) = covered.map(crc32fast::hash) {
                bytes[section + 24..section + 28].copy_from_slice(&crc.to_le_bytes());
            }
        }
        seal(bytes, 512..712);
    }
}

fn mend_slots(bytes: &mut [u8]) {
    let (span, base) = (number(bytes, 12, 4).unwrap_or(0), number(bytes, 16, 8).unwrap_or(0));
    for slot in 0..span.min(64) {
        let at = PAGE + 64 * slot;
        let Some(offset) = number(bytes, at, 8) else { return };
        if offset == 0 || at + 64 > bytes.len() {
            return;
        }
        let record =
            number(bytes, at + 8, 4).and_then(|len| bytes.get(offset..offset.checked_add(len)?));
        if let Some(crc) = record.map(crc32fast::hash) {
            bytes[at + 12..at + 16].copy_from_slice(&crc.to_le_bytes());
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&(base as u64).wrapping_add(slot as u64).to_le_bytes());
        hasher.update(&bytes[at..at + 60]);
        bytes[at + 60..at + 64].copy_from_slice(&hasher.finalize().to_le_bytes());
    }
}

/// Puts the checksum of a range behind it.
fn seal(bytes: &mut [u8], range: std::ops::Range<usize>) {
    let crc = crc32fast::hash(&bytes[range.clone()]);
    bytes[range.end..range.end + 4].copy_from_slice(&crc.to_le_bytes());
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<usize> {
    let mut word = [0; 8];
    word[..len].copy_from_slice(bytes.get(at..at + len)?);
    usize::try_from(u64::from_le_bytes(word)).ok()
}
