//! Pages that were in memory lately, as one thread remembers them.

use std::ops::RangeInclusive;

use super::map;

/// Pages that are remembered together: one bit each.
const GROUP: usize = u32::BITS as usize;
/// Time for which a page counts as resident after its probe. Unless memory is short, the kernel does not drop a
/// page that was used a second ago.
pub(super) const KNOWN_MS: u32 = 1000;
/// Time since its probe within which a page that is gone means that memory is short: it was used after the probe.
/// A page that was probed earlier went at least [`KNOWN_MS`] after its last use, because a later use probes
/// again.
const RECENT_MS: u32 = 2 * KNOWN_MS;
/// Time for which memory counts as short after a page in use was found gone.
const GOING_MS: u32 = 10 * KNOWN_MS;
/// Number of probes of a thread that find a page missing, within [`KNOWN_MS`] of the first. So many mean
/// that the kernel drops other pages to make space for these.
const MANY: u32 = 100;

/// Pages that were in memory lately. A group of pages has one place in the table, and replaces the group that has it.
pub(super) struct Pages {
    pub(super) now_ms: u32,
    /// Time for which a page counts as resident while memory is short.
    pub(super) going_ms: u32,
    /// Time at which a page was last found gone that was used a moment before.
    gone_ms: Option<u32>,
    /// Probes that found a page missing.
    missing: Missing,
    known: Vec<Known>,
}

/// Counts in periods of [`KNOWN_MS`].
#[derive(Debug, Clone, Copy, Default)]
struct Missing {
    since_ms: u32,
    count: u32,
    /// Time at which they were last [`MANY`] in a period.
    many_ms: Option<u32>,
}

impl Missing {
    fn note(&mut self, now_ms: u32) {
        if now_ms.wrapping_sub(self.since_ms) >= KNOWN_MS {
            (self.since_ms, self.count) = (now_ms, 0);
        }
        self.count += 1;
        if self.count >= MANY {
            self.many_ms = Some(now_ms);
        }
    }

    /// True if there were many a moment ago. In the period after, it takes a while until there are
    /// again.
    fn are_many(&self, now_ms: u32) -> bool {
        self.many_ms.is_some_and(|then_ms| now_ms.wrapping_sub(then_ms) < 2 * KNOWN_MS)
    }
}

/// Result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeResult {
    /// All pages are in memory, and will stay for a while.
    Stays,
    /// All pages are in memory, or were a moment ago, and may leave at any time.
    Goes,
    /// Some pages are not in memory.
    Missing,
}

/// Neighboring pages that a probe found in memory.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    group: usize,
    /// Time at which the kernel was asked about the first of them; the others count from then too.
    asked_ms: u32,
    here: u32,
}

impl Pages {
    pub(super) const fn new() -> Self {
        let missing = Missing { since_ms: 0, count: 0, many_ms: None };
        Self { now_ms: 0, going_ms: 0, gone_ms: None, missing, known: Vec::new() }
    }

    /// Probes whether all of `bytes` is in memory. The first look makes space to remember so many
    /// groups.
    pub(super) fn probe(&mut self, bytes: &[u8], room: usize) -> ProbeResult {
        // At first use: a thread that never probes takes no memory for it.
        if self.known.is_empty() {
            self.known = vec![Known::default(); room];
        }
        let (pages, go) = (map::pages(bytes), self.go());
        let counts_ms = if go { self.going_ms } else { KNOWN_MS };
        if !groups(&pages).all(|(group, wanted)| self.is_known(group, wanted, counts_ms)) {
            if let Some(page) = map::missing(bytes) {
                self.miss(page, &pages);
                return ProbeResult::Missing;
            }
            groups(&pages).for_each(|(group, found)| self.learn(group, found, counts_ms));
        }
        if go && !bytes.is_empty() { ProbeResult::Goes } else { ProbeResult::Stays }
    }

    /// Notes that some of `bytes`, which were in memory a moment ago, are not.
    pub(super) fn lose(&mut self, bytes: &[u8]) {
        self.missing.note(self.now_ms);
        self.gone_ms = Some(self.now_ms);
        if !self.known.is_empty() {
            self.forget(&map::pages(bytes));
        }
    }

    /// True if pages that are in use go.
    pub(super) fn go(&self) -> bool {
        let gone = self.gone_ms.is_some_and(|gone_ms| self.age_ms(gone_ms) < GOING_MS);
        gone || self.missing.are_many(self.now_ms)
    }

    /// Notes that this page is the first of `looked` that is not in memory; of those behind it
    /// nothing is known.
    fn miss(&mut self, page: usize, looked: &RangeInclusive<usize>) {
        self.missing.note(self.now_ms);
        // A page that was never met may be old, and says nothing of others.
        if self.was_here(page) {
            self.gone_ms = Some(self.now_ms);
        }
        self.forget(looked);
    }

    fn forget(&mut self, pages: &RangeInclusive<usize>) {
        for (group, wanted) in groups(pages) {
            let place = self.place(group);
            // Two groups may have one place: the other one's pages are none of these.
            if self.known[place].group == group {
                self.known[place].here &= !wanted;
            }
        }
    }

    /// True if this page was in memory a short time ago.
    fn was_here(&self, page: usize) -> bool {
        groups(&(page..=page)).all(|(group, wanted)| {
            let known = self.known[self.place(group)];
            known.group == group
                && known.here & wanted != 0
                && self.age_ms(known.asked_ms) < RECENT_MS
        })
    }

    fn age_ms(&self, then_ms: u32) -> u32 {
        // Milliseconds in 32 bits wrap after 49 days.
        self.now_ms.wrapping_sub(then_ms)
    }

    fn is_known(&self, group: usize, wanted: u32, counts_ms: u32) -> bool {
        let known = self.known[self.place(group)];
        let here = known.group == group && known.here & wanted == wanted;
        here && self.age_ms(known.asked_ms) < counts_ms
    }

    fn learn(&mut self, group: usize, found: u32, counts_ms: u32) {
        let place = self.place(group);
        let known = self.known[place];
        let before = if known.group == group && self.age_ms(known.asked_ms) < counts_ms {
            known
        } else {
            Known { group, asked_ms: self.now_ms, here: 0 }
        };
        self.known[place] = Known { here: before.here | found, ..before };
    }

    /// Place where a group is remembered. The number of places is a power of two, and a division would be felt.
    fn place(&self, group: usize) -> usize {
        group & (self.known.len() - 1)
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
    use super::super::residency::tests::{LEN, cold_map};
    use super::super::residency::{GOING_LOADING_MS, KNOWN};
    use super::*;

    impl Pages {
        pub(in super::super) fn knows(&self, page: usize) -> bool {
            let counts_ms = if self.go() { self.going_ms } else { KNOWN_MS };
            groups(&(page..=page)).all(|(group, wanted)| self.is_known(group, wanted, counts_ms))
        }

        /// Notes these pages as if they were found in memory just now.
        pub(in super::super) fn believe(&mut self, bytes: &[u8]) {
            self.known.resize(KNOWN, Known::default());
            learn(self, bytes);
        }
    }

    fn pages() -> Pages {
        let known = vec![Known::default(); KNOWN];
        Pages { now_ms: 5000, going_ms: KNOWN_MS, known, ..Pages::new() }
    }

    fn learn(pages: &mut Pages, bytes: &[u8]) {
        groups(&map::pages(bytes)).for_each(|(group, found)| pages.learn(group, found, KNOWN_MS));
    }

    #[test]
    fn a_page_is_known_for_a_while_only() {
        // One byte: more could reach into the next page.
        let bytes = [1];
        let page = map::pages(&bytes).next().unwrap();
        let mut pages = pages();
        assert_eq!(pages.probe(&bytes, KNOWN), ProbeResult::Stays);
        assert!(pages.knows(page) && !pages.knows(page + 1));
        pages.now_ms += KNOWN_MS - 1;
        assert!(pages.knows(page));
        pages.now_ms += 1;
        assert!(!pages.knows(page) && pages.probe(&bytes, KNOWN) == ProbeResult::Stays);
        assert!(pages.knows(page));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no page cache")]
    fn pages_may_go_for_a_while_once_one_is_gone() {
        let (_dir, map) = cold_map();
        let (bytes, cold) = (vec![1; 100], map.bytes(0..10).unwrap());
        let mut pages = pages();
        // What it never met may be old; it says nothing of others.
        assert_eq!(pages.probe(cold, KNOWN), ProbeResult::Missing);
        assert_eq!(pages.probe(&bytes, KNOWN), ProbeResult::Stays);
        learn(&mut pages, cold);
        pages.now_ms += KNOWN_MS;
        assert_eq!(pages.probe(cold, KNOWN), ProbeResult::Missing);
        assert_eq!(pages.probe(&bytes, KNOWN), ProbeResult::Goes);
        pages.now_ms += GOING_MS - 1;
        assert_eq!(pages.probe(&bytes, KNOWN), ProbeResult::Goes);
        pages.now_ms += 1;
        assert_eq!(pages.probe(&bytes, KNOWN), ProbeResult::Stays);
    }

    /// An absent part of a record, for example, needs neither a copy nor a wait.
    #[test]
    fn empty_range_is_always_resident() {
        let mut pages = pages();
        pages.gone_ms = Some(pages.now_ms);
        assert_eq!(pages.probe(&[1], KNOWN), ProbeResult::Goes);
        assert_eq!(pages.probe(&[], KNOWN), ProbeResult::Stays);
    }

    #[test]
    fn loading_thread_probes_an_evicted_page_again_at_once() {
        let bytes = vec![1; 100];
        let page = map::pages(&bytes).next().unwrap();
        let mut pages = Pages { going_ms: GOING_LOADING_MS, ..pages() };
        pages.gone_ms = Some(pages.now_ms);
        assert_eq!(pages.probe(&bytes, KNOWN), ProbeResult::Goes);
        assert!(pages.knows(page));
        pages.now_ms += GOING_LOADING_MS;
        assert!(!pages.knows(page));
    }

    #[test]
    fn page_that_could_not_be_copied_has_gone() {
        let bytes = vec![1; 100];
        let page = map::pages(&bytes).next().unwrap();
        let mut pages = pages();
        learn(&mut pages, &bytes);
        assert!(pages.knows(page) && !pages.go());
        pages.lose(&bytes);
        assert!(!pages.knows(page) && pages.go());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no page cache")]
    fn only_a_page_seen_a_short_time_ago_has_gone() {
        let (_dir, map) = cold_map();
        let cold = map.bytes(0..10).unwrap();
        for (age_ms, gone) in [(RECENT_MS - 1, true), (RECENT_MS, false)] {
            let mut pages = pages();
            learn(&mut pages, cold);
            pages.now_ms += age_ms;
            assert_eq!(pages.probe(cold, KNOWN), ProbeResult::Missing);
            assert_eq!(pages.gone_ms.is_some(), gone, "after {age_ms}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no page cache")]
    fn page_behind_a_missing_one_is_probed_again() {
        let (_dir, map) = cold_map();
        let both = map.bytes(0..LEN).unwrap();
        let behind = &both[LEN as usize / 2..][..1];
        let page = map::pages(behind).next().unwrap();
        let mut pages = pages();
        learn(&mut pages, behind);
        assert!(pages.knows(page) && pages.probe(both, KNOWN) == ProbeResult::Missing);
        assert!(!pages.knows(page));
        assert_eq!(
            pages.gone_ms, None,
            "the first page, which is the one that is missed, was never here"
        );
    }

    #[test]
    fn many_missing_pages_within_a_second_mean_that_others_go() {
        let mut missing = Missing::default();
        let mut note = |now_ms, count| {
            (0..count).for_each(|_| missing.note(now_ms));
            missing.are_many(now_ms)
        };
        assert!(!note(5000, MANY - 1));
        assert!(!note(5000 + KNOWN_MS, MANY - 1), "those are too long ago");
        let now_ms = 5000 + 2 * KNOWN_MS - 1;
        assert!(note(now_ms, 1));
        assert!(missing.are_many(now_ms + 2 * KNOWN_MS - 1));
        assert!(!missing.are_many(now_ms + 2 * KNOWN_MS));
    }

    #[test]
    fn neighbours_are_known_each_for_itself_and_no_longer_than_the_first() {
        let mut pages = pages();
        let is_known = |pages: &Pages, group, wanted| pages.is_known(group, wanted, KNOWN_MS);
        let group = 7 * KNOWN + 5;
        pages.learn(group, 0b1, KNOWN_MS);
        pages.now_ms += KNOWN_MS - 1;
        pages.learn(group, 0b100, KNOWN_MS);
        assert!(is_known(&pages, group, 0b101) && !is_known(&pages, group, 0b10));
        pages.now_ms += 1;
        assert!(!is_known(&pages, group, 0b100), "it counts from when the first was asked about");
        pages.learn(group, 0b10, KNOWN_MS);
        assert!(is_known(&pages, group, 0b10) && !is_known(&pages, group, 0b1));
        pages.learn(group + KNOWN, 0b1, KNOWN_MS);
        assert!(!is_known(&pages, group, 0b10), "its place was taken");
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
