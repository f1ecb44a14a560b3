//! Filters: queries whose new results a caller polls for.
//!
//! A filter is a cursor, as a subscription is (`src/rpc/cursors/subscriptions.rs`). Its cost does
//! not grow between polls. After five minutes without a poll it is removed, as the node
//! removes it (libevm and coreth, `eth/filters/api.go`: after five to ten, by a timer).

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use neve_jsonrpc::{LogRange, RpcError};
use neve_record::log_matcher::LogMatcher;
use neve_store::residency::{self, Cold};

use crate::shared::lock::{lock, try_lock};
use crate::shared::{Account, FilterPlace, Holder, Reservation};

/// Time without a poll after which a filter is removed.
const IDLE_MAX: Duration = Duration::from_mins(5);

/// Kind of a filter.
#[derive(Debug)]
pub(crate) enum FilterKind {
    /// Hashes of new blocks.
    Blocks,
    /// Logs of a range.
    Logs(LogRange, LogMatcher),
}

/// A filter. Its cursor is locked while its changes are collected, and nothing else is.
#[derive(Debug)]
pub(crate) struct OpenFilter {
    /// Kind of the filter.
    pub(crate) topic: FilterKind,
    /// First height that it has not delivered; `None` if the store was empty when it was made.
    next: Mutex<Option<u64>>,
    /// Memory, and its place among the filters of its address.
    _held: (Reservation, FilterPlace),
}

#[derive(Debug)]
pub(crate) struct FilterEntry {
    filter: Arc<OpenFilter>,
    asked: Instant,
}

/// All filters of the server.
#[derive(Debug)]
pub(crate) struct Filters {
    max: AtomicUsize,
    /// Filters of one address.
    address_max: AtomicUsize,
    held: Mutex<HeldFilters>,
}

#[derive(Debug, Default)]
struct HeldFilters {
    entries: HashMap<String, FilterEntry>,
    /// No filter is idle before.
    idle_from: Option<Instant>,
}

impl Filters {
    /// Makes places for `max` filters, of which one address may have `address_max`.
    pub(crate) fn new(max: usize, address_max: usize) -> Self {
        Self { max: max.into(), address_max: address_max.into(), held: Mutex::default() }
    }

    /// Sets other bounds. Filters beyond them stay open.
    pub(crate) fn set_max(&self, max: usize, address_max: usize) {
        // Relaxed: a filter that is made at this moment may still have the bounds of before.
        self.max.store(max, Ordering::Relaxed);
        self.address_max.store(address_max, Ordering::Relaxed);
    }

    /// Makes a filter of this id, which delivers heights above `head`.
    pub(crate) fn open(
        &self,
        id: String,
        topic: FilterKind,
        head: Option<u64>,
        now: Instant,
        account: Account<'_>,
    ) -> Result<String, RpcError> {
        let bytes = topic.bytes();
        let mut held = self.held();
        let mut place = self.place(&held, bytes, account);
        // Those that became idle since the last removal free their places.
        let idle = if place.is_err() { held.take_idle(now) } else { Vec::new() };
        if !idle.is_empty() {
            drop(held); // the memory of many filters takes a while to give back
            drop(idle);
            held = self.held();
            place = self.place(&held, bytes, account);
        }
        let filter = Arc::new(OpenFilter::new(topic, head, place?));
        held.entries.insert(id.clone(), FilterEntry { filter, asked: now });
        Ok(id)
    }

    /// Reserves memory and a place for one more filter.
    fn place(
        &self,
        held: &HeldFilters,
        bytes: usize,
        account: Account<'_>,
    ) -> Result<(Reservation, FilterPlace), RpcError> {
        let max = self.max.load(Ordering::Relaxed);
        // Under the caller's lock, so that two filters do not pass one bound.
        if held.entries.len() >= max {
            return Err(too_many(max));
        }
        let reservation = account.reserve(Holder::Filter, bytes).ok_or_else(no_memory)?;
        let address_max = self.address_max.load(Ordering::Relaxed);
        let place = reservation.place(address_max);
        let place = place.ok_or_else(|| too_many_of_address(address_max))?;
        Ok((reservation, place))
    }

    /// Returns a filter without a poll (as the node's `eth_getFilterLogs`).
    pub(crate) fn get(&self, id: &str, now: Instant) -> Option<Arc<OpenFilter>> {
        let mut held = self.held();
        // One that expired since the last removal is still here.
        if held.entries.get(id)?.is_idle(now) {
            held.entries.remove(id);
        }
        held.entries.get(id).map(|entry| Arc::clone(&entry.filter))
    }

    /// Returns a filter, and notes the poll.
    pub(crate) fn poll(&self, id: &str, now: Instant) -> Option<Arc<OpenFilter>> {
        let filter = self.get(id, now)?;
        // Another caller may have removed it since: then this poll is its last.
        if let Some(entry) = self.held().entries.get_mut(id) {
            entry.asked = now;
        }
        Some(filter)
    }

    /// Removes a filter, and returns it if there was one.
    pub(crate) fn close(&self, id: &str, now: Instant) -> Option<FilterEntry> {
        let removed = self.held().entries.remove(id);
        // For its client an idle one was gone already.
        removed.filter(|entry| !entry.is_idle(now))
    }

    /// Removes idle filters: they take memory that other clients need for requests.
    pub(crate) fn remove_idle(&self, now: Instant) {
        let idle = self.held().take_idle(now);
        drop(idle); // after the lock: the memory of many filters takes a while to give back
    }

    fn held(&self) -> MutexGuard<'_, HeldFilters> {
        lock(&self.held)
    }
}

impl HeldFilters {
    /// Removes filters that no client polls. Checks none before one can be idle: a client that is refused may
    /// ask as often as it likes, and others wait for the lock.
    fn take_idle(&mut self, now: Instant) -> Vec<FilterEntry> {
        if self.idle_from.is_some_and(|from| now < from) {
            return Vec::new();
        }
        let idle = self.entries.extract_if(|_, entry| entry.is_idle(now));
        let idle = idle.map(|(_, entry)| entry).collect();
        // Polls only make it later, and so are new filters.
        let oldest = self.entries.values().map(|entry| entry.asked).min();
        self.idle_from = Some(oldest.unwrap_or(now) + IDLE_MAX);
        idle
    }
}

impl FilterEntry {
    fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) >= IDLE_MAX
    }
}

impl OpenFilter {
    fn new(topic: FilterKind, head: Option<u64>, held: (Reservation, FilterPlace)) -> Self {
        Self { topic, next: Mutex::new(head.map(|head| head + 1)), _held: held }
    }

    /// Delivers heights that it has not delivered yet: `take` gets the first of them, and returns the height after
    /// the last one that it delivered, or fails. Two callers at once get each height once. Returns the next
    /// height before and after.
    pub(crate) fn take<E: From<Cold>>(
        &self,
        take: impl FnOnce(Option<u64>) -> Result<u64, E>,
    ) -> Result<(Option<u64>, Option<u64>), E> {
        // The lock is held while `take` works, so that a second caller waits for the outcome.
        let mut next = self.unless_taken()?;
        let before = *next;
        let after = take(before)?;
        // Never back: the head is lower than before if heights were withdrawn.
        *next = Some(before.unwrap_or(0).max(after));
        Ok((before, *next))
    }

    /// Locks the cursor. A thread that serves others does not wait for another caller's search: [`Cold`].
    fn unless_taken(&self) -> Result<MutexGuard<'_, Option<u64>>, Cold> {
        if let Some(next) = try_lock(&self.next) {
            return Ok(next);
        }
        residency::not_here()?;
        Ok(self.next())
    }

    fn next(&self) -> MutexGuard<'_, Option<u64>> {
        lock(&self.next)
    }
}

/// A change that an answer made.
#[derive(Debug)]
pub(crate) enum Change {
    /// The filter of this id was made.
    Opened(String),
    /// The filter was removed.
    Closed(String, FilterEntry),
    /// The filter has delivered more.
    Told {
        /// The filter itself.
        filter: Arc<OpenFilter>,
        /// Next height before the call.
        before: Option<u64>,
        /// Next height after the call.
        after: Option<u64>,
    },
}

/// Changes made for a body, in order. The client of a refused batch asks another server, so it never
/// sees the results of this one.
#[derive(Debug, Default)]
pub(crate) struct UndoLog(RefCell<Vec<Change>>);

impl UndoLog {
    /// Notes a change.
    pub(crate) fn note(&self, change: Change) {
        self.0.borrow_mut().push(change);
    }

    /// Adds the changes of the next call.
    pub(crate) fn add(&mut self, next: Self) {
        self.0.get_mut().append(&mut next.0.into_inner());
    }

    /// Undoes all changes, except later deliveries to another caller. Two callers with the same filter each lose
    /// the results that the other one gets, at the node too.
    pub(crate) fn undo(&mut self, filters: &Filters) {
        // The last first: one batch may open a filter and end it.
        for change in self.0.get_mut().drain(..).rev() {
            match change {
                Change::Opened(id) => drop(filters.held().entries.remove(&id)),
                Change::Closed(id, entry) => drop(filters.held().entries.insert(id, entry)),
                Change::Told { filter, before, after } => {
                    let mut next = filter.next();
                    if *next == after {
                        *next = before;
                    }
                }
            }
        }
    }
}

impl FilterKind {
    /// Bytes in memory, approximately.
    fn bytes(&self) -> usize {
        let fixed = size_of::<OpenFilter>() + size_of::<FilterEntry>();
        match self {
            Self::Blocks => fixed,
            Self::Logs(_, wanted) => fixed + wanted.bytes(),
        }
    }
}

/// An id of a subscription as the node makes them: 128 random bits in hex, without leading zeros.
pub(crate) fn new_id() -> String {
    // An id counts on its own connection only, so it need not be hard to guess.
    format!("{:#x}", fastrand::u128(..))
}

fn too_many(max: usize) -> RpcError {
    let message = format!("too many filters, allowed are {max}; remove some or try again later");
    RpcError { code: -32005, message: message.into() }
}

fn too_many_of_address(max: usize) -> RpcError {
    let message = format!(
        "too many filters of this address, allowed are {max}; remove some or try again later"
    );
    RpcError { code: -32005, message: message.into() }
}

/// Error for a caller for whom there is no memory.
pub(crate) fn no_memory() -> RpcError {
    let message = "filters and subscriptions take all the memory that they may; \
                   list fewer addresses and topics, or try again later";
    RpcError { code: -32005, message: message.into() }
}

#[cfg(test)]
mod tests;
