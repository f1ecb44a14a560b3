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
use std::time::Instant;

use crate::map;

mod pages;

use pages::Pages;

/// Groups that a thread remembers which must not wait: of pages of 4 KiB 2 GiB, in 256 KiB of memory.
const KNOWN: usize = 1 << 14;
/// The same of one that may, of which there are many more; it comes back to what it just looked at.
const KNOWN_LOADING: usize = 1 << 10;
const _: () = assert!(KNOWN.is_power_of_two() && KNOWN_LOADING.is_power_of_two());
/// For how long a page counts as being in memory while pages go, for a thread that may wait: it comes back to what it just looked at. One that
/// must not asks each time then. With a second for both, a store five times its memory had a serving thread
/// wait for the disk 5,000 times a second, with a millisecond now and then.
const GOING_LOADING_MS: u32 = 1;

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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::map::Map;

    pub(super) const LEN: u64 = 1 << 20;

    /// A file that is on disk and not in memory, mapped.
    pub(super) fn cold_map() -> (tempfile::TempDir, Map) {
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
