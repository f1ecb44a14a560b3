//! The memory map of a segment or table file: the only file of this crate with `unsafe` in it.
//!
//! A map hands out `&[u8]` over bytes that another thread is writing *elsewhere* in the same
//! file. That is sound while every byte inside a handed-out slice stays as it is and stays
//! mapped, so:
//!
//! 1. Only bytes below the two watermarks are handed out. A watermark is raised after the bytes
//!    below it were written (release) and read before a slice is made (acquire). It never sinks.
//! 2. Nobody writes below a watermark: `active.rs` writes records and slots at increasing
//!    positions and publishes afterwards, and a sealed file is not written at all.
//! 3. Nobody shortens a mapped file: segments have their final length from creation on, and are
//!    removed by unlinking, which leaves the map alone.
//!
//! Rules 2 and 3 hold within this program, and the directory lock keeps other writers of ours
//! out. They cannot hold against a person or a program that edits the files in place: shortening
//! one ends this process with SIGBUS, as docs/OPERATING.md says. Reading past what the disk can
//! deliver (an I/O error under the map) does the same.

#![allow(unsafe_code, reason = "the exception that lib.rs announces")]

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::{Range, RangeInclusive};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::fadvise;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::mm::MlockFlags;
use rustix::process::{Resource, getrlimit};

/// A file mapped whole and read-only, of which two regions are readable: `first..` up to the
/// first watermark and `second..` up to the second.
pub(crate) struct Map {
    raw: MmapRaw,
    /// For copies, which the map itself gives to nobody without waiting.
    file: Option<File>,
    first: u64,
    second: u64,
    /// Invariant: bytes of `first..first_end` never change again. Raised last.
    first_end: AtomicU64,
    /// Invariant: bytes of `second..second_end` never change again.
    second_end: AtomicU64,
}

impl Map {
    /// Maps `len` bytes of `file` with nothing readable yet.
    pub(crate) fn new(file: &File, len: u64, first: u64, second: u64) -> io::Result<Self> {
        let found = file.metadata()?.len();
        if found < len {
            let text = format!("file is cut short: {found} bytes of {len}");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        let raw = MmapOptions::new().len(len as usize).map_raw_read_only(file)?;
        // Nothing is read ahead: a look-up would read 128 KiB for its 64 bytes, and whoever
        // touches the last page that was read ahead would have to begin the next. What is of
        // many pages is asked for (`will_need`). A failure costs time and nothing else.
        let _ = raw.advise(Advice::Random);
        let _ = fadvise(file, 0, None, rustix::fs::Advice::Random); // the same for copies
        let (first_end, second_end) = (AtomicU64::new(first), AtomicU64::new(second));
        Ok(Self { raw, file: spare(file), first, second, first_end, second_end })
    }

    /// Makes bytes up to the given ends readable; a reader who sees `first_end` sees both.
    ///
    /// The caller has finished writing them (rule 2).
    pub(crate) fn publish(&self, first_end: u64, second_end: u64) {
        let len = self.raw.len() as u64;
        debug_assert!(first_end <= len && second_end <= len);
        self.second_end.fetch_max(second_end.min(len), Ordering::Release);
        self.first_end.fetch_max(first_end.min(len), Ordering::Release);
    }

    /// Where the second region's readable bytes end.
    pub(crate) fn second_end(&self) -> u64 {
        self.second_end.load(Ordering::Acquire)
    }

    /// Where the first region's readable bytes end.
    pub(crate) fn first_end(&self) -> u64 {
        self.first_end.load(Ordering::Acquire)
    }

    /// Bytes that are mapped.
    pub(crate) fn len(&self) -> u64 {
        self.raw.len() as u64
    }

    /// Has the pages of `range` stay in memory once they are there. It begins where a page does.
    pub(crate) fn lock(&self, range: Range<u64>) -> io::Result<()> {
        let (start, len) = self.extent(range);
        lock(start.addr()..start.addr() + len)
    }

    /// Lets them go again.
    pub(crate) fn unlock(&self, range: Range<u64>) {
        let (start, len) = self.extent(range);
        unlock(start.addr()..start.addr() + len);
    }

    /// Address and length of what of `range` is mapped.
    fn extent(&self, range: Range<u64>) -> (*mut c_void, usize) {
        let (start, end) = (range.start.min(self.len()), range.end.min(self.len()));
        (self.raw.as_mut_ptr().wrapping_add(start as usize).cast(), (end - start) as usize)
    }

    /// The bytes of `range`, if all of them are readable.
    pub(crate) fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        let readable = |start, end: &AtomicU64| {
            range.start >= start && range.end <= end.load(Ordering::Acquire)
        };
        if range.start > range.end
            || !(readable(self.second, &self.second_end) || readable(self.first, &self.first_end))
        {
            return None;
        }
        let len = (range.end - range.start) as usize;
        // SAFETY: `range` lies below a watermark, and `publish` keeps watermarks within the map.
        let start = unsafe { self.raw.as_ptr().add(range.start as usize) };
        // SAFETY: for the same reason `len` bytes from `start` on are mapped, and `&self` keeps
        // them mapped as long as the slice lives. They are initialised and never change (rules 1
        // to 3 of the file's opening). The weak spot is rule 3 against other programs.
        Some(unsafe { std::slice::from_raw_parts(start, len) })
    }

    /// Copies `bytes`, which are of this map, without touching them, whatever becomes of them meanwhile
    /// (preadv2(2), `RWF_NOWAIT`). What was written below a watermark is in the file.
    pub(crate) fn copy(&self, bytes: &[u8], into: &mut [u8]) -> Copied {
        let Some(file) = &self.file else { return Copied::Unsupported };
        let at = bytes.as_ptr().addr() - self.raw.as_ptr().addr();
        let (len, mut into) = (bytes.len(), [IoSliceMut::new(&mut into[..bytes.len()])]);
        match preadv2(file, &mut into, at as u64, ReadWriteFlags::NOWAIT) {
            Ok(copied) if copied == len => Copied::All,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Copied::NotNow,
            Err(_) => Copied::Unsupported,
        }
    }
}

/// One more descriptor of it, if those that are left to others stay as many as these may be.
fn spare(file: &File) -> Option<File> {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // A new descriptor has the lowest number that is free.
    let is_among_the_first = |file: &File| u64::from(file.as_raw_fd().unsigned_abs()) < most / 2;
    file.try_clone().ok().filter(is_among_the_first)
}

/// What came of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copied {
    All,
    /// Some is not in memory, or is being written to where the file system has readers wait for that (XFS).
    NotNow,
    /// This file system, or this many files, knows no such copies (tmpfs, whose pages do not go).
    Unsupported,
}

/// Has the pages at these addresses stay in memory once they are there.
pub(crate) fn lock(addresses: Range<usize>) -> io::Result<()> {
    let start = std::ptr::without_provenance_mut(addresses.start);
    // SAFETY: this changes neither what is mapped nor what is in it.
    Ok(unsafe { rustix::mm::mlock_with(start, addresses.len(), MlockFlags::ONFAULT) }?)
}

/// Lets them go again.
pub(crate) fn unlock(addresses: Range<usize>) {
    let start = std::ptr::without_provenance_mut(addresses.start);
    // SAFETY: as above. A failure leaves them in memory, and nothing else.
    let _ = unsafe { rustix::mm::munlock(start, addresses.len()) };
}

/// The numbers of the pages that these bytes lie in; none if there are none.
pub(crate) fn pages(bytes: &[u8]) -> RangeInclusive<usize> {
    // A page is a power of two, which the compiler does not know: two divisions a look would be felt.
    let (bits, start) = (rustix::param::page_size().trailing_zeros(), bytes.as_ptr().addr());
    match bytes.len() {
        0 => RangeInclusive::new(1, 0),
        len => start >> bits..=(start + len - 1) >> bits,
    }
}

/// How many pages the system is asked about at once.
const ASKED: usize = 256;

/// The first page of `bytes` that is not in memory. If the system does not say, all count as being so.
pub(crate) fn missing(bytes: &[u8]) -> Option<usize> {
    let (page, pages) = (rustix::param::page_size(), pages(bytes));
    pages.clone().step_by(ASKED).find_map(|first| {
        let count = (pages.end() + 1 - first).min(ASKED);
        let mut states = [0_u8; ASKED];
        // SAFETY: the call reads no memory of ours, mapped or not, and writes one byte a page
        // into `states`, which has room for `ASKED`.
        let asked = unsafe {
            let start = std::ptr::without_provenance_mut(first * page);
            libc::mincore(start, count * page, states.as_mut_ptr())
        };
        let missing = states[..count].iter().position(|state| state & 1 == 0);
        missing.filter(|_| asked == 0).map(|at| first + at)
    })
}

/// Asks the system to read `bytes` from the disk, if they are not in memory. It begins at once
/// and does not wait.
pub(crate) fn will_need(bytes: &[u8]) {
    let (page, pages) = (rustix::param::page_size(), pages(bytes));
    if pages.is_empty() {
        return;
    }
    let start = std::ptr::without_provenance_mut(pages.start() * page);
    let len = (pages.end() + 1 - pages.start()) * page;
    // SAFETY: this advice changes neither what is mapped nor what is in it.
    // A failure costs time and nothing else.
    let _ = unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::WillNeed) };
}
