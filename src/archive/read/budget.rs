//! Reads and pages that one request may bring.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::fetch::{NotRead, Payer};

/// Reads that one request may need, unless its logs may need more.
pub(super) const READS_MAX: usize = 256;
/// Pages of these reads: 64 MiB.
pub(super) const PAGES_MAX: usize = 1024;

/// Reads that a request may still do, and pages that they may still bring.
pub(super) struct Budget<'p> {
    /// Address of the client.
    pub(super) payer: Payer,
    reads: AtomicUsize,
    pages: AtomicUsize,
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
        Self { payer, reads, pages, request }
    }

    /// Reads that are left.
    pub(super) fn reads_left(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    /// Takes reads and the pages that they bring.
    pub(super) fn take(&self, (reads, pages): (usize, usize)) -> Result<(), NotRead> {
        let why = if self.request.is_some() { NotRead::Beyond } else { NotRead::TooMany };
        take_from(&self.reads, reads).ok_or(why)?;
        take_from(&self.pages, pages).ok_or(why)?;
        self.request.map_or(Ok(()), |request| request.take((reads, pages)))
    }
}

fn take_from(left: &AtomicUsize, count: usize) -> Option<usize> {
    // Relaxed: it belongs to no other datum.
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(count)).ok()
}
