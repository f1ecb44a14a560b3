//! A bound on memory that many share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory that many share: of filters and subscriptions for what they look for, of connections for bodies
/// and for messages that are on their way. A caller may send any by the megabyte.
#[derive(Debug)]
pub(crate) struct Room {
    left: AtomicUsize,
}

/// Some of it, until dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(bytes) })
    }

    /// Takes so many bytes; `None` if there are fewer.
    pub(crate) fn take(room: &Arc<Self>, bytes: usize) -> Option<Taken> {
        let less = |left: usize| left.checked_sub(bytes);
        // Relaxed: the number belongs to no other datum.
        room.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        Some(Taken { room: Arc::clone(room), bytes })
    }

    /// How many bytes are left.
    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }
}

impl Taken {
    /// Nothing yet.
    pub(crate) fn nothing(room: &Arc<Room>) -> Self {
        Self { room: Arc::clone(room), bytes: 0 }
    }

    /// Takes so many bytes more; false, and as many as before, if there are fewer.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let Some(mut more) = Room::take(&self.room, bytes) else { return false };
        self.bytes += std::mem::take(&mut more.bytes);
        true
    }

    /// The same, up to so many bytes in all.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        bytes <= self.bytes || self.grow(bytes - self.bytes)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_so_much_and_all_of_it_comes_back() {
        let room = Room::new(10);
        let (mut grown, other) = (Taken::nothing(&room), Room::take(&room, 3).unwrap());
        assert!(grown.grow(5) && grown.grow(2) && !grown.grow(1));
        assert!(Room::take(&room, 1).is_none() && grown.grow(0));
        drop(other);
        assert!(grown.grow_to(7) && grown.grow_to(9) && !grown.grow_to(11));
        assert!(grown.grow(1) && room.left() == 0);
        drop(grown);
        assert_eq!(room.left(), 10);
    }
}
