//! Directory of pages: a file for each object, bounded together, the least recently used removed first.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use metrics::gauge;
use neve_archive::ObjectName;
use tracing::warn;

use crate::shared::lock::lock;

/// Files whose removal may fail before no other one is tried for them.
const KEPT_MAX: usize = 8;
/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;
/// Unit in which nearly all file systems give a file its bytes.
const DISK_UNIT: u64 = 4096;

/// Files of pages.
pub(super) struct PageDir {
    dir: PathBuf,
    bytes_max: u64,
    /// Held while files are opened and removed, by threads that may wait for the disk: one that is removed is not
    /// opened meanwhile.
    changes: Mutex<()>,
    /// Held for no change of the disk.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: HashMap<Arc<str>, KeptFile>,
    /// Their names by the number of the last use: there may be 163,000 in 10 GiB.
    order: BTreeMap<u64, Arc<str>>,
    bytes: u64,
    /// Number of the last use.
    uses: u64,
}

struct KeptFile {
    bytes: u64,
    used: u64,
}

impl PageDir {
    /// Opens the directory, and counts what is there.
    pub(super) fn open(dir: PathBuf, bytes_max: u64) -> Self {
        let mut state = State::default();
        if let Err(error) = fs::create_dir_all(&dir).and_then(|()| count(&dir, &mut state)) {
            warn!(dir = %dir.display(), %error, "archive pages not kept");
        }
        let opened = Self { dir, bytes_max, changes: Mutex::default(), state: Mutex::new(state) };
        opened.shrink(None, |path| fs::remove_file(path));
        opened
    }

    /// Opens the file of an object, made for it if it is not there. `None` if the disk does not. Waits for the disk.
    pub(super) fn file(&self, name: &ObjectName, bytes: u64) -> Option<File> {
        let file_name = file_name(name);
        let path = self.dir.join(&file_name);
        let _changing = lock(&self.changes);
        let opened =
            File::options().read(true).write(true).create(true).truncate(false).open(&path);
        // Sparse: pages come in any order, and those that are absent take no disk.
        let opened = opened.and_then(|file| file.set_len(bytes).map(|()| file));
        let mut state = lock(&self.state);
        if !state.touch(&file_name) {
            state.add(&file_name, 0);
        }
        opened.ok()
    }

    /// Notes that an object is used.
    pub(super) fn touch(&self, name: &ObjectName) {
        lock(&self.state).touch(&file_name(name));
    }

    /// Bytes that count.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        lock(&self.state).bytes
    }

    /// True if pages of the object were kept before.
    pub(super) fn has(&self, name: &ObjectName) -> bool {
        lock(&self.state).files.get(file_name(name).as_str()).is_some_and(|kept| kept.bytes > 0)
    }

    /// Notes that so many bytes of an object of `whole` bytes were written. Returns the files that were removed for it.
    /// Waits for the disk.
    pub(super) fn grow(&self, name: &ObjectName, bytes: u64, whole: u64) -> Vec<ObjectName> {
        let file_name = file_name(name);
        // Not held over the removal, which waits for the disk.
        {
            let mut state = lock(&self.state);
            let Some(kept) = state.files.get_mut(file_name.as_str()) else { return Vec::new() };
            let [more, all] = [bytes, whole].map(|bytes| bytes.next_multiple_of(DISK_UNIT));
            // Some may have been there: the file has all of the object at most, however often pages are written.
            let more = more.min(all.saturating_sub(kept.bytes));
            kept.bytes += more;
            state.bytes += more;
            if state.bytes <= self.bytes_max {
                state.show();
                return Vec::new();
            }
        }
        self.shrink(Some(&file_name), |path| fs::remove_file(path))
    }

    /// Removes files until the others fit. `newest` goes last. A file that the disk does not remove counts on, as one that
    /// was used: others are tried before it the next time.
    fn shrink(
        &self,
        newest: Option<&str>,
        remove: impl Fn(&Path) -> io::Result<()>,
    ) -> Vec<ObjectName> {
        let _changing = lock(&self.changes);
        let mut removals = Removals::default();
        loop {
            // Those that stay count, so that others go for them.
            let bytes_max = self.bytes_max.saturating_sub(removals.kept_bytes);
            let surplus = lock(&self.state).take_surplus(bytes_max, newest);
            let failed = removals.add(surplus, |file| remove(&self.dir.join(file)));
            let Some(error) = failed else { break };
            warn!(dir = %self.dir.display(), files = removals.kept.len(), %error, "archive pages not removed");
            if removals.kept.len() >= KEPT_MAX {
                break; // a disk that lets no file go is not asked for all of them
            }
        }
        let mut state = lock(&self.state);
        removals.kept.iter().for_each(|(file, bytes)| state.add(file, *bytes));
        state.show();
        removals.removed
    }
}

/// Files that are to be removed.
#[derive(Default)]
struct Removals {
    /// Names of the objects whose files are gone.
    removed: Vec<ObjectName>,
    /// Files that the disk did not remove, and their bytes.
    kept: Vec<(Arc<str>, u64)>,
    kept_bytes: u64,
}

impl Removals {
    /// Removes files. Returns the last error.
    fn add(
        &mut self,
        files: Vec<(Arc<str>, u64)>,
        remove: impl Fn(&str) -> io::Result<()>,
    ) -> Option<io::Error> {
        let mut failed = None;
        for (file, bytes) in files {
            match remove(&file) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    failed = Some(error);
                    self.kept.push((file, bytes));
                    self.kept_bytes += bytes;
                }
                _ => self.removed.extend(name_of(&file)),
            }
        }
        failed
    }
}

impl State {
    /// Notes a use of a file. False if it is not here.
    fn touch(&mut self, name: &str) -> bool {
        let Some(kept) = self.files.get_mut(name) else { return false };
        self.uses += 1;
        if let Some(name) = self.order.remove(&kept.used) {
            self.order.insert(self.uses, name);
        }
        kept.used = self.uses;
        true
    }

    /// Adds a file that is not here, as the last one that was used.
    fn add(&mut self, name: &str, bytes: u64) {
        let name: Arc<str> = name.into();
        self.uses += 1;
        self.bytes += bytes;
        self.order.insert(self.uses, Arc::clone(&name));
        self.files.insert(name, KeptFile { bytes, used: self.uses });
    }

    /// Forgets files until the others fit, and returns their names and bytes.
    fn take_surplus(&mut self, bytes_max: u64, newest: Option<&str>) -> Vec<(Arc<str>, u64)> {
        let mut surplus = Vec::new();
        while self.bytes > bytes_max {
            let other = self.order.iter().find(|(_, name)| Some(&***name) != newest);
            // The newest one goes too if it is too large alone.
            let Some((used, _)) = other.or_else(|| self.order.first_key_value()) else { break };
            let used = *used;
            let Some(oldest) = self.order.remove(&used) else { break };
            let bytes = self.files.remove(&oldest).map_or(0, |kept| kept.bytes);
            self.bytes -= bytes;
            surplus.push((oldest, bytes));
        }
        self.show();
        surplus
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a double")]
    fn show(&self) {
        gauge!("neve_archive_cache_bytes").set(self.bytes as f64);
    }
}

fn count(dir: &Path, state: &mut State) -> io::Result<()> {
    let entries = dir.read_dir()?.map(|entry| {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Only of neve's own files: an error of another one does not matter.
        let is_own = name_of(&name).is_some();
        let found = is_own.then(|| entry.metadata()).transpose()?;
        Ok(found.map(|found| (found.mtime(), name, found.blocks() * BLOCK_BYTES)))
    });
    add_all(entries, state)
}

/// Counts files by their times, names and bytes. Returns the first error; it keeps no other file from counting.
fn add_all(
    entries: impl Iterator<Item = io::Result<Option<(i64, String, u64)>>>,
    state: &mut State,
) -> io::Result<()> {
    let (mut found, mut failed) = (Vec::new(), Ok(()));
    for entry in entries {
        match entry {
            Ok(file) => found.extend(file),
            Err(error) if error.kind() == ErrorKind::NotFound => {} // removed meanwhile
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    // By the last write: the use of a file is not on the disk.
    found.sort();
    found.iter().for_each(|(_, name, bytes)| state.add(name, *bytes));
    failed
}

/// Name of an object's file: that of the object with points for slashes.
fn file_name(name: &ObjectName) -> String {
    name.to_string().replace('/', ".")
}

fn name_of(file_name: &str) -> Option<ObjectName> {
    file_name.replace('.', "/").parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant};

    use neve_archive::{Digest, Kind};

    use super::*;

    fn name(first: u64) -> ObjectName {
        ObjectName { chain_id: 7, kind: Kind::Segment, first, digest: Digest([first as u8; 32]) }
    }

    #[test]
    fn least_recently_used_goes_first_and_a_restart_counts_what_is_there() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let open = |bytes_max| PageDir::open(dir.path().join("pages"), bytes_max);
        let pages = open(200_000);
        for first in 0..3 {
            let file = pages.file(&name(first), 1 << 20).expect("the disk gives it");
            file.write_all_at(&vec![1; 65_536], 65_536).expect("the disk takes it");
            assert_eq!(pages.grow(&name(first), 65_536, 1 << 20), []);
        }
        pages.touch(&name(0));
        assert!(pages.file(&name(3), 1 << 20).is_some());
        assert_eq!(pages.grow(&name(3), 65_536, 1 << 20), [name(1)]);
        assert!(!pages.has(&name(1)) && pages.has(&name(0)));
        let again = open(200_000);
        assert!(again.has(&name(0)) && again.has(&name(2)));
        let small = open(70_000);
        assert_eq!(dir.path().join("pages").read_dir().expect("it is there").count(), 2);
        assert!(lock(&small.state).bytes <= 70_000);
    }

    #[test]
    fn file_that_cannot_be_counted_keeps_no_other_from_counting() {
        let file = |time: u8, bytes| Ok(Some((time.into(), name(time.into()).to_string(), bytes)));
        let failed = |kind: ErrorKind| Err(io::Error::from(kind));
        let count = |kind| {
            let (mut state, entries) = (State::default(), [file(2, 7), failed(kind), file(1, 5)]);
            let counted = add_all(entries.into_iter(), &mut state).map_err(|error| error.kind());
            (counted, state.bytes)
        };
        assert_eq!(count(ErrorKind::NotFound), (Ok(()), 12), "removed meanwhile");
        let refused = ErrorKind::PermissionDenied;
        assert_eq!(count(refused), (Err(refused), 12));
    }

    /// A thread that waits for no disk asks for what is kept, and notes uses.
    #[test]
    fn removal_that_takes_long_holds_no_one_up_who_asks() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let pages = PageDir::open(dir.path().join("pages"), 100_000);
        for first in 0..2 {
            assert!(pages.file(&name(first), 1 << 20).is_some());
            assert_eq!(pages.grow(&name(first), 40_960, 1 << 20), []);
        }
        let pages = PageDir { bytes_max: 50_000, ..pages };
        let removed = pages.shrink(None, |path| {
            assert!(pages.state.try_lock().is_ok(), "those who ask wait");
            assert!(pages.changes.try_lock().is_err(), "it may be opened meanwhile");
            assert!(!pages.has(&name(0)) && pages.has(&name(1)));
            fs::remove_file(path)
        });
        assert_eq!(removed, [name(0)]);
    }

    #[test]
    fn file_that_the_disk_does_not_remove_counts_on_and_others_go_for_it() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let pages = PageDir::open(dir.path().join("pages"), 100_000);
        for first in 0..3 {
            assert!(pages.file(&name(first), 1 << 20).is_some());
            assert_eq!(pages.grow(&name(first), 32_768, 1 << 20), []);
        }
        let refused = || io::Error::from(ErrorKind::PermissionDenied);
        let pages = PageDir { bytes_max: 50_000, ..pages };
        assert_eq!(pages.shrink(None, |_| Err(refused())), []);
        assert_eq!(lock(&pages.state).bytes, 98_304, "all of them are there");
        let stays = file_name(&name(0));
        let remove = |path: &Path| {
            if path.ends_with(&stays) { Err(refused()) } else { fs::remove_file(path) }
        };
        let mut removed = pages.shrink(None, remove);
        removed.sort_by_key(|name| name.first);
        assert_eq!(removed, [name(1), name(2)]);
        assert_eq!(lock(&pages.state).bytes, 32_768);
        assert!(pages.has(&name(0)));
        fs::remove_file(dir.path().join("pages").join(&stays)).expect("an operator may");
        let pages = PageDir { bytes_max: 0, ..pages };
        assert_eq!(pages.shrink(None, |path| fs::remove_file(path)), [name(0)]);
        assert_eq!(lock(&pages.state).bytes, 0);
    }

    /// Files of 10 bytes in the order of their names.
    fn state(files: u64) -> State {
        let mut state = State::default();
        (0..files).for_each(|number| state.add(&format!("{number:06}"), 10));
        state
    }

    #[test]
    fn files_go_in_the_order_of_their_last_use_and_the_newest_one_last() {
        let mut state = state(6);
        for name in ["000002", "000000", "000002", "000004"] {
            assert!(state.touch(name));
        }
        assert!(!state.touch("7"));
        let surplus = |state: &mut State, bytes_max| state.take_surplus(bytes_max, Some("000003"));
        let names = |numbers: &[u64]| -> Vec<(Arc<str>, u64)> {
            numbers.iter().map(|number| (format!("{number:06}").into(), 10)).collect()
        };
        assert_eq!(surplus(&mut state, 60), names(&[]));
        assert_eq!(surplus(&mut state, 35), names(&[1, 5, 0]));
        assert_eq!(surplus(&mut state, 9), names(&[2, 4, 3]));
        assert!(state.files.is_empty() && state.order.is_empty() && state.bytes == 0);
    }

    /// Time in which 256 files go, one at a time.
    fn time(files: u64) -> Duration {
        let once = || {
            let mut state = state(files);
            let begun = Instant::now();
            for left in (files - 256..files).rev() {
                assert_eq!(state.take_surplus(left * 10, None).len(), 1);
            }
            begun.elapsed()
        };
        (0..5).map(|_| once()).min().expect("there are some")
    }

    #[test]
    fn file_of_many_goes_in_about_the_time_of_one_of_few() {
        let (few, many) = (time(512), time(32_768));
        assert!(many < few * 16, "{few:?}, {many:?}");
    }

    #[test]
    fn order_has_the_files_of_the_table() {
        let (mut state, mut random) = (State::default(), fastrand::Rng::with_seed(1));
        for _ in 0..20_000 {
            let number = random.u64(0..20);
            let name = number.to_string();
            if random.u8(0..3) == 0 {
                drop(state.take_surplus(number, Some(&name)));
            } else if !state.touch(&name) {
                state.add(&name, number);
            }
            let files = state.files.iter();
            let mut by_use: Vec<_> =
                files.map(|(name, kept)| (kept.used, Arc::clone(name))).collect();
            by_use.sort();
            let order = state.order.iter().map(|(used, name)| (*used, Arc::clone(name)));
            assert!(order.eq(by_use));
            assert_eq!(state.bytes, state.files.values().map(|kept| kept.bytes).sum::<u64>());
        }
    }
}
