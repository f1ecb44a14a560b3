//! All calls that read files of the store. Only pages that are mapped and in memory are read without one.
//!
//! A test makes the n-th call fail, and all later ones if it says so: `read_tests.rs`. Elsewhere [`begin`] is
//! nothing.

use std::fs::{self, DirEntry, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt, MetadataExt as _, OpenOptionsExt};
use std::path::Path;

use rustix::io::Errno;

/// Times that a read is done whose failure would cost more than the time: heights that are left out.
const ATTEMPTS: u32 = 3;

/// Begins a call that reads. It may fail in tests only.
#[cfg(not(test))]
#[inline]
#[allow(clippy::unnecessary_wraps, reason = "it fails in tests")]
pub(crate) fn begin() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(crate) use fault::begin;

/// True if the disk did not deliver bytes (EIO): they may be right, and come next time.
pub(crate) fn is_disk_failure(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// True if an error is one of this file, and says nothing of the store: its bytes are not there, or not delivered.
pub(crate) fn is_of_the_file(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, UnexpectedEof};
    is_disk_failure(error) || matches!(error.kind(), InvalidInput | UnexpectedEof)
}

/// Reads, and reads again if that fails with an error that `is_failure` tells. A network's disk may fail once.
pub(crate) fn again<T, E>(
    is_failure: impl Fn(&E) -> bool,
    mut read: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    for _ in 1..ATTEMPTS {
        match read() {
            Err(error) if is_failure(&error) => {}
            done => return done,
        }
    }
    read()
}

/// Opens a file to read. A name that leads to no regular file is an error of the kind `InvalidInput`.
/// To open a FIFO would wait for its writer; a socket, a device without a driver and a link that leads
/// nowhere cannot be opened.
pub fn open_regular(path: &Path) -> io::Result<File> {
    begin()?;
    match File::options().read(true).custom_flags(NONBLOCK).open(path) {
        Ok(file) => regular(file),
        Err(error) if is_of_a_kind(path, &error) => Err(not_regular()),
        Err(error) => Err(error),
    }
}

/// Opens a directory.
pub(crate) fn open_dir(path: &Path) -> io::Result<File> {
    begin()?;
    File::open(path)
}

/// True if an error of opening says that the name is there, and that it is no regular file.
fn is_of_a_kind(path: &Path, error: &io::Error) -> bool {
    match Errno::from_io_error(error) {
        Some(Errno::NXIO | Errno::NODEV | Errno::LOOP) => true,
        Some(Errno::NOENT) => path.is_symlink(),
        _ => false,
    }
}

/// Flag for opening that has no effect on regular files.
pub(crate) const NONBLOCK: i32 =
    if cfg!(miri) { 0 } else { rustix::fs::OFlags::NONBLOCK.bits().cast_signed() };

/// Returns the file if it is a regular one.
pub(crate) fn regular(file: File) -> io::Result<File> {
    // Of the opened file: its name may lead to another one by now.
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(not_regular())
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// Fills `bytes` from `offset` on.
pub(crate) fn read_exact(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    begin()?;
    file.read_exact_at(bytes, offset)
}

/// Reads as many bytes as one call gives.
pub(crate) fn read_some(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    begin()?;
    file.read_at(bytes, offset)
}

/// Reads a file from its start to its end, at most `most` bytes.
pub(crate) fn read_all(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, mut bytes) = (open_regular(path)?, Vec::new());
    begin()?;
    // Bounded, because another program may have put a file of any length there.
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Length of a file.
pub(crate) fn length(file: &File) -> io::Result<u64> {
    begin()?;
    Ok(file.metadata()?.len())
}

/// Length of the file that a name leads to.
pub(crate) fn length_of(path: &Path) -> io::Result<u64> {
    begin()?;
    Ok(path.metadata()?.len())
}

/// Blocks of the file system that a file takes, in bytes.
pub(crate) fn disk_bytes(file: &File) -> io::Result<u64> {
    begin()?;
    Ok(file.metadata()?.blocks() * 512)
}

/// Facts of a name, and not of what a link leads to.
pub(crate) fn facts(path: &Path) -> io::Result<Metadata> {
    begin()?;
    path.symlink_metadata()
}

/// Entries of a directory.
pub(crate) fn entries(dir: &Path) -> io::Result<impl Iterator<Item = io::Result<DirEntry>>> {
    begin()?;
    Ok(fs::read_dir(dir)?.map(|entry| begin().and(entry)))
}

/// True if the name is there.
pub(crate) fn is_there(path: &Path) -> io::Result<bool> {
    match facts(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[cfg_attr(any(loom, miri), allow(dead_code, reason = "read_tests.rs is not built there"))]
pub(crate) mod fault {
    //! Calls that a test makes fail.

    use std::cell::Cell;
    use std::io;

    use rustix::io::Errno;

    /// First call of this thread that fails, how many fail, and those that were made.
    type Fault = (usize, usize, usize);

    thread_local! {
        static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Does work of which so many calls fail, from number `first` on. Returns the number of calls, too.
    pub(crate) fn at<T>(first: usize, times: usize, work: impl FnOnce() -> T) -> (T, usize) {
        FAULT.set(Some((first, times, 0)));
        let done = work();
        (done, FAULT.take().map_or(0, |(_, _, calls)| calls))
    }

    /// True if this thread counts its calls: then no page counts as in memory, so that each has to be loaded.
    pub(crate) fn is_on() -> bool {
        FAULT.get().is_some()
    }

    pub(crate) fn begin() -> io::Result<()> {
        let Some((first, times, calls)) = FAULT.get() else { return Ok(()) };
        FAULT.set(Some((first, times, calls + 1)));
        let fails = calls >= first && calls - first < times;
        if fails { Err(Errno::IO.into()) } else { Ok(()) }
    }
}
