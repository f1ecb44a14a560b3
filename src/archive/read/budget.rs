//! Reads and pages that one request may bring.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{Mutex, MutexGuard};

use super::fetch::{ObjectNotRead, Payer};

/// Reads that one request may need, unless its logs may need more.
pub(super) const READS_MAX: usize = 256;
/// Pages of these reads: 64 MiB.
pub(super) const PAGES_MAX: usize = 1024;
/// Pages beside those that a request needs, which save it reads: 48 MiB, as ten segments of mainnet have, the most that 12
/// reads bring. The gate bounds those in memory, and the disk has the others.
const SPARE_MAX: usize = 768;

/// Reads that a request may still do, and pages that they may still bring.
pub(super) struct Budget<'p> {
    /// Address of the client.
    pub(super) payer: Payer,
    reads: AtomicUsize,
    pages: AtomicUsize,
    /// Pages that a request may bring beside those that it needs.
    spare: AtomicUsize,
    /// True once reads were taken: what they bring is here at the next attempt.
    has_taken: AtomicBool,
    /// Held by the search of an index, so that a request has one at a time.
    searching: Mutex<()>,
    /// Budget of the request, if this is the one of a call for logs.
    request: Option<&'p Self>,
}

impl<'p> Budget<'p> {
    /// Budget of a request, of which a call for logs may need so many reads.
    pub(super) fn of_a_request(payer: Payer, logs_reads_max: usize) -> Self {
        Self::new(payer, READS_MAX.max(logs_reads_max), None)
    }

    /// Budget of a call for logs in a request.
    pub(super) fn of_logs(request: &'p Self, reads_max: usize) -> Self {
        Self::new(request.payer, reads_max, Some(request))
    }

    fn new(payer: Payer, reads: usize, request: Option<&'p Self>) -> Self {
        let (reads, pages) = (AtomicUsize::new(reads), AtomicUsize::new(PAGES_MAX));
        let spare = AtomicUsize::new(SPARE_MAX);
        let (has_taken, searching) = (AtomicBool::new(false), Mutex::const_new(()));
        Self { payer, reads, pages, spare, has_taken, searching, request }
    }

    /// True if the request has caused a read.
    pub(super) fn has_taken(&self) -> bool {
        self.has_taken.load(Ordering::Relaxed)
    }

    /// Waits until the request searches in no other index. A batch of a thousand hashes lets others go first after each.
    pub(super) async fn searching(&self) -> MutexGuard<'_, ()> {
        self.request.unwrap_or(self).searching.lock().await
    }

    /// Reads that are left.
    pub(super) fn reads_left(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    /// Pages that may still come beside those that are needed.
    pub(super) fn spare_left(&self) -> usize {
        self.request.unwrap_or(self).spare.load(Ordering::Relaxed)
    }

    /// Lets pages come beside those that are needed. They leave as many for those. False if no more may.
    pub(super) fn spare(&self, pages: usize) -> bool {
        let of_all = self.request.unwrap_or(self);
        let is_free = take_from(&of_all.spare, pages).is_some();
        if is_free {
            for budget in self.request.into_iter().chain([self]) {
                budget.pages.fetch_add(pages, Ordering::Relaxed);
            }
        }
        is_free
    }

    /// Takes reads and the pages that they bring.
    pub(super) fn take(&self, (reads, pages): (usize, usize)) -> Result<(), ObjectNotRead> {
        let why =
            if self.request.is_some() { ObjectNotRead::Beyond } else { ObjectNotRead::TooMany };
        // Nothing is given back on an error: it ends the call.
        take_from(&self.reads, reads).ok_or(why)?;
        take_from(&self.pages, pages).ok_or(why)?;
        self.request.map_or(Ok(()), |request| request.take((reads, pages)))?;
        if reads > 0 {
            self.has_taken.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn take_from(left: &AtomicUsize, count: usize) -> Option<usize> {
    // Relaxed: it belongs to no other datum.
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(count)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_beside_those_that_are_needed_have_a_bound_of_their_own() {
        let request = Budget::of_a_request(Payer::Neve, 4);
        let calls = [(); 2].map(|()| Budget::of_logs(&request, 4));
        assert!(calls[0].spare(SPARE_MAX - 1) && !calls[1].spare(2) && calls[1].spare(1));
        assert_eq!(calls[0].take((1, PAGES_MAX + SPARE_MAX - 1)), Ok(()));
        assert_eq!(calls[1].take((1, 2)), Err(ObjectNotRead::TooMany), "the request has one left");
        assert_eq!(request.take((1, 1)), Ok(()));
    }

    #[test]
    fn call_for_logs_has_its_own_bound_and_that_of_its_request() {
        let request = Budget::of_a_request(Payer::Neve, 4);
        let call = Budget::of_logs(&request, 4);
        assert_eq!(call.take((5, 1)), Err(ObjectNotRead::Beyond));
        assert!(!request.has_taken(), "it came to no read");
        assert_eq!((call.take((3, 3)), call.reads_left()), (Ok(()), 1));
        assert_eq!(call.take((1, PAGES_MAX)), Err(ObjectNotRead::Beyond));
        assert!(request.has_taken());
        assert_eq!(request.take((READS_MAX - 3, 1)), Ok(()));
        assert_eq!(Budget::of_logs(&request, 4).take((1, 1)), Err(ObjectNotRead::TooMany));
        let many = Budget::of_a_request(Payer::Neve, 1000);
        assert_eq!(
            (many.take((1000, 1)), many.take((1, 1))),
            (Ok(()), Err(ObjectNotRead::TooMany))
        );
    }
}
