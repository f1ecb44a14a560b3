//! Lock of a manifest in a directory, for writers on one machine.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

const TIME_MAX: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_millis(20);

/// Waits for the lock of the file at `path`, up to a minute. It is held until the file is dropped.
pub(super) async fn locked(path: &Path) -> io::Result<File> {
    let file = File::create(path)?;
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
