//! Lock of a manifest in a directory, for writers on one machine.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const TIME_MAX: Duration = Duration::from_mins(1);
/// Flag for opening that has no effect on regular files.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
const AGAIN: Duration = Duration::from_millis(20);

/// Waits for the lock of the file at `path`, up to a minute. It is held until the file is dropped.
pub(super) async fn locked(path: &Path) -> io::Result<File> {
    // A FIFO would wait for its reader.
    let mut options = File::options();
    options.write(true).create(true).truncate(true).custom_flags(NONBLOCK);
    let file = options.open(path)?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if begun.elapsed() >= TIME_MAX => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "locked by another writer"));
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep(AGAIN).await,
        }
    }
}
