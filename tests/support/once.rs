//! Values that are made once in a program, each when the first test wants it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

type Cells<K, V> = Mutex<HashMap<K, Arc<OnceLock<Arc<V>>>>>;

/// Values by key.
pub(crate) struct Once<K, V>(LazyLock<Cells<K, V>>);

impl<K: Clone + Eq + Hash, V> Once<K, V> {
    pub(crate) const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }

    /// Returns the value of the key. The first caller makes it, others of the same key wait.
    pub(crate) fn of(&self, key: K, make: impl FnOnce(K) -> V) -> Arc<V> {
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = Arc::clone(cells.entry(key.clone()).or_default());
        drop(cells); // others of another key go on
        Arc::clone(cell.get_or_init(|| Arc::new(make(key))))
    }
}
