//! Filters: what a caller asks again and again for news of.
//!
//! A filter is a cursor, as a subscription is (`src/ws`), so it costs a few hundred bytes however
//! long nobody asks. Those that nobody asks for five minutes are removed, as the node removes them
//! (libevm, `eth/filters/api.go`).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use neve_jsonrpc::LogQuery;

/// How long a filter is kept that nobody asks.
const IDLE_MAX: Duration = Duration::from_mins(5);

/// What a filter is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Topic {
    /// Blocks.
    Blocks,
    /// Logs.
    Logs(LogQuery),
}

#[derive(Debug)]
struct Filter {
    topic: Topic,
    /// The next height that it has not told of; `None` if nothing was held when it was made.
    next: Option<u64>,
    asked: Instant,
}

/// All filters of the server.
#[derive(Debug)]
pub(crate) struct Filters {
    max: usize,
    held: Mutex<HashMap<String, Filter>>,
}

impl Filters {
    /// None yet, and never more than `max`.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, held: Mutex::default() }
    }

    /// Makes one that tells of what comes after `head`; `None` if there are too many. Its id is
    /// as the node makes them: 128 random bits in hex, without leading zeros.
    pub(crate) fn open(&self, topic: Topic, head: Option<u64>) -> Option<String> {
        let mut held = self.held();
        if held.len() >= self.max {
            held.retain(|_, filter| filter.asked.elapsed() < IDLE_MAX);
        }
        if held.len() >= self.max {
            return None;
        }
        let id = format!("{:#x}", fastrand::u128(..));
        let filter = Filter { topic, next: head.map(|head| head + 1), asked: Instant::now() };
        held.insert(id.clone(), filter);
        Some(id)
    }

    /// What a filter is of.
    pub(crate) fn topic(&self, id: &str) -> Option<Topic> {
        self.asked(id, |filter| filter.topic.clone())
    }

    /// What a filter is of, and the heights that it has not told of yet, which count as told. All
    /// of it, or nothing, if `take` fails.
    pub(crate) fn take<R, E>(
        &self,
        id: &str,
        head: u64,
        take: impl FnOnce(&Topic, Option<u64>) -> Result<R, E>,
    ) -> Option<Result<R, E>> {
        self.asked(id, |filter| {
            let taken = take(&filter.topic, filter.next)?;
            filter.next = Some(filter.next.unwrap_or(0).max(head + 1));
            Ok(taken)
        })
    }

    fn asked<R>(&self, id: &str, ask: impl FnOnce(&mut Filter) -> R) -> Option<R> {
        let mut held = self.held();
        if held.get(id)?.asked.elapsed() >= IDLE_MAX {
            held.remove(id);
            return None;
        }
        let filter = held.get_mut(id)?;
        filter.asked = Instant::now();
        Some(ask(filter))
    }

    /// Removes a filter; false if there is none.
    pub(crate) fn close(&self, id: &str) -> bool {
        let removed = self.held().remove(id);
        removed.is_some_and(|filter| filter.asked.elapsed() < IDLE_MAX)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Filter>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a filter has not told of yet: from which height, 0 for all that is held.
    fn next(filters: &Filters, id: &str, head: u64) -> Option<u64> {
        filters.take(id, head, |_, next| Ok::<_, ()>(next.unwrap_or(0))).transpose().unwrap()
    }

    #[test]
    fn each_height_is_told_once() {
        let filters = Filters::new(2);
        let id = filters.open(Topic::Blocks, Some(9)).unwrap();
        assert_eq!(next(&filters, &id, 9), Some(10));
        assert_eq!(next(&filters, &id, 12), Some(10));
        assert_eq!(next(&filters, &id, 12), Some(13));
        assert_eq!(filters.take(&id, 20, |_, _| Err::<(), _>("no")), Some(Err("no")));
        assert_eq!(next(&filters, &id, 20), Some(13));
        assert!(filters.close(&id) && !filters.close(&id));
        assert_eq!(next(&filters, &id, 20), None);
    }

    #[test]
    fn there_are_at_most_so_many() {
        let filters = Filters::new(2);
        let first = filters.open(Topic::Blocks, None).unwrap();
        assert!(filters.open(Topic::Blocks, None).is_some());
        assert!(filters.open(Topic::Blocks, None).is_none());
        filters.close(&first);
        assert!(filters.open(Topic::Blocks, None).is_some());
    }
}
