//! Filters: what each delivers, and what they take.

use neve_jsonrpc::LogFilter;

use super::*;
use crate::shared::MemoryBudget;
use crate::shared::tests::{address, plenty};

fn filters(max: usize) -> (Filters, Instant) {
    (Filters::new(max, max), Instant::now())
}

impl Filters {
    /// Opens one for an address without a bound on its memory.
    fn open_one(
        &self,
        topic: FilterKind,
        head: Option<u64>,
        now: Instant,
    ) -> Result<String, RpcError> {
        self.open(new_id(), topic, head, now, plenty().account(address(1)))
    }
}

fn next(filters: &Filters, id: &str, head: u64, now: Instant) -> Result<Option<u64>, &'static str> {
    let filter = filters.poll(id, now).ok_or("gone")?;
    filter.take(|_| Ok(head + 1)).map(|told| told.0).map_err(|Cold| "cold")
}

#[test]
fn each_height_is_told_once() {
    let (filters, now) = filters(2);
    let id = filters.open_one(FilterKind::Blocks, Some(9), now).unwrap();
    assert_eq!(next(&filters, &id, 9, now), Ok(Some(10)));
    assert_eq!(next(&filters, &id, 12, now), Ok(Some(10)));
    assert_eq!(next(&filters, &id, 12, now), Ok(Some(13)));
    let filter = filters.poll(&id, now).unwrap();
    assert_eq!(filter.take(|_| Err(Cold)), Err(Cold));
    assert_eq!(filter.take(|_| Ok::<_, Cold>(16)), Ok((Some(13), Some(16))), "three of eight");
    assert_eq!(next(&filters, &id, 20, now), Ok(Some(16)));
    assert!(filters.close(&id, now).is_some() && filters.close(&id, now).is_none());
    assert_eq!(next(&filters, &id, 20, now), Err("gone"));
}

#[test]
fn filter_tells_again_after_a_refused_batch() {
    let (filters, now) = filters(9);
    let [told, closed] =
        [(); 2].map(|()| filters.open_one(FilterKind::Blocks, Some(9), now).unwrap());
    let mut changes = UndoLog::default();
    let mut tell = |head: u64| {
        let filter = filters.poll(&told, now).unwrap();
        let (before, after) = filter.take(|_| Ok::<_, Cold>(head + 1)).unwrap();
        let next = UndoLog::default();
        next.note(Change::Told { filter, before, after });
        changes.add(next);
    };
    tell(12);
    tell(15);
    let opened = filters.open_one(FilterKind::Blocks, Some(9), now).unwrap();
    changes.note(Change::Opened(opened.clone()));
    let entry = filters.close(&closed, now).unwrap();
    changes.note(Change::Closed(closed.clone(), entry));
    changes.undo(&filters);
    assert_eq!(next(&filters, &told, 15, now), Ok(Some(10)));
    assert_eq!(next(&filters, &closed, 15, now), Ok(Some(10)));
    assert_eq!(next(&filters, &opened, 15, now), Err("gone"));
    // Deliveries to another caller since then stay delivered.
    let filter = filters.poll(&told, now).unwrap();
    let (before, after) = filter.take(|_| Ok::<_, Cold>(21)).unwrap();
    changes.note(Change::Told { filter, before, after });
    assert_eq!(next(&filters, &told, 30, now), Ok(Some(21)));
    changes.undo(&filters);
    assert_eq!(next(&filters, &told, 30, now), Ok(Some(31)));
}

#[test]
fn filter_expires_after_five_idle_minutes() {
    let (filters, start) = filters(9);
    let at = |seconds| start + Duration::from_secs(seconds);
    let [asked, read, left] =
        [(); 3].map(|()| filters.open_one(FilterKind::Blocks, None, start).unwrap());
    assert!(filters.poll(&asked, at(299)).is_some());
    assert!(filters.get(&read, at(299)).is_some());
    // Asking for changes keeps a filter, asking for its logs does not.
    assert!(filters.get(&asked, at(598)).is_some());
    assert!(filters.get(&read, at(300)).is_none());
    assert!(filters.close(&left, at(300)).is_none());
    assert!(filters.get(&asked, at(599)).is_none());
    assert!(filters.held().entries.is_empty());
}

/// The search of another caller may take seconds, and other connections of the thread would wait for it.
#[test]
fn second_poll_of_a_filter_waits_on_a_thread_that_may_wait() {
    let (filters, now) = filters(1);
    let id = filters.open_one(FilterKind::Blocks, Some(9), now).unwrap();
    let filter = filters.poll(&id, now).unwrap();
    let searching = filter.next();
    let poll = || filter.take(|_| Ok::<_, Cold>(13));
    assert_eq!(residency::if_resident(poll), Err(Cold));
    std::thread::scope(|scope| {
        let second = scope.spawn(|| residency::loading(poll));
        drop(searching);
        assert_eq!(second.join().unwrap(), Ok((Some(10), Some(13))));
    });
    assert_eq!(residency::if_resident(poll), Ok((Some(13), Some(13))));
}

#[test]
fn idle_filters_give_their_memory_back() {
    let memory = MemoryBudget::new(2 << 20, 1 << 20);
    let (filters, start) = filters(9);
    let at = |seconds| start + Duration::from_secs(seconds);
    for seconds in [0, 100] {
        let account = memory.account(address(1));
        filters.open(new_id(), FilterKind::Blocks, None, at(seconds), account).unwrap();
    }
    let both = memory.used();
    for (seconds, used) in [(60, both), (299, both), (300, both / 2), (399, both / 2), (400, 0)] {
        filters.remove_idle(at(seconds));
        assert_eq!(memory.used(), used, "{seconds}");
    }
}

#[test]
fn filters_are_at_most_as_many_as_allowed() {
    let (filters, start) = filters(2);
    let first = filters.open_one(FilterKind::Blocks, None, start).unwrap();
    assert!(filters.open_one(FilterKind::Blocks, None, start).is_ok());
    let error = filters.open_one(FilterKind::Blocks, None, start).unwrap_err();
    assert!(error.message.contains("allowed are 2"), "{error:?}");
    drop(filters.close(&first, start));
    assert!(filters.open_one(FilterKind::Blocks, None, start).is_ok());
    // Those that are forgotten free their places.
    assert!(filters.open_one(FilterKind::Blocks, None, start + IDLE_MAX).is_ok());
    assert_eq!(filters.held().entries.len(), 1);
}

#[test]
fn refused_client_has_no_filters_looked_at_before_one_can_be_idle() {
    let (filters, start) = filters(3);
    let at = |seconds| start + Duration::from_secs(seconds);
    let ids = [0, 10, 20].map(|seconds| {
        filters.open_one(FilterKind::Blocks, None, at(seconds)).expect("there is room")
    });
    let refused = |now| filters.open_one(FilterKind::Blocks, None, now).is_err();
    assert!(refused(at(30)));
    assert_eq!(filters.held().idle_from, Some(at(300)));
    assert!(filters.poll(&ids[0], at(40)).is_some() && refused(at(299)));
    // One look finds none, and knows that none can be idle before 310.
    assert!(refused(at(300)));
    assert_eq!(filters.held().idle_from, Some(at(310)));
    assert!(!refused(at(310)) && refused(at(311)));
    assert_eq!(filters.held().idle_from, Some(at(320)));
    // Filters that are idle now show whether they are looked at.
    filters.held().idle_from = Some(at(1000));
    assert!(refused(at(999)) && !refused(at(1000)));
}

#[test]
fn filters_take_memory_of_their_address() {
    let wanted = |addresses: usize| {
        let filter = LogFilter { addresses: vec![[7; 20]; addresses], topics: Vec::new() };
        let range = LogRange::Block([0; 32]);
        FilterKind::Logs(range, LogMatcher::new(&filter.addresses, &filter.topics))
    };
    let memory = MemoryBudget::new(2 << 20, 1 << 20);
    let [one, other] = [1, 2].map(|last| memory.account(address(last)));
    let (filters, now) = (Filters::new(1000, 1000), Instant::now());
    assert!(filters.open(new_id(), wanted(1 << 16), None, now, one).is_err());
    let count = std::iter::repeat_with(|| filters.open(new_id(), wanted(1000), None, now, one));
    let count = count.take_while(Result::is_ok).count();
    assert!((20..60).contains(&count), "{count}");
    let error = filters.open(new_id(), wanted(1000), None, now, one).unwrap_err();
    assert_eq!(error, no_memory());
    assert!(filters.open(new_id(), wanted(1000), None, now, other).is_ok());
    assert!(filters.open(new_id(), wanted(1000), None, now + IDLE_MAX, one).is_ok());
    assert_eq!(filters.held().entries.len(), 1);
    drop(filters.held().entries.drain());
    assert_eq!(memory.used(), 0);
}

#[test]
fn address_has_a_part_of_the_filters() {
    let memory = plenty();
    let [one, other] = [1, 2].map(|last| memory.account(address(last)));
    let (filters, now) = (Filters::new(4, 2), Instant::now());
    let open = |account| filters.open(new_id(), FilterKind::Blocks, None, now, account);
    let first = open(one).unwrap();
    assert!(open(one).is_ok());
    let error = open(one).unwrap_err();
    assert!(error.message.contains("of this address, allowed are 2"), "{error:?}");
    assert!(open(other).is_ok());
    drop(filters.close(&first, now));
    assert!(open(one).is_ok() && open(one).is_err());
}
