//! Threads of a worker's runtime that read the rest of responses from disk.
//!
//! They are few: requests that wait for the disk go to `offload.rs`, which has a queue for each address.

use tokio::task::{JoinHandle, spawn_blocking};

/// Runs work that may wait for the disk.
pub(crate) fn on_disk_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    spawn_blocking(work)
}
