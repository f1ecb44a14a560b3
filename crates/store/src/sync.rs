//! Atomics and the swapped pointer of the code that loom checks (`cfg(loom)`, `./check loom`).
//!
//! Under loom the pointer is a mutex: loom checks the order in which this crate publishes, not
//! `arc-swap` itself.

#[cfg(not(loom))]
pub(crate) use arc_swap::ArcSwap;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) struct ArcSwap<T>(loom::sync::Mutex<std::sync::Arc<T>>);

#[cfg(loom)]
impl<T> ArcSwap<T> {
    pub(crate) fn new(value: std::sync::Arc<T>) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn from_pointee(value: T) -> Self {
        Self::new(std::sync::Arc::new(value))
    }

    pub(crate) fn load_full(&self) -> std::sync::Arc<T> {
        std::sync::Arc::clone(&self.0.lock().expect("no thread panics with it"))
    }

    pub(crate) fn load(&self) -> std::sync::Arc<T> {
        self.load_full()
    }

    pub(crate) fn store(&self, value: std::sync::Arc<T>) {
        // The old value is dropped outside of the lock.
        let _old = std::mem::replace(&mut *self.0.lock().expect("no thread panics with it"), value);
    }
}

/// Place where another thread may come between, at a write or a read of bytes of a file: loom sees those of its own
/// types only. It orders nothing else.
#[cfg(not(loom))]
#[inline]
pub(crate) fn file_bytes() {}

#[cfg(loom)]
pub(crate) fn file_bytes() {
    loom::lazy_static! {
        static ref FILES: AtomicUsize = AtomicUsize::new(0);
    }
    FILES.fetch_add(1, Ordering::Relaxed);
}
