//! Filters: what a caller asks again and again for news of.
//!
//! A filter is a cursor, as a subscription is (`src/ws`), so it costs no more than what it looks
//! for, however long nobody asks. Those that nobody asks for five minutes are removed, as the node
//! removes them (libevm and coreth, `eth/filters/api.go`: after five to ten, by a timer).

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use neve_jsonrpc::{LogRange, RpcError};

use crate::logs::Wanted;
use crate::room::{Room, Taken};

/// How long a filter is kept whose changes nobody asks for.
const IDLE_MAX: Duration = Duration::from_mins(5);

/// What a filter is of.
#[derive(Debug)]
pub(crate) enum Topic {
    /// Blocks.
    Blocks,
    /// Logs of a range.
    Logs(LogRange, Wanted),
}

/// One filter. Its cursor is locked while its changes are collected, and nothing else is.
#[derive(Debug)]
pub(crate) struct Filter {
    /// What it is of.
    pub(crate) topic: Topic,
    /// The next height that it has not told of; `None` if nothing was held when it was made.
    next: Mutex<Option<u64>>,
    _room: Taken,
}

#[derive(Debug)]
pub(crate) struct Entry {
    filter: Arc<Filter>,
    asked: Instant,
}

/// All filters of the server.
#[derive(Debug)]
pub(crate) struct Filters {
    max: usize,
    /// What filters and subscriptions may take.
    pub(crate) room: Arc<Room>,
    held: Mutex<HashMap<String, Entry>>,
}

impl Filters {
    /// None yet, and never more than `max`, nor more than there is room for.
    pub(crate) fn new(max: usize, bytes_max: usize) -> Self {
        Self { max, room: Room::new(bytes_max), held: Mutex::default() }
    }

    /// Makes one that tells of what comes after `head`.
    pub(crate) fn open(
        &self,
        topic: Topic,
        head: Option<u64>,
        now: Instant,
    ) -> Result<String, RpcError> {
        let bytes = topic.bytes();
        let mut held = self.held();
        let mut taken = Room::take(&self.room, bytes);
        if held.len() >= self.max || taken.is_none() {
            held.retain(|_, entry| !entry.is_idle(now));
            taken = taken.or_else(|| Room::take(&self.room, bytes));
        }
        if held.len() >= self.max {
            return Err(too_many(self.max));
        }
        let taken = taken.ok_or_else(no_room)?;
        let next = Mutex::new(head.map(|head| head + 1));
        let (id, filter) = (new_id(), Arc::new(Filter { topic, next, _room: taken }));
        held.insert(id.clone(), Entry { filter, asked: now });
        Ok(id)
    }

    /// A filter, which does not count as asked (as the node's `eth_getFilterLogs`).
    pub(crate) fn get(&self, id: &str, now: Instant) -> Option<Arc<Filter>> {
        let mut held = self.held();
        if held.get(id)?.is_idle(now) {
            held.remove(id);
        }
        held.get(id).map(|entry| Arc::clone(&entry.filter))
    }

    /// A filter whose changes are asked for.
    pub(crate) fn ask(&self, id: &str, now: Instant) -> Option<Arc<Filter>> {
        let filter = self.get(id, now)?;
        if let Some(entry) = self.held().get_mut(id) {
            entry.asked = now;
        }
        Some(filter)
    }

    /// Removes a filter, and gives it away if there was one.
    pub(crate) fn close(&self, id: &str, now: Instant) -> Option<Entry> {
        let removed = self.held().remove(id);
        removed.filter(|entry| !entry.is_idle(now))
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) >= IDLE_MAX
    }
}

impl Filter {
    /// Takes the heights up to `head` that it has not told of yet, which then count as told: all of
    /// them, or none if `take` fails. Two callers at once get each height once. Returns what was next
    /// before and what is now.
    pub(crate) fn take<E>(
        &self,
        head: u64,
        take: impl FnOnce(Option<u64>) -> Result<(), E>,
    ) -> Result<(Option<u64>, Option<u64>), E> {
        let mut next = self.next();
        let before = *next;
        take(before)?;
        *next = Some(before.unwrap_or(0).max(head + 1));
        Ok((before, *next))
    }

    fn next(&self) -> MutexGuard<'_, Option<u64>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that answering has changed.
#[derive(Debug)]
pub(crate) enum Change {
    /// The filter of this id was made.
    Opened(String),
    /// It was removed.
    Closed(String, Entry),
    /// It has told of more.
    Told {
        /// Which.
        filter: Arc<Filter>,
        /// What was next before.
        before: Option<u64>,
        /// What is.
        after: Option<u64>,
    },
}

/// What answering a body has changed, in order. A batch that is refused is asked of another server, so
/// nobody hears what it was told here.
#[derive(Debug, Default)]
pub(crate) struct Changes(RefCell<Vec<Change>>);

impl Changes {
    /// Notes one.
    pub(crate) fn note(&self, change: Change) {
        self.0.borrow_mut().push(change);
    }

    /// Takes in those of the next call.
    pub(crate) fn add(&mut self, next: Self) {
        self.0.get_mut().append(&mut next.0.into_inner());
    }

    /// Takes all back, but for what somebody else was told since. (If that is refused as well, nobody hears
    /// what came before: two who share a filter have always had to live with what the other hears.)
    pub(crate) fn undo(&mut self, filters: &Filters) {
        for change in self.0.get_mut().drain(..).rev() {
            match change {
                Change::Opened(id) => drop(filters.held().remove(&id)),
                Change::Closed(id, entry) => drop(filters.held().insert(id, entry)),
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

impl Topic {
    /// What it takes in memory, about.
    fn bytes(&self) -> usize {
        let fixed = size_of::<Filter>() + size_of::<Entry>();
        match self {
            Self::Blocks => fixed,
            Self::Logs(_, wanted) => fixed + wanted.bytes(),
        }
    }
}

/// An id as the node makes them: 128 random bits in hex, without leading zeros.
pub(crate) fn new_id() -> String {
    format!("{:#x}", fastrand::u128(..))
}

fn too_many(max: usize) -> RpcError {
    let message = format!("too many filters, allowed are {max}; remove some or try again later");
    RpcError { code: -32005, message: message.into() }
}

/// What a caller is told for whom there is no room.
pub(crate) fn no_room() -> RpcError {
    let message = "filters and subscriptions take all the memory that they may; \
                   list fewer addresses and topics, or try again later";
    RpcError { code: -32005, message: message.into() }
}

#[cfg(test)]
mod tests {
    use neve_jsonrpc::LogFilter;

    use super::*;

    fn filters(max: usize) -> (Filters, Instant) {
        (Filters::new(max, 1 << 20), Instant::now())
    }

    fn next(
        filters: &Filters,
        id: &str,
        head: u64,
        now: Instant,
    ) -> Result<Option<u64>, &'static str> {
        let told = filters.ask(id, now).ok_or("gone")?.take(head, |_| Ok(()))?;
        Ok(told.0)
    }

    #[test]
    fn each_height_is_told_once() {
        let (filters, now) = filters(2);
        let id = filters.open(Topic::Blocks, Some(9), now).unwrap();
        assert_eq!(next(&filters, &id, 9, now), Ok(Some(10)));
        assert_eq!(next(&filters, &id, 12, now), Ok(Some(10)));
        assert_eq!(next(&filters, &id, 12, now), Ok(Some(13)));
        let filter = filters.ask(&id, now).unwrap();
        assert_eq!(filter.take(20, |_| Err("no")), Err("no"));
        assert_eq!(next(&filters, &id, 20, now), Ok(Some(13)));
        assert!(filters.close(&id, now).is_some() && filters.close(&id, now).is_none());
        assert_eq!(next(&filters, &id, 20, now), Err("gone"));
    }

    #[test]
    fn what_a_refused_batch_was_told_is_told_again() {
        let (filters, now) = filters(9);
        let [told, closed] = [(); 2].map(|()| filters.open(Topic::Blocks, Some(9), now).unwrap());
        let mut changes = Changes::default();
        let mut tell = |head| {
            let filter = filters.ask(&told, now).unwrap();
            let (before, after) = filter.take(head, |_| Ok::<_, ()>(())).unwrap();
            let next = Changes::default();
            next.note(Change::Told { filter, before, after });
            changes.add(next);
        };
        tell(12);
        tell(15);
        let opened = filters.open(Topic::Blocks, Some(9), now).unwrap();
        changes.note(Change::Opened(opened.clone()));
        let entry = filters.close(&closed, now).unwrap();
        changes.note(Change::Closed(closed.clone(), entry));
        changes.undo(&filters);
        assert_eq!(next(&filters, &told, 15, now), Ok(Some(10)));
        assert_eq!(next(&filters, &closed, 15, now), Ok(Some(10)));
        assert_eq!(next(&filters, &opened, 15, now), Err("gone"));
        // What somebody else was told since stays told.
        let filter = filters.ask(&told, now).unwrap();
        let (before, after) = filter.take(20, |_| Ok::<_, ()>(())).unwrap();
        changes.note(Change::Told { filter, before, after });
        assert_eq!(next(&filters, &told, 30, now), Ok(Some(21)));
        changes.undo(&filters);
        assert_eq!(next(&filters, &told, 30, now), Ok(Some(31)));
    }

    #[test]
    fn whoever_is_not_asked_for_five_minutes_goes() {
        let (filters, start) = filters(9);
        let at = |seconds| start + Duration::from_secs(seconds);
        let [asked, read, left] =
            [(); 3].map(|()| filters.open(Topic::Blocks, None, start).unwrap());
        assert!(filters.ask(&asked, at(299)).is_some());
        assert!(filters.get(&read, at(299)).is_some());
        // Asking for changes keeps a filter, asking for its logs does not.
        assert!(filters.get(&asked, at(598)).is_some());
        assert!(filters.get(&read, at(300)).is_none());
        assert!(filters.close(&left, at(300)).is_none());
        assert!(filters.get(&asked, at(599)).is_none());
        assert!(filters.held().is_empty());
    }

    #[test]
    fn there_are_at_most_so_many() {
        let (filters, start) = filters(2);
        let first = filters.open(Topic::Blocks, None, start).unwrap();
        assert!(filters.open(Topic::Blocks, None, start).is_ok());
        let error = filters.open(Topic::Blocks, None, start).unwrap_err();
        assert!(error.message.contains("allowed are 2"), "{error:?}");
        drop(filters.close(&first, start));
        assert!(filters.open(Topic::Blocks, None, start).is_ok());
        // Those that are forgotten make room.
        assert!(filters.open(Topic::Blocks, None, start + IDLE_MAX).is_ok());
        assert_eq!(filters.held().len(), 1);
    }

    #[test]
    fn they_take_at_most_so_much() {
        let wanted = |addresses: usize| {
            let filter = LogFilter { addresses: vec![[7; 20]; addresses], topics: Vec::new() };
            let range = LogRange::Block([0; 32]);
            Topic::Logs(range, Wanted::new(&filter))
        };
        let (filters, now) = (Filters::new(1000, 1 << 20), Instant::now());
        assert!(filters.open(wanted(1 << 16), None, now).is_err());
        let count = std::iter::repeat_with(|| filters.open(wanted(1000), None, now));
        let count = count.take_while(Result::is_ok).count();
        assert!((20..60).contains(&count), "{count}");
        let error = filters.open(wanted(1000), None, now).unwrap_err();
        assert_eq!(error, no_room());
        assert!(filters.open(wanted(1000), None, now + IDLE_MAX).is_ok());
        assert_eq!(filters.held().len(), 1);
        drop(filters.held().drain());
        assert_eq!(filters.room.left(), 1 << 20);
    }
}
