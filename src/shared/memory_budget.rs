//! Memory that clients make neve hold: one budget for all of them, and a share of it for each
//! address.
//!
//! Everything whose length a client chooses is reserved here while neve holds it: HTTP heads,
//! bodies, messages, filters, text of responses, slices that wait to be sent. A connection holds a
//! few kilobytes without a reservation, which `--connections-max` bounds; so a usual request
//! touches nothing that threads share.

use std::array;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::client_address::ClientAddress;
use super::lock::lock;

/// Locks over the shares: addresses that reserve at the same time seldom wait for one another.
const SHARDS: usize = 16;

/// Bytes of each thing that a connection holds without a reservation.
pub(crate) const FREE_BYTES: usize = 4 << 10;

/// Bytes of text and slices that a response holds without a reservation.
pub(crate) const RESPONSE_FREE_BYTES: usize = 8 << 10;
/// Responses reserve in steps.
const RESPONSE_STEP: usize = 16 << 10;

/// Thing that memory is reserved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// HTTP head, or other bytes that are read and not used yet.
    Head,
    /// Body of an HTTP request.
    Body,
    /// Message over WebSocket.
    Message,
    /// Response while it is made.
    Response,
    /// Rest of a response that the client does not read.
    Unread,
    /// Filter or subscription.
    Filter,
    /// Body or response of a relayed request.
    Relay,
}

/// The label of each [`Holder`].
pub(crate) const HOLDERS: [(Holder, &str); 7] = [
    (Holder::Head, "header"),
    (Holder::Body, "body"),
    (Holder::Message, "message"),
    (Holder::Response, "response"),
    (Holder::Unread, "unread"),
    (Holder::Filter, "filter"),
    (Holder::Relay, "relay"),
];

/// Budget of all clients.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    total_max: AtomicUsize,
    address_max: AtomicUsize,
    used: AtomicUsize,
    refused: [AtomicU64; HOLDERS.len()],
    shares: [Mutex<Shares>; SHARDS],
}

type Shares = HashMap<ClientAddress, Weak<AddressShare>>;

/// Part of the budget that one address uses. It exists as long as the address has reservations.
#[derive(Debug)]
struct AddressShare {
    budget: Arc<MemoryBudget>,
    address: ClientAddress,
    used: AtomicUsize,
    /// Filters of this address.
    filters: AtomicUsize,
}

/// Bytes reserved for one thing, until dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    share: Arc<AddressShare>,
    bytes: usize,
    holder: Holder,
}

/// Place of a filter among those of its address, until dropped.
#[derive(Debug)]
pub(crate) struct FilterPlace(Arc<AddressShare>);

/// Client for which memory is reserved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account<'m> {
    memory: &'m Arc<MemoryBudget>,
    address: ClientAddress,
}

/// Memory of one response while it is made.
#[derive(Debug)]
pub(crate) struct Meter<'m> {
    account: Account<'m>,
    held: RefCell<Option<Reservation>>,
    /// Bytes that need no further reservation.
    covered: Cell<usize>,
}

impl MemoryBudget {
    /// Bytes that all clients may make neve hold.
    pub(crate) fn total_max(&self) -> usize {
        self.total_max.load(Ordering::Relaxed)
    }

    /// Sets other bounds. Reservations beyond them stay until they are dropped.
    pub(crate) fn set_max(&self, total_max: usize, address_max: usize) {
        self.total_max.store(total_max, Ordering::Relaxed);
        self.address_max.store(address_max, Ordering::Relaxed);
    }

    /// A budget of `total_max` bytes, of which one address may use `address_max`.
    pub(crate) fn new(total_max: usize, address_max: usize) -> Arc<Self> {
        Arc::new(Self {
            total_max: total_max.into(),
            address_max: address_max.into(),
            used: AtomicUsize::new(0),
            refused: array::from_fn(|_| AtomicU64::new(0)),
            shares: array::from_fn(|_| Mutex::default()),
        })
    }

    /// The account of an address.
    pub(crate) fn account(self: &Arc<Self>, address: ClientAddress) -> Account<'_> {
        Account { memory: self, address }
    }

    /// Bytes that are reserved.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Reservations that were refused.
    pub(crate) fn refused(&self, holder: Holder) -> u64 {
        self.refused[holder as usize].load(Ordering::Relaxed)
    }

    fn share(self: &Arc<Self>, address: ClientAddress) -> Arc<AddressShare> {
        let mut shares = self.shard(address);
        if let Some(share) = shares.get(&address).and_then(Weak::upgrade) {
            return share;
        }
        let (used, filters) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let share = Arc::new(AddressShare { budget: Arc::clone(self), address, used, filters });
        shares.insert(address, Arc::downgrade(&share));
        share
    }

    fn shard(&self, address: ClientAddress) -> MutexGuard<'_, Shares> {
        // Fixed keys suffice: a shard spreads locks, and its map hashes with random keys.
        let mut hasher = DefaultHasher::new();
        address.hash(&mut hasher);
        let shard = &self.shares[hasher.finish() as usize % SHARDS];
        lock(shard)
    }
}

impl Account<'_> {
    /// Reserves bytes; `None` if the total or the address has fewer left.
    pub(crate) fn reserve(self, holder: Holder, bytes: usize) -> Option<Reservation> {
        let share = self.memory.share(self.address);
        let mut reservation = Reservation { share, bytes: 0, holder };
        reservation.grow(bytes).then_some(reservation)
    }

    /// Has `held` cover `bytes`. False, and `held` as before, if too few are left.
    pub(crate) fn hold(self, held: &mut Option<Reservation>, holder: Holder, bytes: usize) -> bool {
        if let Some(held) = held {
            return held.grow_to(bytes);
        }
        *held = self.reserve(holder, bytes);
        held.is_some()
    }
}

impl Reservation {
    /// Reserves more bytes; false, and as many as before, if fewer are left.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let AddressShare { budget, used, .. } = &*self.share;
        // The share first: an address beyond its bound must not touch the count of all.
        let fits = take(used, bytes, budget.address_max.load(Ordering::Relaxed))
            && (take(&budget.used, bytes, budget.total_max()) || {
                // Taken from the share a moment ago, and the total has too few.
                used.fetch_sub(bytes, Ordering::Relaxed);
                false
            });
        if fits {
            self.bytes += bytes;
        } else {
            budget.refused[self.holder as usize].fetch_add(1, Ordering::Relaxed);
        }
        fits
    }

    /// Reserves up to `bytes` in all.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        bytes <= self.bytes || self.grow(bytes - self.bytes)
    }

    /// Gives back all but `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.share.used.fetch_sub(less, Ordering::Relaxed);
        self.share.budget.used.fetch_sub(less, Ordering::Relaxed);
        self.bytes -= less;
    }

    /// Counts a filter of this address; `None` if it has `max` already.
    pub(crate) fn place(&self, max: usize) -> Option<FilterPlace> {
        take(&self.share.filters, 1, max).then(|| FilterPlace(Arc::clone(&self.share)))
    }
}

impl<'m> Meter<'m> {
    pub(crate) fn new(account: Account<'m>) -> Self {
        Self { account, held: RefCell::default(), covered: Cell::new(RESPONSE_FREE_BYTES) }
    }

    /// Client whose response it is.
    pub(crate) fn account(&self) -> Account<'m> {
        self.account
    }

    /// Sees to it that the response may hold `bytes`; false if too few are left.
    #[inline]
    pub(crate) fn covers(&self, bytes: usize) -> bool {
        bytes <= self.covered.get() || self.reserve(bytes)
    }

    #[cold]
    fn reserve(&self, bytes: usize) -> bool {
        // In steps: else each append would touch counts that threads share.
        let bytes = bytes.next_multiple_of(RESPONSE_STEP);
        let fits = self.account.hold(&mut self.held.borrow_mut(), Holder::Response, bytes);
        if fits {
            self.covered.set(bytes);
        }
        fits
    }

    /// Reservation, which the response keeps until it is sent.
    pub(crate) fn into_reservation(self) -> Option<Reservation> {
        self.held.into_inner()
    }
}

/// Adds to `used` unless that exceeds `max`.
fn take(used: &AtomicUsize, more: usize, max: usize) -> bool {
    let add = |used: usize| used.checked_add(more).filter(|used| *used <= max);
    // Relaxed: the number guards no other datum.
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.share.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.share.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for FilterPlace {
    fn drop(&mut self) {
        self.0.filters.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for AddressShare {
    fn drop(&mut self) {
        let mut shares = self.budget.shard(self.address);
        // Another share may have taken the place since the last reference to this one went.
        if shares.get(&self.address).is_some_and(|share| share.strong_count() == 0) {
            shares.remove(&self.address);
            // Many addresses may come once, and must not leave a large table behind.
            if shares.is_empty() {
                shares.shrink_to_fit();
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::IpAddr;

    use super::*;

    pub(crate) fn address(last: u8) -> ClientAddress {
        IpAddr::from([127, 0, 0, last]).into()
    }

    /// A budget without a bound that a test reaches.
    pub(crate) fn plenty() -> Arc<MemoryBudget> {
        MemoryBudget::new(usize::MAX, usize::MAX)
    }

    #[test]
    fn address_and_total_are_bounded_and_all_comes_back() {
        let memory = MemoryBudget::new(10, 6);
        let [one, other] = [1, 2].map(|last| memory.account(address(last)));
        let mut held = one.reserve(Holder::Body, 3).unwrap();
        assert!(held.grow(2) && held.grow_to(6) && held.grow_to(5) && !held.grow(1));
        assert!(one.reserve(Holder::Head, 1).is_none() && one.reserve(Holder::Head, 0).is_some());
        let rest = other.reserve(Holder::Message, 4).unwrap();
        assert!(other.reserve(Holder::Message, 1).is_none(), "the total is used up");
        assert_eq!((memory.used(), held.bytes, rest.bytes), (10, 6, 4));
        drop(held);
        assert!(one.reserve(Holder::Body, 6).is_some(), "a refused reservation takes nothing");
        assert!(other.reserve(Holder::Body, 2).is_some());
        drop(rest);
        assert_eq!(memory.used(), 0);
        let refused = HOLDERS.map(|(holder, _)| memory.refused(holder));
        assert_eq!(refused, [1, 1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn share_exists_while_its_address_has_reservations() {
        let memory = MemoryBudget::new(100, 100);
        let count =
            || memory.shares.iter().map(|shares| shares.lock().unwrap().len()).sum::<usize>();
        let mut held: Vec<_> = (0..50)
            .map(|last| memory.account(address(last)).reserve(Holder::Body, 1).unwrap())
            .collect();
        let again = memory.account(address(0)).reserve(Holder::Body, 1);
        assert_eq!(count(), 50);
        held.truncate(1);
        assert_eq!(count(), 1);
        drop(held);
        assert_eq!(count(), 1, "it has another reservation");
        drop(again);
        assert_eq!(count(), 0);
    }

    #[test]
    fn filters_of_an_address_are_counted() {
        let memory = plenty();
        let one = memory.account(address(1)).reserve(Holder::Filter, 1).unwrap();
        let places: Vec<_> = (0..2).map_while(|_| one.place(2)).collect();
        assert!(places.len() == 2 && one.place(2).is_none());
        assert!(memory.account(address(2)).reserve(Holder::Filter, 1).unwrap().place(2).is_some());
        drop(places);
        assert!(one.place(2).is_some());
    }

    #[test]
    fn every_label_is_in_its_place() {
        assert!(HOLDERS.iter().enumerate().all(|(at, (holder, _))| *holder as usize == at));
    }
}
