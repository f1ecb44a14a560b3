//! Searches that share their criteria.

use super::{HEIGHTS, PACKED, open, store};
use crate::memory::residency::if_resident;
use crate::read::PREPARED;
use crate::{Candidate, Criteria, SearchError};

/// A subscription searches each new height. Sorting 60,000 topics each time took 90 % of its processor time.
#[test]
fn keys_are_sorted_once_for_all_searches() {
    let store = store(true);
    let reader = open(store.path()).unwrap().reader;
    let before = PREPARED.get();
    let criteria = Criteria::new(vec![vec![(1 << 32) + 1, 3, 1, 2, 0, 1]]);
    let found = |height| reader.logs(height..=height, &criteria).map(Result::unwrap).count();
    assert!((0..HEIGHTS).map(found).sum::<usize>() > 0);
    assert!(reader.covers_logs(&(0..=HEIGHTS - 1), &criteria));
    assert_eq!(PREPARED.get() - before, 1);
    assert_eq!(criteria.lists(), [[1, 2, 3, (1 << 32) + 1]]);
}

/// A subscription replays height by height. Looking so many keys up each time takes longer than unpacking the height.
#[test]
fn many_keys_are_not_looked_up_for_one_packed_height() {
    let store = store(true);
    let reader = open(store.path()).unwrap().reader;
    let first = |heights, count: u64| {
        let criteria = Criteria::new(vec![(1..=count).map(|key| key << 32 | 0xabcd).collect()]);
        let search = || match reader.logs(heights, &criteria).next_examined(&|_| true) {
            Some(Err(SearchError::Cold(cold))) => Err(cold),
            found => Ok(found.map(Result::unwrap)),
        };
        if_resident(search)
    };
    assert!(first(0..=PACKED - 1, 257).is_err(), "a thread that may wait looks them up");
    assert_eq!(first(3..=3, 257), Ok(Some(Candidate::Packed(3))));
    assert_eq!(first(3..=3, 256), Ok(None));
}
