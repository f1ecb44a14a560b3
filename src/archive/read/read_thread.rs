//! Thread that reads the archive for requests: neither a serving thread nor the one that follows the chain works for
//! them. What waits for the disk, or takes long, runs on other threads of its runtime.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tracing::debug;

const NAME: &str = "archive-read";
/// Nice value of all threads: serving threads come first.
const NICE: i32 = 10;
/// Threads that wait for the disk or compute: as many as reads of a directory may be in flight, and as many others.
const THREADS_MAX: usize = 128;

/// The thread. It ends soon after this is dropped.
#[derive(Debug)]
pub(crate) struct ReadThread {
    runtime: Handle,
    _stop: oneshot::Sender<()>,
}

impl ReadThread {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let mut builder = Builder::new_current_thread();
        builder.enable_all().thread_name(NAME).max_blocking_threads(THREADS_MAX);
        let runtime = builder.on_thread_start(yield_to_others).build()?;
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel::<()>());
        thread::Builder::new().name(NAME.to_owned()).spawn(move || {
            yield_to_others();
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

fn yield_to_others() {
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        debug!(%error, "archive reader keeps its priority");
    }
}
