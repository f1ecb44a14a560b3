//! Tables and dictionaries of open files in memory: those that were read last, up to a bound.
//!
//! A file of mainnet has half a megabyte of them in memory, and a store thousands of files. So a file
//! reads its own again when it is asked after others have taken their space. A file in which a hash was looked up has its
//! hash index beside them, 170 kB more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::error::PackedError;
use crate::frames::model::Model;

/// Bound of the memory that the tables and dictionaries of several files take together.
///
/// A running reader keeps those of its file beyond the bound until it ends.
#[derive(Debug)]
pub struct ModelCache {
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Those with a model, the newest last.
    slots: VecDeque<Arc<Slot>>,
    bytes: usize,
}

/// Place of one file's model.
#[derive(Debug, Default)]
struct Slot {
    model: RwLock<Option<Arc<Model>>>,
    /// True if it was read since space was last made.
    used: AtomicBool,
}

impl Slot {
    fn take(&self) -> Option<Arc<Model>> {
        self.model.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ModelCache {
    /// Makes a cache of at most so many bytes. Tables of a file that takes more are read each time.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { bytes_max, kept: Mutex::default() })
    }

    /// Returns the bytes that tables and dictionaries take now.
    pub fn bytes(&self) -> usize {
        self.kept().bytes
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Drops the oldest entry that was not read lately.
    fn trim(&mut self, bytes_max: usize) {
        let mut spared = self.slots.len();
        while self.bytes > bytes_max
            && let Some(oldest) = self.slots.pop_front()
        {
            // Each is spared once a pass at most, or files that are all in use would never end it.
            if oldest.used.swap(false, Ordering::Relaxed) && spared > 0 {
                spared -= 1;
                self.slots.push_back(oldest);
                continue;
            }
            self.bytes -= oldest.take().map_or(0, |model| model.bytes());
        }
    }
}

/// A file's place in a cache.
#[derive(Debug)]
pub(crate) struct CachedModel {
    cache: Arc<ModelCache>,
    slot: Arc<Slot>,
}

impl CachedModel {
    pub(crate) fn new(cache: &Arc<ModelCache>) -> Self {
        Self { cache: Arc::clone(cache), slot: Arc::default() }
    }

    /// Returns the model, if it is in memory.
    pub(crate) fn get(&self) -> Option<Arc<Model>> {
        let model = self.slot.model.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        // Read first: a store by each reader would move the cache line between cores.
        if !self.slot.used.load(Ordering::Relaxed) {
            self.slot.used.store(true, Ordering::Relaxed);
        }
        Some(model)
    }

    /// Returns the model, which `read` reads if it is not in memory.
    pub(crate) fn get_or(
        &self,
        read: impl FnOnce() -> Result<Model, PackedError>,
    ) -> Result<Arc<Model>, PackedError> {
        match self.get() {
            Some(model) => Ok(model),
            None => read().map(|model| self.put(Arc::new(model))),
        }
    }

    fn put(&self, model: Arc<Model>) -> Arc<Model> {
        let bytes = model.bytes();
        if bytes > self.cache.bytes_max {
            return model;
        }
        // This lock first, as in `trim`, which takes those of slots under it.
        let mut kept = self.cache.kept();
        let mut place = self.slot.model.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = &*place {
            return Arc::clone(other); // another thread was first
        }
        *place = Some(Arc::clone(&model));
        drop(place);
        kept.bytes += bytes;
        // Before the new one is in the list, so that it does not go itself.
        kept.trim(self.cache.bytes_max);
        kept.slots.push_back(Arc::clone(&self.slot));
        model
    }

    /// True if the bound leaves space for so many bytes beside `model`. Beyond it they would drive `model` out.
    pub(crate) fn fits(&self, model: &Model, bytes: usize) -> bool {
        model.bytes() + bytes <= self.cache.bytes_max
    }

    /// Adds the hash index to `model`, unless others have taken its space.
    pub(crate) fn add_index(&self, model: &Arc<Model>, index: Vec<u8>) {
        let mut kept = self.cache.kept();
        let is_kept = self.get().is_some_and(|kept| Arc::ptr_eq(&kept, model));
        let bytes = index.len();
        if is_kept && model.add_index(index) {
            kept.bytes += bytes;
            kept.trim(self.cache.bytes_max);
        }
    }
}

impl Drop for CachedModel {
    fn drop(&mut self) {
        let mut kept = self.cache.kept();
        if let Some(model) = self.slot.take() {
            kept.bytes -= model.bytes();
            kept.slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
        }
    }
}
