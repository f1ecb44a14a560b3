//! A client that goes while its request is offloaded.

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
    /// Says whether it was told.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
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
                biased;
                done = &mut work => return done,
                () = sleep(GONE_INTERVAL) => {}
            }
            // Relaxed: it belongs to no other datum.
            self.0.fetch_or(has_gone(), Ordering::Relaxed);
        }
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Awaits work of this thread as long as its client is there. The work of one that has gone is dropped.
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
