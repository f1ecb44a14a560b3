//! Subscriptions of one connection: what each hears, and what they take.

use super::*;
use crate::shared::MemoryBudget;
use crate::shared::tests::{address, plenty};

const HEADS: Subscription = Subscription::NewHeads { from_block: None };

fn none(max: usize) -> Subscriptions {
    Subscriptions::new(max, Arc::default())
}

fn from(height: u64) -> Subscription {
    Subscription::NewHeads { from_block: Some(height) }
}

fn open(
    all: &mut Subscriptions,
    wanted: Subscription,
    served: Option<RangeInclusive<u64>>,
) -> Option<String> {
    all.open(wanted, served, plenty().account(address(1))).ok().map(str::to_owned)
}

fn told(all: &mut Subscriptions, first: u64, head: u64) -> Vec<(u64, usize)> {
    let mut told = Vec::new();
    while let Some(height) = all.due(first, head) {
        told.push((height, all.notify(height, first, head).len()));
    }
    told
}

#[test]
fn ended_subscriptions_leave_no_memory() {
    let mut all = none(1000);
    all.begin();
    let ids: Vec<_> = (0..1000).filter_map(|_| open(&mut all, HEADS, None)).collect();
    all.begin();
    assert!(ids.len() == 1000 && ids.iter().all(|id| all.close(id)));
    all.undo();
    assert_eq!(all.held.len(), 1000, "a refused frame ends nothing");
    all.begin();
    assert!(ids[1..].iter().all(|id| all.close(id)));
    all.keep();
    assert!(all.held.capacity() <= 4, "{}", all.held.capacity());
    assert_eq!((all.held.len(), all.closed.capacity()), (1, 0));
}

#[test]
fn refused_frame_leaves_no_memory() {
    let mut all = none(1000);
    all.begin();
    assert!(open(&mut all, HEADS, None).is_some());
    all.begin();
    (0..999).for_each(|_| assert!(open(&mut all, HEADS, None).is_some()));
    all.undo();
    assert!(all.held.len() == 1 && all.held.capacity() <= 4, "{}", all.held.capacity());
}

#[test]
fn open_subscriptions_have_reserved_what_they_take() {
    let budget = plenty();
    let mut all = none(1000);
    (0..513).for_each(|_| {
        all.open(HEADS, None, budget.account(address(1))).ok().expect("there is room");
    });
    let ids: usize = all.held.iter().map(|held| held.id.capacity()).sum();
    let taken = all.held.capacity() * size_of::<OpenSubscription>() + ids;
    assert!(budget.used() >= taken, "{} of {taken}", budget.used());
}

#[test]
fn each_subscription_hears_of_each_height_once() {
    let mut all = none(9);
    assert_eq!(all.due(5, 9), None);
    open(&mut all, HEADS, Some(5..=9)).unwrap();
    open(&mut all, from(8), Some(5..=9)).unwrap();
    open(&mut all, from(12), Some(5..=9)).unwrap(); // not there yet
    assert_eq!(told(&mut all, 5, 9), [(8, 1), (9, 1)]);
    assert_eq!(told(&mut all, 5, 12), [(10, 2), (11, 2), (12, 3)]);
    // Withdrawn and published again: nothing is told twice.
    assert_eq!(told(&mut all, 5, 10), []);
    assert_eq!(told(&mut all, 5, 13), [(13, 3)]);
}

#[test]
fn replayed_range_holds_up_no_other_client() {
    let mut all = none(9);
    open(&mut all, HEADS, Some(5..=9)).unwrap();
    open(&mut all, from(7), Some(5..=9)).unwrap();
    assert_eq!(all.due(5, 9), Some(7));
    all.notify(7, 5, 9);
    assert_eq!(told(&mut all, 5, 11), [(10, 1), (11, 1), (8, 1), (9, 1), (10, 1), (11, 1)]);
    assert_eq!(told(&mut all, 5, 12), [(12, 2)]);
}

#[test]
fn first_height_of_an_empty_store_is_told() {
    let mut all = none(9);
    assert!(open(&mut all, from(3), None).is_none());
    open(&mut all, HEADS, None).unwrap();
    assert_eq!(told(&mut all, 7, 8), [(7, 1), (8, 1)]);
}

#[test]
fn replay_from_an_evicted_height_is_a_miss() {
    let mut all = none(9);
    assert!(open(&mut all, from(4), Some(5..=9)).is_none());
    assert!(open(&mut all, from(5), Some(5..=9)).is_some());
}

#[test]
fn only_a_subscription_at_the_head_lags() {
    let mut all = none(9);
    open(&mut all, from(5), Some(5..=9)).unwrap();
    assert_eq!(all.lag(9), 0);
    told(&mut all, 5, 9);
    assert_eq!(all.lag(9), 0);
    assert_eq!(all.lag(19), 10);
}

#[test]
fn a_refused_frame_has_done_nothing() {
    let mut all = none(3);
    all.begin();
    let first = open(&mut all, HEADS, Some(5..=9)).unwrap();
    let other = open(&mut all, HEADS, Some(5..=9)).unwrap();
    all.begin();
    assert!(all.close(&first) && !all.close(&first));
    let second = open(&mut all, HEADS, Some(5..=9)).unwrap();
    let third = open(&mut all, HEADS, Some(5..=9)).unwrap();
    assert!(open(&mut all, HEADS, Some(5..=9)).is_none());
    assert!(all.close(&second));
    all.undo();
    let ids: Vec<_> = all.held.iter().map(|held| &held.id).collect();
    assert_eq!(ids, [&first, &other]);
    all.begin();
    assert!(!all.close(&second) && !all.close(&third));
    assert!(all.close(&first) && all.close(&other));
    assert!(all.is_empty());
}

#[test]
fn subscription_hears_of_nothing_before_its_response_is_written() {
    let mut all = none(9);
    all.begin();
    open(&mut all, from(8), Some(5..=9)).unwrap();
    let first = all.hold_back();
    assert!(all.is_empty() && all.due(5, 9).is_none());
    all.begin();
    open(&mut all, from(9), Some(5..=9)).unwrap();
    let second = all.hold_back();
    all.begin();
    open(&mut all, HEADS, Some(5..=9)).unwrap();
    assert_eq!(told(&mut all, 5, 10), [(10, 1)]);
    all.go_on(second);
    assert_eq!((all.lag(99), told(&mut all, 5, 10)), (89, vec![(9, 1), (10, 1)]));
    all.go_on(first);
    all.go_on(first);
    assert_eq!(told(&mut all, 5, 10), [(8, 1), (9, 1), (10, 1)]);
    assert_eq!(told(&mut all, 5, 11), [(11, 3)]);
}

#[test]
fn subscriptions_are_counted_while_they_live() {
    let counters = Arc::new(ThreadCounters::default());
    let mut all = Subscriptions::new(9, Arc::clone(&counters));
    let open_now = || counters.ws_subscriptions(WsKind::Heads);
    all.begin();
    let first = open(&mut all, HEADS, Some(5..=9)).unwrap();
    all.keep();
    assert_eq!((open_now(), counters.ws_subscriptions(WsKind::Logs)), (1, 0));
    all.begin();
    open(&mut all, HEADS, Some(5..=9)).unwrap();
    assert!(all.close(&first));
    all.undo();
    assert_eq!(open_now(), 1, "a refused frame has done nothing");
    all.begin();
    assert!(all.close(&first));
    all.keep();
    assert_eq!(open_now(), 0, "at once, not with the next frame");
    open(&mut all, HEADS, Some(5..=9)).unwrap();
    drop(all);
    assert_eq!(open_now(), 0);
}

#[test]
fn subscriptions_reserve_memory_while_they_live() {
    let each = SubscriptionKind::Heads.bytes() + "0x".len() + 32;
    let memory = MemoryBudget::new(2 * each, each);
    let [one, other] = [1, 2].map(|last| memory.account(address(last)));
    let mut all = none(9);
    all.begin();
    let id = all.open(HEADS, None, one).ok().map(str::to_owned).unwrap();
    assert!(matches!(all.open(HEADS, None, one), Err(SubscriptionRefused::Error(_))));
    assert!(all.open(HEADS, None, other).is_ok());
    assert!(all.close(&id));
    all.begin();
    assert!(all.open(HEADS, None, one).is_ok());
}
