//! Holding a map from many threads at once.
//!
//! Every slice of an answer keeps its map alive. Were there one count of them, all serving threads
//! would write to it with each request, and nothing else: its cache line would go from core to core
//! and bound what a large machine can serve of its newest segment. So a map is counted in several
//! places, of which a thread uses always the same, and hardly any two threads one.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use super::map::Map;

/// A map that is held, counted in one place; two cache lines apart from other counts, because
/// processors fetch them in pairs.
#[repr(align(128))]
pub(crate) struct PinnedMap(Arc<Map>);

impl Deref for PinnedMap {
    type Target = Map;

    fn deref(&self) -> &Map {
        &self.0
    }
}

impl PinnedMap {
    /// Holds a map that few threads use at once.
    pub(crate) fn alone(map: Map) -> Arc<Self> {
        Arc::new(Self(Arc::new(map)))
    }

    /// True if both are the same map.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The places where a map is counted, each made when it is first used.
pub(crate) struct PinCounts(Box<[OnceLock<Arc<PinnedMap>>]>);

impl PinCounts {
    pub(crate) fn new() -> Self {
        Self((0..count()).map(|_| OnceLock::new()).collect())
    }

    /// Holds `map`, which must always be the same.
    pub(crate) fn hold(&self, map: &Arc<Map>) -> Arc<PinnedMap> {
        let place = &self.0[place()];
        Arc::clone(place.get_or_init(|| Arc::new(PinnedMap(Arc::clone(map)))))
    }
}

/// Twice as many places as processors: not all threads are serving threads.
fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| 2 * available_parallelism().map_or(1, Into::into))
}

/// Place of this thread.
fn place() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PLACE: Cell<Option<usize>> = const { Cell::new(None) };
    }
    PLACE.get().unwrap_or_else(|| {
        // In turns: threads that start together, as serving threads do, get places of their own.
        let place = NEXT.fetch_add(1, Ordering::Relaxed) % count();
        PLACE.set(Some(place));
        place
    })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_count_in_places_of_their_own_and_the_map_lives_as_long_as_any() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let map = Arc::new(Map::new(&file, 4096, 0, 0).unwrap());
        let places = PinCounts::new();
        let (one, again) = (places.hold(&map), places.hold(&map));
        assert!(Arc::ptr_eq(&one, &again) && one.same(&again));
        let other = thread::scope(|scope| scope.spawn(|| places.hold(&map)).join().unwrap());
        assert!(!Arc::ptr_eq(&one, &other) && one.same(&other));
        assert_eq!(size_of::<PinnedMap>(), 128);
        let weak = Arc::downgrade(&map);
        drop((map, places, one, again));
        assert!(weak.upgrade().is_some(), "one slice is left");
        drop(other);
        assert!(weak.upgrade().is_none());
    }
}
