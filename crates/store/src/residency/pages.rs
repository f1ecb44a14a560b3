//! What a thread remembers of pages that were in memory.

use std::ops::RangeInclusive;

use crate::map;

/// Pages that are remembered together: one bit each.
const GROUP: usize = u32::BITS as usize;
/// For how long a page counts as being in memory after it was asked about, and for how long one that
/// has gone is a sign that others go. Systems do not give up pages that were used a second ago,
/// unless there are none but such.
const KNOWN_MS: u32 = 1000;
/// Memory is short if a page is gone that was asked about so long ago at most, and so was used since. One that
/// was asked about before that went at least [`KNOWN_MS`] after its last use: later uses ask again.
const RECENT_MS: u32 = 2 * KNOWN_MS;
/// So many looks of a thread that find something missing, within [`KNOWN_MS`] of the first, say that others
/// go to make room for that.
const MANY: u32 = 100;
/// For how long a page counts as being in memory beside just so many; beside twice as many for half of that.
/// Asking each time made hot requests dearer by two fifths (docs/DECISIONS.md).
const MANY_MS: u32 = 50;

/// Which pages were in memory lately. A group has one place, and takes it from whoever is there.
pub(super) struct Pages {
    pub(super) now_ms: u32,
    /// For how long a page counts as being in memory while pages go.
    pub(super) going_ms: u32,
    /// When a page was last found gone that was used a moment before.
    gone_ms: Option<u32>,
    /// Looks that found something missing.
    missing: Missing,
    known: Vec<Known>,
}

/// Counts in periods of [`KNOWN_MS`].
#[derive(Debug, Clone, Copy, Default)]
struct Missing {
    since_ms: u32,
    count: u32,
    /// How many there were in the period before.
    before: u32,
    /// When they were last [`MANY`] in a period, and how many.
    many: Option<(u32, u32)>,
}

impl Missing {
    fn note(&mut self, now_ms: u32) {
        let age_ms = now_ms.wrapping_sub(self.since_ms);
        if age_ms >= KNOWN_MS {
            self.before = if age_ms < 2 * KNOWN_MS { self.count } else { 0 };
            (self.since_ms, self.count) = (now_ms, 0);
        }
        self.count += 1;
        let count = self.count.max(self.before);
        if count >= MANY {
            self.many = Some((now_ms, count));
        }
    }

    /// For how long a page counts as being in memory beside these.
    fn counts_ms(&self, now_ms: u32) -> u32 {
        match self.many {
            Some((then_ms, count)) if now_ms.wrapping_sub(then_ms) < KNOWN_MS => {
                MANY_MS * MANY / count
            }
            _ => KNOWN_MS,
        }
    }
}

/// Neighbouring pages that were.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    group: usize,
    /// When the first of them was asked about; the others count from then too.
    asked_ms: u32,
    here: u32,
}

impl Pages {
    pub(super) const fn new() -> Self {
        let missing = Missing { since_ms: 0, count: 0, before: 0, many: None };
        Self { now_ms: 0, going_ms: 0, gone_ms: None, missing, known: Vec::new() }
    }

    /// Whether all of `bytes` is in memory. The first look makes room to remember so many groups.
    pub(super) fn look(&mut self, bytes: &[u8], room: usize) -> bool {
        if self.known.is_empty() {
            self.known = vec![Known::default(); room];
        }
        let pages = map::pages(bytes);
        if groups(&pages).all(|(group, wanted)| self.is_known(group, wanted)) {
            return true;
        }
        let missing = map::missing(bytes);
        match missing {
            None => groups(&pages).for_each(|(group, found)| self.learn(group, found)),
            Some(page) => self.miss(page, &pages),
        }
        missing.is_none()
    }

    /// This page is the first of `looked` that is not in memory; of those behind it nothing is known.
    fn miss(&mut self, page: usize, looked: &RangeInclusive<usize>) {
        self.missing.note(self.now_ms);
        if self.was_here(page) {
            self.gone_ms = Some(self.now_ms);
        }
        for (group, wanted) in groups(looked) {
            let place = self.place(group);
            if self.known[place].group == group {
                self.known[place].here &= !wanted;
            }
        }
    }

    /// Whether this page was in memory a short time ago.
    fn was_here(&self, page: usize) -> bool {
        groups(&(page..=page)).all(|(group, wanted)| {
            let known = self.known[self.place(group)];
            known.group == group
                && known.here & wanted != 0
                && self.age_ms(known.asked_ms) < RECENT_MS
        })
    }

    fn age_ms(&self, then_ms: u32) -> u32 {
        self.now_ms.wrapping_sub(then_ms)
    }

    fn is_known(&self, group: usize, wanted: u32) -> bool {
        let known = self.known[self.place(group)];
        known.group == group && known.here & wanted == wanted && self.counts(known)
    }

    fn learn(&mut self, group: usize, found: u32) {
        let place = self.place(group);
        let known = self.known[place];
        let before = if known.group == group && self.counts(known) {
            known
        } else {
            Known { group, asked_ms: self.now_ms, here: 0 }
        };
        self.known[place] = Known { here: before.here | found, ..before };
    }

    /// Where a group is remembered. The room is a power of two, and a division would be felt.
    fn place(&self, group: usize) -> usize {
        group & (self.known.len() - 1)
    }

    /// Whether that is not too long ago.
    fn counts(&self, known: Known) -> bool {
        let going = self.gone_ms.is_some_and(|gone_ms| self.age_ms(gone_ms) < KNOWN_MS);
        let counts_ms = if going { self.going_ms } else { self.missing.counts_ms(self.now_ms) };
        self.age_ms(known.asked_ms) < counts_ms
    }
}

/// The groups that pages are of, each with its pages.
fn groups(pages: &RangeInclusive<usize>) -> impl Iterator<Item = (usize, u32)> {
    let (first, last) = (*pages.start(), *pages.end());
    let of = |page: usize| page / GROUP;
    // There are none if the last is before the first.
    let groups = of(first)..if first > last { 0 } else { of(last) + 1 };
    groups.map(move |group| {
        let above = if group == of(first) { u32::MAX << (first % GROUP) } else { u32::MAX };
        let below =
            if group == of(last) { u32::MAX >> (GROUP - 1 - last % GROUP) } else { u32::MAX };
        (group, above & below)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{LEN, cold_map};
    use super::super::{GOING_LOADING_MS, KNOWN};
    use super::*;

    impl Pages {
        pub(in super::super) fn knows(&self, page: usize) -> bool {
            groups(&(page..=page)).all(|(group, wanted)| self.is_known(group, wanted))
        }
    }

    #[test]
    fn a_page_is_known_for_a_while_only() {
        let (_dir, map) = cold_map();
        let bytes = vec![1; 100];
        let page = map::pages(&bytes).next().unwrap();
        let mut pages = Pages { now_ms: 5, ..Pages::new() };
        assert!(pages.look(&bytes, KNOWN) && pages.knows(page) && !pages.knows(page + 1));
        pages.now_ms += KNOWN_MS - 1;
        assert!(pages.knows(page));
        pages.now_ms += 1;
        assert!(!pages.knows(page) && pages.look(&bytes, KNOWN) && pages.knows(page));
        // What it never met may be old; it says nothing of others.
        let cold = map.bytes(0..10).unwrap();
        assert!(!pages.look(cold, KNOWN));
        pages.now_ms += KNOWN_MS - 1;
        assert!(pages.knows(page));
        // While others go it is asked about every time.
        groups(&map::pages(cold)).for_each(|(group, found)| pages.learn(group, found));
        pages.now_ms += KNOWN_MS;
        assert!(pages.look(&bytes, KNOWN) && !pages.look(cold, KNOWN) && !pages.knows(page));
        // Who may wait comes back to it at once.
        pages.going_ms = GOING_LOADING_MS;
        assert!(pages.knows(page));
        pages.now_ms += GOING_LOADING_MS;
        assert!(!pages.knows(page) && pages.look(&bytes, KNOWN) && pages.knows(page));
        pages.going_ms = 0;
        pages.now_ms += KNOWN_MS - GOING_LOADING_MS - 1;
        assert!(!pages.knows(page), "one was gone within the last second");
        pages.now_ms += 1;
        assert!(pages.knows(page), "none was");
    }

    #[test]
    fn only_what_was_here_a_short_time_ago_has_gone() {
        let (_dir, map) = cold_map();
        let cold = map.bytes(0..10).unwrap();
        for (age_ms, gone) in [(RECENT_MS - 1, true), (RECENT_MS, false)] {
            let mut pages = Pages { known: vec![Known::default(); KNOWN], ..Pages::new() };
            groups(&map::pages(cold)).for_each(|(group, found)| pages.learn(group, found));
            pages.now_ms += age_ms;
            assert!(!pages.look(cold, KNOWN) && pages.gone_ms.is_some() == gone, "after {age_ms}");
        }
    }

    #[test]
    fn what_is_behind_a_missing_page_is_asked_about_again() {
        let (_dir, map) = cold_map();
        let both = map.bytes(0..LEN).unwrap();
        let behind = map::pages(&both[LEN as usize / 2..]).next().unwrap();
        let mut pages = Pages { known: vec![Known::default(); KNOWN], ..Pages::new() };
        groups(&(behind..=behind)).for_each(|(group, found)| pages.learn(group, found));
        assert!(pages.knows(behind) && !pages.look(both, KNOWN) && !pages.knows(behind));
        assert_eq!(
            pages.gone_ms, None,
            "the first page, which is the one that is missed, was never here"
        );
    }

    #[test]
    fn beside_many_that_are_missing_a_page_is_known_for_a_shorter_time() {
        let mut missing = Missing::default();
        let mut note = |now_ms, count| {
            (0..count).for_each(|_| missing.note(now_ms));
            missing.counts_ms(now_ms)
        };
        assert_eq!(note(5000, MANY - 1), KNOWN_MS);
        assert_eq!(note(5000 + KNOWN_MS, MANY - 1), KNOWN_MS, "those are too long ago");
        assert_eq!(note(5000 + 2 * KNOWN_MS - 1, 1), MANY_MS);
        assert_eq!(note(5000 + 2 * KNOWN_MS - 1, MANY), MANY_MS / 2);
        let next = 5000 + 2 * KNOWN_MS;
        assert_eq!(note(next, 1), MANY_MS / 2, "there were as many in the period before");
        assert_eq!(note(next, MANY * MANY_MS), 0);
        assert_eq!(missing.counts_ms(next + KNOWN_MS - 1), 0);
        assert_eq!(missing.counts_ms(next + KNOWN_MS), KNOWN_MS);
    }

    #[test]
    fn that_others_are_missing_says_nothing_of_what_was_here() {
        let (_dir, map) = cold_map();
        let page = |at: u64| map.bytes(at * 4096..at * 4096 + 1).unwrap();
        let mut pages = Pages { now_ms: 5000, ..Pages::new() };
        (0..MANY).for_each(|at| assert!(!pages.look(page(at.into()), KNOWN)));
        assert_eq!(pages.gone_ms, None);
        pages.learn(7, 1);
        pages.now_ms += MANY_MS - 1;
        assert!(pages.is_known(7, 1));
        pages.now_ms += 1;
        assert!(!pages.is_known(7, 1));
    }

    #[test]
    fn neighbours_are_known_each_for_itself_and_no_longer_than_the_first() {
        let mut pages = Pages { known: vec![Known::default(); KNOWN], ..Pages::new() };
        let group = 7 * KNOWN + 5;
        pages.learn(group, 0b1);
        pages.now_ms += KNOWN_MS - 1;
        pages.learn(group, 0b100);
        assert!(pages.is_known(group, 0b101) && !pages.is_known(group, 0b10));
        pages.now_ms += 1;
        assert!(!pages.is_known(group, 0b100), "it counts from when the first was asked about");
        pages.learn(group, 0b10);
        assert!(pages.is_known(group, 0b10) && !pages.is_known(group, 0b1));
        pages.learn(group + KNOWN, 0b1);
        assert!(!pages.is_known(group, 0b10), "its place was taken");
    }

    #[test]
    fn pages_are_cut_into_groups() {
        let cut = |pages| groups(&pages).collect::<Vec<_>>();
        assert_eq!(cut(RangeInclusive::new(1, 0)), []);
        assert_eq!(cut(64..=64), [(2, 1)]);
        assert_eq!(cut(95..=95), [(2, 1 << 31)]);
        assert_eq!(cut(65..=67), [(2, 0b1110)]);
        assert_eq!(cut(64..=95), [(2, u32::MAX)]);
        assert_eq!(
            cut(62..=160),
            [(1, 3 << 30), (2, u32::MAX), (3, u32::MAX), (4, u32::MAX), (5, 1)]
        );
    }
}
