//! Clients that leave while their request is offloaded.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::sleep;

use crate::shared::GONE_INTERVAL;

/// Tells work on another thread that its client has gone. Dropped, it says so too.
#[derive(Default)]
pub(crate) struct Gone(Arc<AtomicBool>);

impl Gone {
    /// Returns a function for the other thread, which is true once the client has gone.
    pub(crate) fn for_work(&self) -> impl Fn() -> bool + Send + 'static + use<> {
        let flag = Arc::clone(&self.0);
        // Relaxed: the flag publishes no other data.
        move || flag.load(Ordering::Relaxed)
    }

    /// Awaits work, and looks now and then whether its client has gone.
    pub(crate) async fn watch<T>(
        self,
        work: impl Future<Output = T>,
        mut has_gone: impl FnMut() -> bool,
    ) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                // A result that is there counts, also if the client has gone as well.
                biased;
                done = &mut work => return done,
                () = sleep(GONE_INTERVAL) => {}
            }
            // Relaxed, as above.
            self.0.fetch_or(has_gone(), Ordering::Relaxed);
        }
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Awaits work of this thread, and drops it when its client has gone.
pub(crate) async fn while_here<T>(
    work: impl Future<Output = T>,
    mut has_gone: impl FnMut() -> bool,
) -> Option<T> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            () = sleep(GONE_INTERVAL) => {}
        }
        if has_gone() {
            return None;
        }
    }
}
