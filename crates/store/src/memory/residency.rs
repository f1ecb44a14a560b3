//! Keeping page faults off threads that must not wait.
//!
//! A thread that touches a mapped page outside memory waits until the disk delivers it, and so do
//! all connections of that thread. A serving thread therefore works inside [`if_sendable`]. Code of
//! this crate probes mapped bytes before it touches them. If some are not in memory, the work ends
//! with [`Cold`] and touches none of them. A thread that may wait repeats it inside
//! [`with_blocking_reads`], which requests the bytes before it touches them: many pages are one read
//! of the disk. If the disk does not deliver them, the work fails, because a touch would be a signal.
//!
//! `mincore` costs 0.84 µs, as much as 35 clock readings (docs/decisions/0020), and `madvise` costs
//! more, also for pages in memory. So each thread remembers for a while which pages were in memory,
//! and asks about the others only. An entry covers a group of neighboring pages with a bit for each,
//! because the kernel drops single pages.
//!
//! The kernel can drop a page between probe and touch. Two signs tell a thread that memory is short:
//! a page that it remembers is gone, or many probes find a page missing. The thread then touches
//! no mapped byte, if the file system has reads that do not wait. It copies the bytes to parse (`read`)
//! and the bytes to send ([`SegmentSlice::copy_in`](crate::SegmentSlice::copy_in)) by such reads. A page
//! that is gone ends the work with [`Cold`], and the kernel begins to read it. A few missing pages
//! are no shortage: a rare request for old blocks must not make all others slower.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io;
use std::time::Instant;

use super::pages::{KNOWN_MS, Pages, ProbeResult};

use super::map;
use super::map::{Map, NonblockingRead};
use crate::format::{self};

/// Groups of pages that a serving thread remembers: they cover 2 GiB of pages of 4 KiB, and take 256 KiB of
/// memory.
pub(super) const KNOWN: usize = 1 << 14;
/// Groups of pages that a blocking thread remembers. There are many more such threads, and each mostly returns to
/// the pages that it just probed.
const KNOWN_LOADING: usize = 1 << 10;
const _: () = assert!(KNOWN.is_power_of_two() && KNOWN_LOADING.is_power_of_two());
/// Time for which a page counts as resident on a blocking thread while memory is short. Such a thread returns to
/// the pages that it just probed. A serving thread copies instead, without touching the page.
pub(super) const GOING_LOADING_MS: u32 = 1;

/// Attempts of work that needs records which the disk does not deliver.
const ATTEMPTS: u32 = 3;

/// Purpose of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// No probe: bytes may be touched, even if that waits.
    Off,
    /// Bytes may be touched only if they are in memory.
    Watching,
    /// Bytes may be touched only if they are in memory. Those that are only sent are copied if
    /// memory is short.
    Sending,
    /// Some bytes were not in memory. Further probes fail without a look, so that the work ends soon.
    Cold,
    /// Bytes that are not in memory are requested from the disk.
    Loading,
    /// The disk did not deliver some of the requested bytes.
    Failed,
}

/// Stored bytes are not in memory, and this thread must not wait for them; or the disk does not
/// deliver them. The work ends here. Inside [`if_resident`] it means the first, inside [`loading_again`] the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stored bytes are not in memory")]
pub struct Cold;

/// The disk did not deliver stored bytes. They count as damaged from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the disk did not deliver stored bytes")]
pub struct ReadFailed;

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Off) };
    static PAGES: RefCell<Pages> = const { RefCell::new(Pages::new()) };
    static STARTED: Instant = Instant::now();
    /// Weight of the work so far.
    static WEIGHT: Cell<usize> = const { Cell::new(0) };
    /// True if [`weigh`] ended work, and [`was_too_heavy`] did not report it yet.
    static WEIGHED: Cell<bool> = const { Cell::new(false) };
    /// True if no other client waits while this thread works.
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Checks that the kernel tells which pages are in memory. If it does not, nothing of this module
/// holds: threads that must not wait would take every page for resident.
pub fn check_kernel() -> io::Result<()> {
    map::can_tell()
}

/// Does `work` unless that would wait for a disk: it ends with [`Cold`] as soon as it needs bytes that
/// are not in memory. Its other effects must be harmless, because it is repeated.
pub fn if_resident<T>(work: impl FnOnce() -> Result<T, Cold>) -> Result<T, Cold> {
    unless_cold(Mode::Watching, work)
}

/// Runs work like [`if_resident`], for a result that is sent by copies while [`memory_is_short`]. It does
/// not touch bytes that are only sent
/// ([`SegmentSlice::probe_to_send`](crate::SegmentSlice::probe_to_send)).
pub fn if_sendable<T>(work: impl FnOnce() -> Result<T, Cold>) -> Result<T, Cold> {
    unless_cold(Mode::Sending, work)
}

fn unless_cold<T>(mode: Mode, work: impl FnOnce() -> Result<T, Cold>) -> Result<T, Cold> {
    // A build without probes, to measure their effect (`bench-scripts/cold --without`).
    let mode = if cfg!(neve_no_residency) { Mode::Off } else { mode };
    let (done, mode) = in_mode(mode, work);
    debug_assert!(mode != Mode::Cold || done.is_err(), "a cold read was taken for an absence");
    done
}

/// True if this thread saw that pages in use leave memory. A page that was resident at its probe may be gone when
/// the thread touches it.
pub fn memory_is_short() -> bool {
    PAGES.with_borrow(Pages::go)
}

/// Does `work` on a thread that may wait for a disk. If the disk fails, the result is dropped.
pub fn with_blocking_reads<T>(work: impl FnOnce() -> T) -> Result<T, ReadFailed> {
    let (done, mode) = in_mode(Mode::Loading, work);
    if mode == Mode::Failed { Err(ReadFailed) } else { Ok(done) }
}

/// Runs work like [`with_blocking_reads`]. Returns `None` also after an error of the disk.
pub fn loaded<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    with_blocking_reads(work).ok().flatten()
}

/// Runs typed work like [`with_blocking_reads`], once.
pub fn loading<T>(work: impl FnOnce() -> Result<T, Cold>) -> Result<T, ReadFailed> {
    with_blocking_reads(work)?.map_err(|Cold| ReadFailed)
}

/// Runs work like [`loading`], and again if the disk fails. A record that failed counts as damaged,
/// so that the work finds it missing then. An index that failed fails again.
pub fn loading_again<T>(mut work: impl FnMut() -> Result<T, Cold>) -> Result<T, ReadFailed> {
    (0..ATTEMPTS).find_map(|_| loading(&mut work).ok()).ok_or(ReadFailed)
}

/// True if work inside [`with_blocking_reads`] is going to be dropped.
pub(crate) fn has_failed() -> bool {
    MODE.get() == Mode::Failed
}

/// True if this thread must not wait, so that its work is to end if it takes long.
pub fn must_not_wait() -> bool {
    matches!(MODE.get(), Mode::Watching | Mode::Sending)
}

/// Ends the work of a thread that must not wait, as if bytes were not in memory, because the work takes
/// long or must not be done twice. On a thread that may wait the work goes on.
pub fn not_here() -> Result<(), Cold> {
    if must_not_wait() {
        MODE.set(Mode::Cold);
    }
    if has_failed_probe() { Err(Cold) } else { Ok(()) }
}

/// Adds to the weight of the work inside [`if_resident`]. If all of it weighs more than `most`, the work of a
/// thread that must not wait ends, because it takes the processor for too long.
pub fn weigh(weight: usize, most: usize) -> Result<(), Cold> {
    let sum = WEIGHT.get().saturating_add(weight);
    WEIGHT.set(sum);
    // `not_here` cannot say why it ended the work; the flag tells the caller to use the pool `unpack`.
    if sum <= most { Ok(()) } else { not_here().inspect_err(|_| WEIGHED.set(true)) }
}

/// True if [`weigh`] ended work of this thread since this was last asked.
pub fn was_too_heavy() -> bool {
    WEIGHED.replace(false)
}

/// Notes whether any other client waits while this thread works.
pub fn set_alone(alone: bool) {
    ALONE.set(alone);
}

/// True if no other client waits while this thread works.
pub fn is_alone() -> bool {
    ALONE.get()
}

/// Ends the work of this thread, which may wait, as if bytes were not in memory: no wait would
/// bring them.
pub(crate) fn end_as_cold() {
    if MODE.get() != Mode::Off {
        MODE.set(Mode::Cold);
    }
}

/// True if the work inside [`if_resident`] or [`with_blocking_reads`] met bytes that it did not touch.
pub(crate) fn has_failed_probe() -> bool {
    matches!(MODE.get(), Mode::Cold | Mode::Failed)
}

fn in_mode<T>(mode: Mode, work: impl FnOnce() -> T) -> (T, Mode) {
    /// Puts the mode back, also after a panic.
    struct Before(Mode);
    impl Drop for Before {
        fn drop(&mut self) {
            MODE.set(self.0);
        }
    }
    // Once for all probes of the work: a batch makes hundreds of them.
    let now_ms = STARTED.with(|started| started.elapsed().as_millis() as u32);
    let going_ms = if mode == Mode::Loading { GOING_LOADING_MS } else { KNOWN_MS };
    PAGES.with_borrow_mut(|pages| (pages.now_ms, pages.going_ms) = (now_ms, going_ms));
    let _before = Before(MODE.replace(mode));
    WEIGHT.set(0);
    let done = work();
    (done, MODE.get())
}

/// Operation that mapped bytes allow now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum May {
    Touch,
    /// And see whether they are in memory.
    Copy,
    Nothing,
}

#[inline]
fn ask(map: &Map, bytes: &[u8]) -> May {
    if MODE.get() == Mode::Off { May::Touch } else { find_out(map, bytes) }
}

fn find_out(map: &Map, bytes: &[u8]) -> May {
    match MODE.get() {
        Mode::Off => May::Touch,
        Mode::Cold | Mode::Failed => May::Nothing,
        Mode::Watching | Mode::Sending => {
            match PAGES.with_borrow_mut(|pages| pages.probe(bytes, KNOWN)) {
                ProbeResult::Stays => May::Touch,
                ProbeResult::Goes => May::Copy,
                ProbeResult::Missing => {
                    MODE.set(Mode::Cold);
                    May::Nothing
                }
            }
        }
        Mode::Loading => load(map, bytes),
    }
}

/// Requests bytes that are not in memory from the disk, and waits for them.
fn load(map: &Map, bytes: &[u8]) -> May {
    if PAGES.with_borrow_mut(|pages| pages.probe(bytes, KNOWN_LOADING)) == ProbeResult::Missing {
        map::will_need(bytes); // all at once: loading alone would read page after page
        if map.load(bytes).is_err() {
            MODE.set(Mode::Failed);
            return May::Nothing;
        }
    }
    May::Touch
}

/// Fails unless these mapped bytes may be touched. Bytes that may only be copied are left to blocking threads.
pub(crate) fn probe(map: &Map, bytes: &[u8]) -> Result<(), Cold> {
    match ask(map, bytes) {
        May::Touch => Ok(()),
        May::Copy => not_here(),
        May::Nothing => Err(Cold),
    }
}

/// Fails unless [`read_file`] may read these mapped bytes now.
pub(crate) fn probe_file(map: &Map, bytes: &[u8]) -> Result<(), Cold> {
    if ask(map, bytes) == May::Nothing { Err(Cold) } else { Ok(()) }
}

/// Fails unless these mapped bytes may be sent, by touching or by copying them.
pub(crate) fn probe_to_send(map: &Map, bytes: &[u8]) -> Result<(), Cold> {
    match MODE.get() {
        // `May::Copy` is enough: the bytes are copied when they are sent.
        Mode::Sending if ask(map, bytes) == May::Nothing => Err(Cold),
        Mode::Sending => Ok(()),
        _ => probe(map, bytes),
    }
}

/// Returns these bytes of a map, borrowed or copied. The caller must read them at once.
pub(crate) fn read<'m>(map: &Map, bytes: &'m [u8]) -> Result<Cow<'m, [u8]>, Cold> {
    match ask(map, bytes) {
        May::Touch => Ok(Cow::Borrowed(bytes)),
        May::Copy => {
            let mut copied = vec![0; bytes.len()];
            copy(map, bytes, &mut copied)?;
            Ok(Cow::Owned(copied))
        }
        May::Nothing => Err(Cold),
    }
}

/// Copies these bytes of a map from its file, without touching them: of a file that was cut meanwhile
/// they are missing, and no signal comes. A thread that must not wait copies only bytes that are in
/// memory. Without a descriptor the map is read.
pub(crate) fn read_file<'m>(map: &Map, bytes: &'m [u8]) -> Option<Cow<'m, [u8]>> {
    if !map.has_file() {
        return read(map, bytes).ok();
    }
    let mut copied = vec![0; bytes.len()];
    if matches!(MODE.get(), Mode::Off | Mode::Loading) {
        map.copy_waiting(bytes, &mut copied).map_err(|error| failed(&error)).ok()?;
    } else if find_out(map, bytes) == May::Nothing || copy(map, bytes, &mut copied).is_err() {
        return None;
    }
    Some(Cow::Owned(copied))
}

/// Notes that the disk failed, which says nothing about the bytes. The end of a cut file is no such failure: the
/// bytes are missing for good.
fn failed(error: &io::Error) {
    if MODE.get() == Mode::Loading && error.kind() != io::ErrorKind::UnexpectedEof {
        MODE.set(Mode::Failed);
    }
}

/// Reads `N` bytes like [`read`].
pub(crate) fn read_array<const N: usize>(map: &Map, bytes: &[u8]) -> Result<[u8; N], Cold> {
    match ask(map, bytes) {
        May::Touch => Ok(format::array(bytes, 0)),
        May::Copy => {
            let mut copied = [0; N];
            copy(map, bytes, &mut copied)?;
            Ok(copied)
        }
        May::Nothing => Err(Cold),
    }
}

/// Copies these bytes of a map to where they are sent from.
pub(crate) fn copy_to_send(map: &Map, bytes: &[u8], into: &mut [u8]) -> Result<(), Cold> {
    match ask(map, bytes) {
        May::Touch => {
            into.copy_from_slice(bytes);
            Ok(())
        }
        May::Copy => copy(map, bytes, into),
        May::Nothing => Err(Cold),
    }
}

/// Copies these bytes of a map, if all are in memory.
fn copy(map: &Map, bytes: &[u8], into: &mut [u8]) -> Result<(), Cold> {
    let copied = map.copy(bytes, into);
    if copied == NonblockingRead::All {
        return Ok(());
    }
    // A copy that fails tells nothing of the reason: the file system may lack such reads, or a page is gone.
    if map::missing(bytes).is_some() {
        PAGES.with_borrow_mut(|pages| pages.lose(bytes));
    // All of it is in memory, so this does not wait.
    } else if copied == NonblockingRead::Unsupported && map.copy_waiting(bytes, into).is_ok() {
        return Ok(());
    }
    not_here()?;
    Err(Cold)
}

#[cfg(test)]
pub(super) mod tests;
