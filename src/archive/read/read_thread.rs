//! Thread that reads the archive for requests: neither a serving thread nor the one that follows the chain works for
//! them. What waits for the disk, or takes long, runs on other threads of its runtime.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

const NAME: &str = "archive-read";

/// The thread. It ends soon after this is dropped.
#[derive(Debug)]
pub(crate) struct ReadThread {
    runtime: Handle,
    _stop: oneshot::Sender<()>,
}

impl ReadThread {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().thread_name(NAME).build()?;
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel::<()>());
        thread::Builder::new().name(NAME.to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background(); // a read of a stalled mount may never end
        })?;
        Ok(Self { runtime: handle, _stop: stop })
    }

    /// Returns the runtime of the thread.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}
