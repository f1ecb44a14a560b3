//! Keeping page faults off threads that must not wait.
//!
//! Who touches a mapped page that is not in memory stands still until the disk has delivered it,
//! and with him every connection of his thread. So a serving thread does its work inside
//! [`if_resident`]: whatever of this crate is about to touch mapped bytes looks at them first,
//! and when some of them are not in memory the work is given up without touching them. It is then
//! done again on a thread that may wait, inside [`loading`], which asks for the bytes before it
//! touches them, so that a part of many pages is one read of the disk and not one a page.
//!
//! A page that was in memory when it was looked at may be gone when it is touched. That is rare,
//! because it was used just now, and costs only time.
//!
//! Asking the system (`mincore`) takes as long as reading the clock thirty-five times (0.84 µs,
//! docs/DECISIONS.md), and asking for pages (`madvise`) takes longer, also where they are all in
//! memory; so each thread remembers for a while which pages were, and asks about the others only.
//! Neighbouring pages are remembered together, each for itself: what nobody used may go any time. Of
//! what was in memory a moment ago and no longer is, as far as it remembers that, it learns that memory
//! is short, and then goes by nothing that it remembers. Many looks that found something missing say
//! that others go to make room for that, and then it goes by what it remembers for a shorter time, the
//! shorter the more there are. A few such looks say nothing of the kind: now and then a request for old blocks must not make
//! all others dearer.

use std::cell::{Cell, RefCell};
use std::ops::RangeInclusive;
use std::time::Instant;

use crate::map;

/// Pages that are remembered together: one bit each.
const GROUP: usize = u32::BITS as usize;
/// Groups that a thread remembers which must not wait: of pages of 4 KiB 2 GiB, in 256 KiB of memory.
const KNOWN: usize = 1 << 14;
/// The same of one that may, of which there are many more; it comes back to what it just looked at.
const KNOWN_LOADING: usize = 1 << 10;
const _: () = assert!(KNOWN.is_power_of_two() && KNOWN_LOADING.is_power_of_two());
/// For how long a page counts as being in memory after it was asked about, and for how long one that
/// has gone is a sign that others go. Systems do not give up pages that were used a second ago,
/// unless there are none but such.
const KNOWN_MS: u32 = 1000;
/// The same while pages go, of a thread that may wait: it comes back to what it just looked at. One that
/// must not asks each time then. With a second for both, a store five times its memory had a serving thread
/// wait for the disk 5,000 times a second, with a millisecond now and then.
const GOING_LOADING_MS: u32 = 1;
/// Memory is short if a page is gone that was asked about so long ago at most, and so was used since. One that
/// was asked about before that went at least [`KNOWN_MS`] after its last use: later uses ask again.
const RECENT_MS: u32 = 2 * KNOWN_MS;
/// So many looks of a thread that find something missing, within [`KNOWN_MS`] of the first, say that others
/// go to make room for that.
const MANY: u32 = 100;
/// For how long a page counts as being in memory beside just so many; beside twice as many for half of that.
/// Asking each time made hot requests dearer by two fifths (docs/DECISIONS.md).
const MANY_MS: u32 = 50;

/// What looking at bytes is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Nothing: they may be touched, whatever it takes.
    Off,
    /// They may be touched only if they are in memory.
    Watching,
    /// Some were not.
    Cold,
    /// Those that are not in memory are asked for.
    Loading,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Off) };
    static PAGES: RefCell<Pages> = const { RefCell::new(Pages::new()) };
    static STARTED: Instant = Instant::now();
}

/// Does `work` unless that would wait for a disk: `None` as soon as bytes are needed that are not
/// in memory. What `work` returned then is dropped, and may be any nonsense; what it changed besides
/// must not matter.
pub fn if_resident<T>(work: impl FnOnce() -> T) -> Option<T> {
    // Without all this, to measure what it is for (`bench-scripts/cold --without`).
    let mode = if cfg!(neve_touches) { Mode::Off } else { Mode::Watching };
    let (done, mode) = in_mode(mode, work);
    (mode != Mode::Cold).then_some(done)
}

/// Does `work` on a thread that may wait for a disk.
pub fn loading<T>(work: impl FnOnce() -> T) -> T {
    in_mode(Mode::Loading, work).0
}

/// Gives up the work inside [`if_resident`], as if something were not in memory: because it takes
/// long, or must not be done twice. Returns whether that is so; else the work goes on.
pub fn give_up() -> bool {
    let watching = MODE.get() == Mode::Watching;
    if watching {
        MODE.set(Mode::Cold);
    }
    watching || is_cold()
}

/// Whether the work inside [`if_resident`] is going to be dropped.
pub fn is_cold() -> bool {
    MODE.get() == Mode::Cold
}

fn in_mode<T>(mode: Mode, work: impl FnOnce() -> T) -> (T, Mode) {
    /// Puts the mode back, also after a panic.
    struct Before(Mode);
    impl Drop for Before {
        fn drop(&mut self) {
            MODE.set(self.0);
        }
    }
    let now_ms = STARTED.with(|started| started.elapsed().as_millis() as u32);
    let going_ms = if mode == Mode::Loading { GOING_LOADING_MS } else { 0 };
    PAGES.with_borrow_mut(|pages| (pages.now_ms, pages.going_ms) = (now_ms, going_ms));
    let _before = Before(MODE.replace(mode));
    let done = work();
    (done, MODE.get())
}

/// Whether these mapped bytes may be touched.
pub(crate) fn look(bytes: &[u8]) -> bool {
    match MODE.get() {
        Mode::Off => true,
        Mode::Cold => false,
        Mode::Watching => {
            let here = PAGES.with_borrow_mut(|pages| pages.look(bytes, KNOWN));
            if !here {
                MODE.set(Mode::Cold);
            }
            here
        }
        Mode::Loading => {
            if !PAGES.with_borrow_mut(|pages| pages.look(bytes, KNOWN_LOADING)) {
                map::will_need(bytes);
            }
            true
        }
    }
}

/// Which pages were in memory lately. A group has one place, and takes it from whoever is there.
struct Pages {
    now_ms: u32,
    /// For how long a page counts as being in memory while pages go.
    going_ms: u32,
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
    const fn new() -> Self {
        let missing = Missing { since_ms: 0, count: 0, before: 0, many: None };
        Self { now_ms: 0, going_ms: 0, gone_ms: None, missing, known: Vec::new() }
    }

    /// Whether all of `bytes` is in memory. The first look makes room to remember so many groups.
    fn look(&mut self, bytes: &[u8], room: usize) -> bool {
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
    use std::fs::File;

    use super::*;
    use crate::map::Map;

    const LEN: u64 = 1 << 20;

    /// A file that is on disk and not in memory, mapped.
    fn cold_map() -> (tempfile::TempDir, Map) {
        // In the target directory: what lies in a file system in memory is never cold.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; LEN as usize]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let map = Map::new(&file, LEN, 0, 0).unwrap();
        map.publish(LEN, LEN);
        (dir, map)
    }

    #[test]
    fn what_is_not_in_memory_is_not_touched_until_it_is_loaded() {
        let (_dir, map) = cold_map();
        let far = map.bytes(LEN - 10..LEN).unwrap();
        assert_eq!(if_resident(|| look(far)), None, "it is not in memory");
        assert_eq!(if_resident(|| look(far)), None, "looking has not read it");
        assert!(loading(|| look(far)));
        assert_eq!(far, [7; 10], "which waits for it");
        assert_eq!(if_resident(|| look(far)), Some(true));
        assert_eq!(if_resident(|| look(map.bytes(0..10).unwrap())), None, "the rest is still cold");
    }

    #[test]
    fn once_cold_all_is_refused_and_afterwards_nothing() {
        let (_dir, map) = cold_map();
        let (far, warm) = (map.bytes(LEN - 1..LEN).unwrap(), vec![1; 100]);
        let done = if_resident(|| {
            assert!(look(&warm) && !is_cold());
            assert!(!look(far) && is_cold());
            assert!(!look(&warm), "the work is given up");
        });
        assert!(done.is_none() && !is_cold());
        assert!(look(far), "nobody watches");
        assert!(!give_up(), "nobody is there to do it instead");
        assert_eq!(if_resident(give_up), None);
    }

    impl Pages {
        fn knows(&self, page: usize) -> bool {
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

    /// Asking for them again and again took ten times as long as reading them.
    #[test]
    fn what_is_in_memory_is_not_asked_for_twice() {
        let known = |bytes: &[u8]| {
            let page = map::pages(bytes).next().unwrap();
            PAGES.with_borrow(|pages| pages.knows(page))
        };
        let (_dir, map) = cold_map();
        let (far, warm) = (map.bytes(LEN - 1..LEN).unwrap(), vec![1; 100]);
        assert!(loading(|| look(&warm)) && known(&warm));
        assert!(loading(|| look(far)) && !known(far), "it is on its way");
        assert_eq!(far, [7], "which waits for it");
        assert!(loading(|| look(far)) && known(far));
    }

    #[test]
    fn a_panic_does_not_leave_the_thread_watching() {
        let panicked = std::panic::catch_unwind(|| if_resident(|| panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(MODE.get(), Mode::Off);
    }
}
