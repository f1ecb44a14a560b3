//! Locks that keep out a second writer.

use std::fs::File;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::names::LOCK_NAME;
use super::real_disk::open_lock;
use crate::error::Error;
use crate::reads;

/// Locks that keep out a second writer, held until they are dropped.
pub(crate) struct Locks {
    _file: File,
    _directory: File,
}

impl Locks {
    /// Takes the locks of a writer. The one on the directory holds also after a program removed the
    /// file. The one on the file keeps out older programs, and holds where a directory has no locks.
    pub(crate) fn take(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(LOCK_NAME);
        // The locks come before any look at files: another writer may change them.
        let file = open_lock(&path).map_err(|error| Error::read(&path, error))?;
        let directory = reads::open_dir(dir).map_err(|error| Error::read(dir, error))?;
        for (locked, path) in [(&file, path.as_path()), (&directory, dir)] {
            let flock = || rustix::fs::flock(locked, FlockOperation::NonBlockingLockExclusive);
            let done = if cfg!(miri) && path == dir { Ok(()) } else { flock() }; // it locks no directories
            match done {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(Error::Locked { dir: dir.to_owned() }),
                Err(error) if path == dir && has_no_locks(error) => {}
                Err(error) => return Err(Error::read(path, error.into())),
            }
        }
        Ok(Self { _file: file, _directory: directory })
    }
}

/// True if the error says that this file system locks no directories. NFS needs a descriptor that is
/// open for writing, and a directory has none.
fn has_no_locks(error: Errno) -> bool {
    [Errno::BADF, Errno::INVAL, Errno::NOTSUP, Errno::NOSYS, Errno::ISDIR].contains(&error)
}
