//! Times of segments whose newest block the disk does not deliver: retention by age keeps them.

use std::time::Duration;

use super::checks::{copy, failing};
use super::support::{block, every};
use super::{HEIGHTS, LASTING, open, store};
use crate::Retention;

/// Retention by an age at which height 3, the newest block of a packed file, is the oldest one to keep.
fn retention() -> Retention {
    let age = block(HEIGHTS - 1, 0).timestamp - block(3, 0).timestamp;
    Retention { age: Some(Duration::from_secs(age)), ..Retention::default() }
}

#[test]
fn packed_range_whose_time_cannot_be_read_is_not_evicted_for_its_age() {
    let store = store(true);
    let (mut first, mut opened_all) = (0, 0);
    loop {
        for times in [1, 3, LASTING] {
            let dir = copy(store.path());
            let (opened, calls) = failing(first, times, || open(dir.path()).ok());
            if let Some(mut opened) = opened.filter(|opened| opened.notes.is_empty()) {
                let evicted = opened.writer.evict(&retention(), u64::MAX).unwrap();
                assert_eq!(evicted.heights, 0, "call {first}, {times} times");
                opened_all += 1;
            }
            if first >= calls {
                assert!(opened_all * every() > calls, "{opened_all}");
                return;
            }
        }
        first += every();
    }
}
