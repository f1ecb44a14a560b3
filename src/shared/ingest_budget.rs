//! A bound for the bytes of blocks in flight, from the request to the disk.
//!
//! Answers come in any order and are published in one, so some wait. The bound counts bytes and not
//! blocks. Before neve requests a height, it reserves as many bytes as recent heights took. The
//! reservation goes with the record, and ends when the record is written. Each consumer can reserve
//! one height beyond the bound, so that a consumer that cannot go on does not hold up another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A semaphore counts in 32 bits: this many bytes a unit.
const UNIT: u64 = 1024;
/// Bytes reserved for a height while none has come. Rather too many: on a chain of large blocks the first
/// heights would all be in flight before their size is known.
const FIRST: u64 = 1 << 20;
/// Memory of a height in flight, in multiples of its answer: the answer, which becomes the record; its parsed form
/// while it is proven, two thirds as much; and memory that the allocator has not given back.
const COPIES: u64 = 3;
/// Memory of a waiting record beside its answer, as one part in so many: notes, and memory that the allocator has
/// not given back.
const NOTES: u64 = 2;

/// Budget for the bytes of blocks. Clones are the same budget, and the same consumer.
#[derive(Clone)]
pub(crate) struct IngestBudget {
    room: Arc<Semaphore>,
    /// Reservation for one more height of this consumer.
    spare: Arc<Semaphore>,
    max: u32,
    /// Bytes that a height takes: of the largest lately.
    height: Arc<AtomicU64>,
}

/// Bytes that are taken, and given back when this is dropped.
#[derive(Debug)]
pub(crate) enum IngestReservation {
    /// Bytes of the bound.
    Shared(OwnedSemaphorePermit),
    /// The consumer's own.
    Spare {
        /// Given back with the rest.
        _permit: OwnedSemaphorePermit,
    },
    /// None: it goes beyond the bound.
    Forced,
}

impl IngestBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        let max = u32::try_from(bytes as u64 / UNIT).unwrap_or(u32::MAX).max(1);
        let room = Arc::new(Semaphore::new(max as usize));
        let spare = Arc::new(Semaphore::new(1));
        Self { room, spare, max, height: Arc::new(AtomicU64::new(FIRST)) }
    }

    fn units(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.max)
    }

    /// Shares the budget with another consumer.
    pub(crate) fn consumer(&self) -> Self {
        Self { spare: Arc::new(Semaphore::new(1)), ..self.clone() }
    }

    /// Reserves one more height, if the budget allows it; the spare reservation only `if_alone`, while the consumer
    /// fetches nothing.
    pub(crate) fn take(&self, if_alone: bool) -> Option<IngestReservation> {
        let units = self.units(COPIES * self.height.load(Ordering::Relaxed));
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_many_owned(units) {
            return Some(IngestReservation::Shared(permit));
        }
        let spare = if if_alone { Arc::clone(&self.spare).try_acquire_owned().ok() } else { None };
        spare.map(|permit| IngestReservation::Spare { _permit: permit })
    }

    /// Waits until the budget may allow one more height: the spare reservation too `if_alone`.
    pub(crate) async fn freed(&self, if_alone: bool) {
        let units = self.units(COPIES * self.height.load(Ordering::Relaxed));
        // What is acquired is given back at once.
        tokio::select! {
            _ = self.room.acquire_many(units) => {}
            _ = self.spare.acquire(), if if_alone => {}
        }
    }

    /// Fits a reservation to a height that came with `bytes`: returns the bytes that are too many, or
    /// takes those that lack, as far as the budget allows.
    pub(crate) fn fit(&self, room: &mut IngestReservation, bytes: u64) {
        // No atomic step: a lost update costs little, as the number is an estimate.
        let expected = self.height.load(Ordering::Relaxed);
        // Rises at once and falls slowly: one small block says little of the next one.
        let next = if bytes > expected { bytes } else { expected - (expected - bytes) / 16 };
        self.height.store(next, Ordering::Relaxed);
        // A spare or forced reservation has no bytes to fit.
        let IngestReservation::Shared(permit) = room else { return };
        let needed = self.units(bytes + bytes / NOTES) as usize;
        let taken = permit.num_permits();
        drop(permit.split(taken.saturating_sub(needed)));
        let missing = needed.saturating_sub(taken).min(self.room.available_permits());
        // Another consumer may have it by now: then the height goes beyond the bound.
        if let Ok(more) = Arc::clone(&self.room).try_acquire_many_owned(missing as u32) {
            permit.merge(more);
        }
    }

    /// Bytes that are taken.
    pub(crate) fn taken(&self) -> u64 {
        u64::from(self.max).saturating_sub(self.room.available_permits() as u64) * UNIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bytes_and_comes_back() {
        let budget = IngestBudget::new(6 << 20);
        let mut taken = Vec::new();
        while let Some(room) = budget.take(false) {
            taken.push(room);
        }
        assert_eq!((taken.len(), budget.taken()), (2, 6 << 20));
        // They turn out smaller: the budget has space for more, and more are taken at a time.
        taken.iter_mut().for_each(|room| budget.fit(room, 16 << 10));
        assert_eq!(budget.taken(), 2 * (24 << 10));
        while let Some(mut room) = budget.take(false) {
            budget.fit(&mut room, 16 << 10);
            taken.push(room);
        }
        assert!(taken.len() > 100 && budget.taken() <= 6 << 20, "{}", taken.len());
        drop(taken);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn larger_payload_keeps_others_out() {
        let budget = IngestBudget::new(8 << 20);
        let mut large = budget.take(false).unwrap();
        budget.fit(&mut large, 4 << 20);
        assert_eq!(budget.taken(), 6 << 20);
        assert!(budget.take(false).is_none(), "the next one is taken for as large");
        budget.fit(&mut large, 1 << 30);
        assert_eq!(budget.taken(), 8 << 20, "there is no more");
        drop(large);
        assert_eq!(budget.taken(), 0);
    }

    /// However long the other consumer keeps its reservation.
    #[test]
    fn each_consumer_has_room_for_one_besides() {
        let budget = IngestBudget::new(1);
        let other = budget.consumer();
        let all = budget.take(false).unwrap(); // a height larger than the budget takes all of it
        assert!(budget.take(false).is_none() && other.take(false).is_none());
        let (mut spare, its) = (budget.take(true).unwrap(), other.take(true).unwrap());
        assert!(budget.take(true).is_none() && other.take(true).is_none());
        budget.fit(&mut spare, 1 << 30);
        drop((spare, its));
        assert!(other.take(true).is_some());
        drop(all);
        assert_eq!(budget.taken(), 0);
    }
}
