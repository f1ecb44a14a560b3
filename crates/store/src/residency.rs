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
//! memory; so each thread remembers for a while which pages were, and asks about the others only. It
//! remembers for a moment only while some are not: memory is short then, or everything is new.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use crate::map;

/// Pages that a thread remembers which must not wait: 64 MiB of pages of 4 KiB, in 256 KiB of memory.
const KNOWN: usize = 1 << 14;
/// The same of one that may, of which there are many more; it comes back to what it just looked at.
const KNOWN_LOADING: usize = 1 << 10;
const _: () = assert!(KNOWN.is_power_of_two() && KNOWN_LOADING.is_power_of_two());
/// For how long a page counts as being in memory after it was asked about, and for how long a page
/// that was not is a sign that others go. Systems do not give up pages that were used a second ago,
/// unless there are none but such.
const KNOWN_MS: u32 = 1000;
/// The same while pages go: a request that looks at a page more than once asks about it once. With a
/// second, a store five times its memory had a serving thread wait for the disk 5,000 times a second.
const GOING_MS: u32 = 1;

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
    let (done, mode) = in_mode(Mode::Watching, work);
    (mode == Mode::Watching).then_some(done)
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
    PAGES.with_borrow_mut(|pages| pages.now_ms = now_ms);
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

/// Which pages were in memory lately. A page has one place, and takes it from whoever is there.
struct Pages {
    now_ms: u32,
    /// When one was last found not to be in memory.
    gone_ms: Option<u32>,
    known: Vec<Known>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    page: usize,
    asked_ms: u32,
}

impl Pages {
    const fn new() -> Self {
        Self { now_ms: 0, gone_ms: None, known: Vec::new() }
    }

    /// Whether all of `bytes` is in memory. The first look makes room to remember so many pages.
    fn look(&mut self, bytes: &[u8], room: usize) -> bool {
        if self.known.is_empty() {
            self.known = vec![Known::default(); room];
        }
        let pages = map::pages(bytes);
        if pages.clone().all(|page| self.is_known(page)) {
            return true;
        }
        let (here, asked_ms) = (map::in_memory(bytes), self.now_ms);
        if here {
            for page in pages {
                let place = self.place(page);
                self.known[place] = Known { page, asked_ms };
            }
        } else {
            self.gone_ms = Some(asked_ms);
        }
        here
    }

    /// Where a page is remembered. The room is a power of two, and a division would be felt.
    fn place(&self, page: usize) -> usize {
        page & (self.known.len() - 1)
    }

    fn is_known(&self, page: usize) -> bool {
        let age_ms = |then_ms: u32| self.now_ms.wrapping_sub(then_ms);
        let going = self.gone_ms.is_some_and(|gone_ms| age_ms(gone_ms) < KNOWN_MS);
        let known = self.known[self.place(page)];
        known.page == page && age_ms(known.asked_ms) < if going { GOING_MS } else { KNOWN_MS }
    }
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

    #[test]
    fn a_page_is_known_for_a_while_only() {
        let (_dir, map) = cold_map();
        let bytes = vec![1; 100];
        let page = map::pages(&bytes).next().unwrap();
        let mut pages = Pages { now_ms: 5, ..Pages::new() };
        assert!(pages.look(&bytes, KNOWN) && pages.is_known(page) && !pages.is_known(page + 1));
        pages.now_ms += KNOWN_MS - 1;
        assert!(pages.is_known(page));
        pages.now_ms += 1;
        assert!(!pages.is_known(page) && pages.look(&bytes, KNOWN) && pages.is_known(page));
        // While others go it is asked about every time.
        assert!(!pages.look(map.bytes(0..10).unwrap(), KNOWN) && pages.is_known(page));
        pages.now_ms += GOING_MS;
        assert!(!pages.is_known(page) && pages.look(&bytes, KNOWN) && pages.is_known(page));
        pages.now_ms += KNOWN_MS - GOING_MS - 1;
        assert!(!pages.is_known(page), "one was gone within the last second");
        pages.now_ms += 1;
        assert!(pages.is_known(page), "none was");
    }

    /// Asking for them again and again took ten times as long as reading them.
    #[test]
    fn what_is_in_memory_is_not_asked_for_twice() {
        let known = |bytes: &[u8]| {
            let page = map::pages(bytes).next().unwrap();
            PAGES.with_borrow(|pages| pages.known.iter().any(|known| known.page == page))
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
