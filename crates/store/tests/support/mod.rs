//! Made-up blocks, and a disk that remembers.
#![cfg(test)]
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod crash;
pub mod toy;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

use neve_store::disk::{Disk, Op, RealDisk};
use neve_store::verify::{self, Finding, Stored, Visitor};
use neve_store::{
    Criteria, Hash, Identity, Opened, Options, PackEnd, PackedCodec, Part, Reader, Record, Terms,
    open_on, open_on_with,
};
use tempfile::TempDir;

pub const IDENTITY: Identity = Identity { chain_id: 43112, genesis: Hash([9; 32]) };

/// A hash that no other pair of numbers has, with uniform bytes.
pub fn hash(of: u64, salt: u64) -> Hash {
    let mut state = of.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.rotate_left(32);
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    };
    let mut hash = Hash::default();
    hash.0.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&next().to_le_bytes()));
    hash
}

/// The block at `height` of branch `branch`: same for all callers, of uneven size.
pub fn block(height: u64, branch: u64) -> Record {
    let transactions = (0..height % 5).map(|at| hash(height * 1000 + at + 1, branch)).collect();
    let part = |at: u64| {
        let text = format!("part {at} of block {height} on branch {branch};");
        Part::uncompressed(text.repeat((height * 7 + at * 3) as usize % 11).into_bytes())
    };
    Record {
        height,
        timestamp: 1_000_000 + height,
        hash: hash(height * 1000, branch),
        parent: hash((height.max(1) - 1) * 1000, branch),
        transactions,
        logs: (0..height * 5 % 7).map(|at| terms(height, at)).collect(),
        flags: height as u32 % 3,
        parts: (0..5).map(part).collect(),
    }
}

/// The terms of a made-up log: keys of a small number of values, so that logs share them, and at
/// times the same key at two places.
pub fn terms(height: u64, at: u64) -> Terms {
    let seed = u64::from_le_bytes(hash(height, at).0[..8].try_into().unwrap());
    let key = |place: u64, values: u64| 1 + (place << 32) + (seed >> (8 * place)) % values;
    match seed % 5 {
        0 => [key(0, 3), 0, 0, 0, 0],
        1 => [key(0, 3), key(1, 2), key(2, 40), 0, 0],
        2 => [key(0, 3), key(1, 2), key(1, 2), key(3, 5), key(4, 400)],
        3 => [0; 5],
        _ => [key(0, 3), 0, 0, u64::MAX, 0],
    }
}

/// Like `block`, but following the block at `height - 1` of another branch.
pub fn fork(height: u64, branch: u64, from: u64) -> Record {
    Record { parent: hash((height - 1) * 1000, from), ..block(height, branch) }
}

/// A directory in memory, if there is space: for what is tried thousands of times, and needs no disk.
pub fn fresh_dir() -> TempDir {
    let memory = Path::new("/dev/shm");
    let roomy = RealDisk::new(memory).free_bytes().is_ok_and(|bytes| bytes >= 256 << 20);
    let in_memory = roomy.then(|| tempfile::tempdir_in(memory).ok()).flatten();
    in_memory.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

pub fn small() -> Options {
    Options { segment_blocks: 4, segment_bytes: 64 << 10, disk_reserve_bytes: 0, expected: None }
}

pub fn open(dir: &Path, options: Options) -> Opened {
    let mut opened = neve_store::open(dir, options).unwrap();
    opened.writer.bind(IDENTITY, 1).unwrap();
    opened
}

/// Opens a store that packs, or one that does not.
pub fn open_as(disk: Arc<dyn Disk>, options: Options, packs: bool) -> Opened {
    let opened = if packs {
        open_on_with(disk, options, Arc::new(toy::Toy))
    } else {
        open_on(disk, options)
    };
    opened.unwrap()
}

/// Appends heights 2 to 21. With a span of 5 and a codec, segments end before each multiple of 4.
pub fn fill(opened: &mut Opened) -> Vec<Record> {
    let records: Vec<_> = (2..22).map(|height| block(height, 0)).collect();
    opened.writer.bind(IDENTITY, 1).unwrap();
    records.iter().for_each(|record| opened.writer.append(record).unwrap());
    opened.writer.sync().unwrap();
    records
}

/// Packs all that is due up to height `settled`, to the first error. Returns the number of heights.
pub fn pack(opened: &mut Opened, settled: u64) -> Result<u64, neve_store::Error> {
    let mut heights = 0;
    loop {
        while let Some(due) = opened.writer.begin_pack(settled, 0) {
            match opened.writer.end_pack(due.run(&mut || true))? {
                PackEnd::Packed(packed, name) => {
                    opened.writer.remove_packed(name.run())?;
                    heights += packed.heights;
                }
                PackEnd::Unpackable(_) => {}
                PackEnd::Overtaken | PackEnd::NotPacked => return Ok(heights),
            }
        }
        let Some(due) = opened.writer.begin_split(settled, 0) else { return Ok(heights) };
        let Some(names) = opened.writer.show_parts(due.run(&mut || true))? else {
            return Ok(heights);
        };
        opened.writer.end_split(names.run())?;
    }
}

/// Appends heights 2 to 21 to segments that end anywhere: 2, 3 to 7, 8 to 12, 13 to 17, 18 to 21.
pub fn fill_across(opened: &mut Opened) -> Vec<Record> {
    let records: Vec<_> = (2..22).map(|height| block(height, 0)).collect();
    opened.writer.bind(IDENTITY, 1).unwrap();
    opened.writer.append(&records[0]).unwrap();
    opened.writer.seal().unwrap();
    records[1..].iter().for_each(|record| opened.writer.append(record).unwrap());
    opened.writer.seal().unwrap();
    opened.writer.sync().unwrap();
    records
}

/// Writes a segment anew, of which no record is damaged, as a repair does.
pub fn rewrite(opened: &mut Opened, base: u64) {
    let mut repair = opened.writer.repair(base).unwrap().expect("it is there");
    repair.heights().for_each(|height| assert!(repair.keep(height).unwrap()));
    assert!(opened.writer.replace(repair.finish().unwrap()).unwrap());
}

/// Number that a variable has, or this one.
pub fn from_variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |number| number.parse().unwrap())
}

/// Distance between the cases of an exhaustive test that are run. `NEVE_STORE_EVERY` sets it: `./check` runs all, and
/// fewer where a case takes a hundred times as long, under a sanitizer or miri.
pub fn every() -> usize {
    from_variable("NEVE_STORE_EVERY", 3) as usize
}

/// Prints the number of injections, which docs/RELIABILITY.md has: `cargo test -p neve-store -- --nocapture`.
pub fn injected(count: usize, what: &str) {
    eprintln!("injected: {count} {what}");
}

/// Asserts that what the reader has at `height` is `record`, found in every way.
pub fn assert_holds(reader: &Reader, record: &Record) {
    let height = record.height;
    let found = reader.record(height).unwrap_or_else(|| panic!("height {height} is not there"));
    assert_eq!(found.hash(), record.hash, "height {height}");
    assert_eq!(found.parent(), record.parent);
    assert_eq!(found.timestamp(), record.timestamp);
    assert_eq!(found.flags(), record.flags);
    for (at, part) in record.parts.iter().enumerate() {
        assert_eq!(found.part(at).slice.as_ref(), part.bytes, "part {at} of height {height}");
    }
    let logs: Vec<_> = found.terms().unwrap().collect();
    assert_eq!(logs, record.logs, "logs of height {height}");
    assert_eq!(reader.block(&record.hash).map(|found| found.height()), Some(height));
    for (at, hash) in record.transactions.iter().enumerate() {
        let found = reader.transaction(hash).map(|(found, at)| (found.height(), at));
        assert_eq!(found, Some((height, at)), "transaction {at} of height {height}");
    }
}

/// Asserts that the reader has exactly `records`, in every respect.
pub fn assert_exactly(reader: &Reader, records: &[Record]) {
    let range = records.first().zip(records.last()).map(|(a, z)| a.height..=z.height);
    assert_eq!(reader.range(), range);
    records.iter().for_each(|record| assert_holds(reader, record));
}

/// Returns the finds of a reader, as heights and positions; it must come to the end of `heights`.
pub fn logs(
    reader: &Reader,
    heights: std::ops::RangeInclusive<u64>,
    criteria: &[Vec<u64>],
) -> Vec<(u64, u32)> {
    let found = reader.logs(heights, &Criteria::new(criteria.to_vec())).map(Result::unwrap);
    found.map(|log| (log.height, log.index)).collect()
}

/// Finds logs one by one, without an index.
pub fn naive_logs<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    criteria: &[Vec<u64>],
) -> Vec<(u64, u32)> {
    let meets = |terms: &Terms| {
        let one = |key: &u64| *key != 0 && terms.contains(key);
        criteria.iter().all(|keys| keys.iter().any(one))
    };
    let of = |record: &'a Record| {
        let met = record.logs.iter().enumerate().filter(|(_, terms)| meets(terms));
        met.map(|(at, _)| (record.height, at as u32))
    };
    records.into_iter().flat_map(of).collect()
}

/// Collects what `verify` says.
#[derive(Default)]
pub struct Heard {
    pub findings: Vec<Finding>,
    pub records: Vec<(u64, Hash)>,
}

impl Visitor for Heard {
    fn finding(&mut self, finding: Finding) {
        self.findings.push(finding);
    }
    fn record(&mut self, record: &Stored<'_>) {
        self.records.push((record.height, record.hash));
    }
    fn codec(&self) -> Option<Arc<dyn PackedCodec>> {
        Some(Arc::new(toy::Toy))
    }
    fn progress(&mut self, _: u64) {}
}

pub fn verify(dir: &Path) -> Heard {
    let mut heard = Heard::default();
    verify::directory(dir, &mut heard).unwrap();
    heard
}

pub fn assert_clean(dir: &Path) {
    let heard = verify(dir);
    assert!(heard.findings.is_empty(), "{:#?}", heard.findings);
}

/// Asserts that the list of the files in `dir` has each of so many heights once.
pub fn assert_listed(dir: &Path, heights: u64) {
    let listed = verify::inventory(dir, &toy::Toy).unwrap();
    let found = listed.iter().filter_map(|file| file.heights).map(|(from, to)| to + 1 - from);
    assert_eq!(found.sum::<u64>(), heights, "{listed:?}");
}

/// Names of the files in `dir` that end like this, ascending.
pub fn files(dir: &Path, ending: &str) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(ending));
    names.sort();
    names
}

/// Files of a directory, in memory, to be written to many others. Segments are as long as they may become: without the zero
/// bytes at their ends they are small.
pub struct Files(Vec<(String, Vec<u8>, u64)>);

impl Files {
    pub fn of(dir: &Path) -> Self {
        let read = |name: String| {
            let bytes = fs::read(dir.join(&name)).unwrap();
            let len = bytes.len() as u64;
            (name, without_end(&bytes).to_vec(), len)
        };
        Self(files(dir, "").into_iter().map(read).collect())
    }

    /// Writes them to a directory that has none of them.
    pub fn write(&self, dir: &Path) {
        self.0.iter().for_each(|(name, bytes, len)| write_sparse(&dir.join(name), bytes, *len));
    }
}

/// Writes a file of so many bytes, of which those at the end are zero.
pub fn write_sparse(path: &Path, bytes: &[u8], len: u64) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_len(len).unwrap();
}

/// The bytes before the zero bytes at the end.
pub fn without_end(bytes: &[u8]) -> &[u8] {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..used]
}

/// An [`Op`] that owns its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    Allocate(String, u64),
    Write(String, u64, Vec<u8>),
    Sync(String),
    Punch(String, u64),
    Rename(String, String),
    Remove(String),
    SyncDir,
}

impl Done {
    pub fn of(op: Op<'_>) -> Self {
        match op {
            Op::Allocate { name, len } => Self::Allocate(name.into(), len),
            Op::Write { name, offset, bytes } => Self::Write(name.into(), offset, bytes.into()),
            Op::Sync { name } => Self::Sync(name.into()),
            Op::Punch { name, offset } => Self::Punch(name.into(), offset),
            Op::Rename { from, to } => Self::Rename(from.into(), to.into()),
            Op::Remove { name } => Self::Remove(name.into()),
            Op::SyncDir => Self::SyncDir,
        }
    }

    pub fn op(&self) -> Op<'_> {
        match self {
            Self::Allocate(name, len) => Op::Allocate { name, len: *len },
            Self::Write(name, offset, bytes) => Op::Write { name, offset: *offset, bytes },
            Self::Sync(name) => Op::Sync { name },
            Self::Punch(name, offset) => Op::Punch { name, offset: *offset },
            Self::Rename(from, to) => Op::Rename { from, to },
            Self::Remove(name) => Op::Remove { name },
            Self::SyncDir => Op::SyncDir,
        }
    }
}

/// A real directory whose changes are written down, and can be made to fail.
pub struct Recorder {
    real: RealDisk,
    pub done: Mutex<Vec<Done>>,
    pub fail: Mutex<Option<Fail>>,
    pub free: Mutex<Option<u64>>,
}

/// Decides about an operation: `Some` makes it fail.
pub type Fail = Box<dyn FnMut(&Done) -> Option<io::Error> + Send>;

impl Recorder {
    pub fn new(dir: &Path) -> Arc<Self> {
        fs::create_dir_all(dir).unwrap();
        let (done, fail, free) = Default::default();
        Arc::new(Self { real: RealDisk::new(dir), done, fail, free })
    }

    pub fn open(self: &Arc<Self>, options: Options) -> Opened {
        self.open_as(options, false)
    }

    /// Opens the store again, with a codec that packs or without.
    pub fn open_as(self: &Arc<Self>, options: Options, packs: bool) -> Opened {
        let mut opened = open_as(Arc::clone(self) as Arc<dyn Disk>, options, packs);
        opened.writer.bind(IDENTITY, 1).unwrap();
        opened
    }

    pub fn len(&self) -> usize {
        self.done.lock().unwrap().len()
    }
}

impl Disk for Recorder {
    fn dir(&self) -> &Path {
        self.real.dir()
    }

    fn apply(&self, op: Op<'_>) -> io::Result<()> {
        let done = Done::of(op);
        if let Some(error) = self.fail.lock().unwrap().as_mut().and_then(|fail| fail(&done)) {
            return Err(error);
        }
        self.done.lock().unwrap().push(done);
        self.real.apply(op)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        match *self.free.lock().unwrap() {
            Some(free) => Ok(free),
            None => self.real.free_bytes(),
        }
    }
}
