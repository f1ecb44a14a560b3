//! The file system as it is: the only place that changes it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::disk::{Disk, Op};
use crate::reads::{NONBLOCK, regular};

/// The file system as it is.
pub struct RealDisk {
    dir: PathBuf,
    /// Open files: the active segment, one of history, a table being built. The lock is not
    /// held while one is written or synced: another thread may be at another file.
    open: Mutex<HashMap<String, Arc<File>>>,
}

impl RealDisk {
    /// The directory `dir`, which exists.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), open: Mutex::default() }
    }

    /// Finds the open file, or opens it. The lock is given back before the caller acts, which may sync for seconds.
    fn file(&self, name: &str) -> io::Result<Arc<File>> {
        self.known(name).map_or_else(|| self.opened(name), Ok)
    }

    /// Keeps the file open, because more writes follow.
    fn kept(&self, name: &str) -> io::Result<Arc<File>> {
        if let Some(file) = self.known(name) {
            return Ok(file);
        }
        let file = self.opened(name)?;
        self.files().insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn known(&self, name: &str) -> Option<Arc<File>> {
        self.files().get(name).cloned()
    }

    fn opened(&self, name: &str) -> io::Result<Arc<File>> {
        File::options().read(true).write(true).open(self.dir.join(name)).map(Arc::new)
    }

    fn forget(&self, name: &str) {
        self.files().remove(name);
    }

    fn files(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<File>>> {
        // A panic while holding it leaves the map as usable as before.
        self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn allocate(&self, name: &str, len: u64) -> io::Result<()> {
        let path = self.dir.join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        if let Err(error) = reserve(&file, len) {
            drop(file);
            // A file without its space would be taken for one that was begun.
            fs::remove_file(&path)?;
            return Err(error);
        }
        self.files().insert(name.to_owned(), Arc::new(file));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // Open files would otherwise be found under names that are no longer theirs.
        self.forget(from);
        self.forget(to);
        fs::rename(self.dir.join(from), self.dir.join(to))
    }
}

impl Disk for RealDisk {
    fn dir(&self) -> &Path {
        &self.dir
    }

    fn apply(&self, op: Op<'_>) -> io::Result<()> {
        match op {
            Op::Allocate { name, len } => self.allocate(name, len),
            Op::Write { name, offset, bytes } => write(&*self.kept(name)?, bytes, offset),
            // Not kept open: another thread may have sealed the file, and nothing closes it later.
            Op::Sync { name } => self.file(name)?.sync_all(),
            Op::Punch { name, offset } => {
                let punched = self.file(name).and_then(|file| punch(&file, offset));
                self.forget(name); // sealing ends with it: the file is not written again
                punched
            }
            Op::Rename { from, to } => self.rename(from, to),
            Op::Remove { name } => {
                self.forget(name);
                fs::remove_file(self.dir.join(name))
            }
            Op::SyncDir if cfg!(miri) => Ok(()), // it syncs no directories
            Op::SyncDir => File::open(&self.dir)?.sync_all(),
        }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        free_bytes(&self.dir)
    }
}

/// Bytes that are written at a time. For larger writes Linux takes larger blocks of memory, which
/// in a virtual machine the host may have to find first: docs/decisions/0006.
const PIECE: u64 = 64 << 10;

/// Writes piece by piece, each up to the next multiple of [`PIECE`].
fn write(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let room = (PIECE - offset % PIECE) as usize;
        let (piece, rest) = bytes.split_at(room.min(bytes.len()));
        file.write_all_at(piece, offset)?;
        (bytes, offset) = (rest, offset + piece.len() as u64);
    }
    Ok(())
}

/// Opens the file whose lock the writer holds; makes it if it is not there.
pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).custom_flags(NONBLOCK);
    regular(options.open(path)?)
}

/// Bytes that an ordinary user can still allocate on the file system of `dir`.
pub fn free_bytes(dir: &Path) -> io::Result<u64> {
    if cfg!(miri) {
        return Ok(u64::MAX);
    }
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Reserves `len` bytes, so that a full disk is met here and not in the middle of a record.
fn reserve(file: &File, len: u64) -> io::Result<()> {
    if cfg!(miri) {
        return file.set_len(len);
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
        // No such call on this file system: the blocks come when they are written.
        Err(Errno::OPNOTSUPP) => file.set_len(len),
        done => Ok(done?),
    }
}

fn punch(file: &File, offset: u64) -> io::Result<()> {
    let len = file.metadata()?.len().saturating_sub(offset);
    if len == 0 || cfg!(miri) {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, offset, len) {
        // Then the space comes back when the segment is evicted.
        Err(Errno::OPNOTSUPP) => Ok(()),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_file_that_was_sealed_meanwhile_is_not_kept_open() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(dir.path());
        let name = "sealed";
        disk.apply(Op::Allocate { name, len: 8 }).unwrap();
        disk.apply(Op::Write { name, offset: 0, bytes: b"bytes" }).unwrap();
        disk.apply(Op::Punch { name, offset: 5 }).unwrap();
        disk.apply(Op::Sync { name }).unwrap();
        assert!(disk.files().is_empty(), "{:?}", disk.files());
    }
}
