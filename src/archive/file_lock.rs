//! Lock of a manifest in a directory, for writers on one machine.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

/// Time that a writer waits for another one.
const TIME_MAX: Duration = Duration::from_mins(1);
/// Flag for opening that has no effect on regular files.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
/// Time between two attempts: a wait in the kernel would keep a thread.
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

/// Runs `work` to its end, with the lock in hand: neither a caller that goes away nor the end of the runtime frees
/// the lock of a running change.
pub(super) fn holding<T: Send + 'static>(
    lock: File,
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let runtime = Handle::current();
    // Nothing cancels a blocking task that has begun.
    spawn_blocking(move || {
        let done = runtime.block_on(work);
        drop(lock);
        done
    })
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn lock_is_held_until_the_work_is_done() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let path = dir.path().join("lock");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime starts");
        let (begin, begun) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let other = File::create(&path).expect("it can be made");
        let work = async move {
            begin.send(()).expect("the test waits");
            ended.await
        };
        let wait = runtime.block_on(async {
            let lock = locked(&path).await.expect("it is free");
            let waiting = tokio::spawn(holding(lock, work));
            begun.await.expect("it begins");
            waiting.abort();
            waiting.await
        });
        assert!(wait.expect_err("the caller is gone").is_cancelled());
        runtime.shutdown_background();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)), "the work goes on");
        end.send(()).expect("the work waits");
        other.lock().expect("it is free in the end");
    }
}
