//! The memory map of a segment or table file: the only file of this crate with `unsafe` in it.
//!
//! A map hands out `&[u8]` over bytes that another thread is writing *elsewhere* in the same
//! file. That is sound while every byte inside a handed-out slice stays as it is and stays
//! mapped, so:
//!
//! 1. Only bytes below the two watermarks are handed out. A watermark is raised after the bytes
//!    below it were written (release) and read before a slice is made (acquire). It never sinks.
//! 2. No thread writes below a watermark: `segment/active.rs` writes records and slots at increasing
//!    positions and publishes afterwards, and a sealed file is not written at all.
//! 3. neve never shortens a mapped file: segments have their final length from creation on, and are
//!    removed by unlinking, which leaves the map alone.
//!
//! Rules 2 and 3 hold within this program, and the directory lock keeps other writers of ours out.
//! They cannot hold against a person or a program that edits the files in place: a thread that
//! touches a page behind a shortened file's end gets SIGBUS. So does one that touches a page that
//! the disk does not deliver. Threads that may wait therefore load pages ([`load`]) before they
//! touch them; docs/RELIABILITY.md says how far that goes.

#![allow(unsafe_code, reason = "the exception that lib.rs announces")]

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::{Range, RangeInclusive};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::fadvise;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::mm::MlockFlags;
use rustix::process::{Resource, getrlimit};

use super::watermarks::Watermarks;
use crate::reads;
use crate::sync::file_bytes;

/// Bytes that are read at once to compare a checksum.
const CHECKED_AT_ONCE: usize = 128 << 10;

/// A file mapped whole and read-only, of which two regions are readable: `first..` up to the
/// first watermark and `second..` up to the second.
pub(crate) struct Map {
    raw: MmapRaw,
    /// Descriptor for copies without waiting, which the map itself cannot give.
    file: Option<File>,
    watermarks: Watermarks,
    on_unreadable: OnceLock<OnUnreadable>,
    anonymous: bool,
}

/// Told of the place in a file that the disk did not deliver.
type OnUnreadable = Box<dyn Fn(&Map, u64) + Send + Sync>;

impl Map {
    /// Maps `len` bytes of `file` with nothing readable yet.
    pub(crate) fn new(file: &File, len: u64, first: u64, second: u64) -> io::Result<Self> {
        let found = reads::length(file)?;
        // A touch of a page beyond the end of the file is a signal that ends neve.
        if found < len {
            let text = format!("file is cut short: {found} bytes of {len}");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        let raw = map_file(file, len)?;
        let (file, on_unreadable) = (spare(file), OnceLock::new());
        let watermarks = Watermarks::new(first, second);
        Ok(Self { raw, file, watermarks, on_unreadable, anonymous: false })
    }

    /// Makes a map of memory with these bytes, back to back, all of them readable.
    pub(crate) fn in_memory(pieces: &[&[u8]]) -> io::Result<Self> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        // The kernel refuses a map without bytes (EINVAL).
        let mut memory = MmapOptions::new().len(len.max(1)).map_anon()?;
        let mut at = 0;
        for piece in pieces {
            memory[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Ok(Self::anonymous(memory.into(), 0, len as u64))
    }

    /// Makes a map of memory whose first `len` bytes are zero, with nothing readable before `first`.
    /// Pages that no thread reads take no memory.
    pub(crate) fn zeros(first: u64, len: u64) -> io::Result<Self> {
        let memory = MmapOptions::new().len(len.max(1) as usize).map_anon()?;
        Ok(Self::anonymous(memory.into(), first, len))
    }

    fn anonymous(raw: MmapRaw, first: u64, len: u64) -> Self {
        let watermarks = Watermarks::new(first, len);
        watermarks.publish(len, len);
        Self { raw, file: None, watermarks, on_unreadable: OnceLock::new(), anonymous: true }
    }

    /// True if no file is behind it.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.anonymous
    }

    /// Has `tell` hear of places that the disk does not deliver. The first call counts.
    pub(crate) fn on_unreadable(&self, tell: impl Fn(&Self, u64) + Send + Sync + 'static) {
        let _ = self.on_unreadable.set(Box::new(tell));
    }

    /// Waits until `bytes`, which are of this map, are in memory. On an error of the disk it calls the
    /// function of [`Self::on_unreadable`] with the place.
    pub(crate) fn load(&self, bytes: &[u8]) -> io::Result<()> {
        load(bytes).inspect_err(|_| {
            // The kernel does not say which page failed.
            let lost = pieces_by_page(bytes).find(|piece| load(piece).is_err()).unwrap_or(bytes);
            let at = lost.as_ptr().addr().wrapping_sub(self.raw.as_ptr().addr());
            if let Some(tell) = self.on_unreadable.get() {
                tell(self, at as u64);
            }
        })
    }

    /// Makes bytes up to the given ends readable; a reader who sees `first_end` sees both.
    ///
    /// The caller has finished writing them (rule 2).
    pub(crate) fn publish(&self, first_end: u64, second_end: u64) {
        let len = self.raw.len() as u64;
        debug_assert!(first_end <= len && second_end <= len);
        #[cfg(miri)]
        self.read_new(first_end, second_end);
        // Also in a release build: `bytes` relies on it.
        self.watermarks.publish(first_end.min(len), second_end.min(len));
    }

    /// Reads what [`Self::publish`] is going to make readable from the file, where a map is memory.
    #[cfg(miri)]
    fn read_new(&self, first_end: u64, second_end: u64) {
        for (from, end) in [(self.first_end(), first_end), (self.second_end(), second_end)] {
            let Some(file) = self.file.as_ref().filter(|_| from < end) else { continue };
            let mut bytes = vec![0; (end - from) as usize];
            reads::read_exact(file, &mut bytes, from).expect("the caller wrote these bytes");
            // SAFETY: `publish` keeps ends within the map.
            let start = unsafe { self.raw.as_mut_ptr().add(from as usize) };
            // SAFETY: for the same reason. No thread reads above a watermark; miri would tell.
            unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
    }

    /// Place where the second region's readable bytes end.
    pub(crate) fn second_end(&self) -> u64 {
        self.watermarks.second_end()
    }

    /// Place where the first region's readable bytes end.
    pub(crate) fn first_end(&self) -> u64 {
        self.watermarks.first_end()
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

    /// Address and length of the mapped part of `range`.
    fn extent(&self, range: Range<u64>) -> (*mut c_void, usize) {
        let (start, end) = (range.start.min(self.len()), range.end.min(self.len()));
        (self.raw.as_mut_ptr().wrapping_add(start as usize).cast(), (end - start) as usize)
    }

    /// The bytes of `range`, if all of them are readable.
    pub(crate) fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        if !self.watermarks.covers(&range) {
            return None;
        }
        file_bytes();
        let len = (range.end - range.start) as usize;
        // SAFETY: `range` lies below a watermark, and `publish` keeps watermarks within the map.
        let start = unsafe { self.raw.as_ptr().add(range.start as usize) };
        // SAFETY: for the same reason `len` bytes from `start` on are mapped, and `&self` keeps
        // them mapped as long as the slice lives. They are initialised and never change (rules 1
        // to 3 of the file's opening). The weak spot is rule 3 against other programs.
        Some(unsafe { std::slice::from_raw_parts(start, len) })
    }

    /// The CRC-32 of `len` bytes from `offset` on. It reads the file where it can, and not the
    /// map: a disk that does not deliver is an error then, and no signal.
    pub(crate) fn checksum(&self, offset: u64, len: u32) -> io::Result<u32> {
        let end = offset + u64::from(len);
        let Some(file) = &self.file else {
            let bytes = self.bytes(offset..end).unwrap_or_default();
            return Ok(crc32fast::hash(bytes));
        };
        let (mut crc, mut at) = (crc32fast::Hasher::new(), offset);
        let mut piece = vec![0; (len as usize).min(CHECKED_AT_ONCE)];
        while at < end {
            let piece = &mut piece[..(end - at).min(CHECKED_AT_ONCE as u64) as usize];
            reads::read_exact(file, piece, at)?;
            crc.update(piece);
            at += piece.len() as u64;
        }
        Ok(crc.finalize())
    }

    /// Copies `len` bytes from `offset` on, waiting for the disk.
    pub(crate) fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        match &self.file {
            Some(file) => reads::read_exact(file, &mut bytes, offset)?,
            None => bytes.copy_from_slice(
                self.bytes(offset..offset + len as u64).ok_or(io::ErrorKind::UnexpectedEof)?,
            ),
        }
        Ok(bytes)
    }

    /// True if copies come from the file, and not through the map.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Place in the file of `bytes`, which are of this map.
    fn offset_of(&self, bytes: &[u8]) -> u64 {
        (bytes.as_ptr().addr() - self.raw.as_ptr().addr()) as u64
    }

    /// Copies `bytes`, which are of this map, waiting for the disk. They are touched only if
    /// [`Self::has_file`] is false.
    pub(crate) fn copy_waiting(&self, bytes: &[u8], into: &mut [u8]) -> io::Result<()> {
        let Some(file) = &self.file else {
            into.copy_from_slice(bytes);
            return Ok(());
        };
        reads::read_exact(file, into, self.offset_of(bytes))
    }

    /// Copies `bytes`, which are of this map, without touching them, even if their pages leave memory
    /// meanwhile (preadv2(2), `RWF_NOWAIT`). The file has all bytes below a watermark.
    pub(crate) fn copy(&self, bytes: &[u8], into: &mut [u8]) -> NonblockingRead {
        let file = self.file.as_ref().filter(|_| !cfg!(miri));
        let Some(file) = file else { return NonblockingRead::Unsupported };
        if reads::begin().is_err() {
            return NonblockingRead::Unsupported;
        }
        let at = self.offset_of(bytes);
        let (len, mut into) = (bytes.len(), [IoSliceMut::new(&mut into[..bytes.len()])]);
        match preadv2(file, &mut into, at, ReadWriteFlags::NOWAIT) {
            Ok(copied) if copied == len => NonblockingRead::All,
            // A short read ends where the first page is missing.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => NonblockingRead::NotNow,
            Err(_) => NonblockingRead::Unsupported,
        }
    }
}

/// Maps `len` bytes of a file. Miri maps none: there it is memory, which [`Map::publish`] fills.
fn map_file(file: &File, len: u64) -> io::Result<MmapRaw> {
    let mut options = MmapOptions::new();
    options.len(len as usize);
    if cfg!(miri) {
        return Ok(options.map_anon()?.into());
    }
    reads::begin()?;
    let raw = options.map_raw_read_only(file)?;
    // Nothing is read ahead: a look-up would read 128 KiB for its 64 bytes, and a thread that
    // touches the last page read ahead would have to begin the next read. Parts of many pages
    // are requested (`will_need`). A failure only costs time.
    let _ = raw.advise(Advice::Random);
    let _ = fadvise(file, 0, None, rustix::fs::Advice::Random); // the same for copies
    Ok(raw)
}

/// Another descriptor of the file, if those that are left to others stay as many as these may be.
fn spare(file: &File) -> Option<File> {
    if cfg!(miri) {
        return file.try_clone().ok();
    }
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // A new descriptor has the lowest number that is free.
    let is_among_the_first = |file: &File| u64::from(file.as_raw_fd().unsigned_abs()) < most / 2;
    file.try_clone().ok().filter(is_among_the_first)
}

/// Result of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NonblockingRead {
    All,
    /// Some is not in memory, or is being written to where the file system has readers wait for
    /// that (XFS).
    NotNow,
    /// The file system, or this number of files, allows no such copies (tmpfs, whose pages do not
    /// go).
    Unsupported,
}

/// Has the pages at these addresses stay in memory once they are there.
pub(crate) fn lock(addresses: Range<usize>) -> io::Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    let start = std::ptr::without_provenance_mut(addresses.start);
    // SAFETY: this changes neither what is mapped nor what is in it.
    Ok(unsafe { rustix::mm::mlock_with(start, addresses.len(), MlockFlags::ONFAULT) }?)
}

/// Lets them go again.
pub(crate) fn unlock(addresses: Range<usize>) {
    if cfg!(miri) {
        return;
    }
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

/// Pages that the kernel is asked about at once.
const ASKED: usize = 256;

/// The first page of `bytes` that is not in memory. If the kernel does not say, all count as being
/// so.
pub(crate) fn missing(bytes: &[u8]) -> Option<usize> {
    if cfg!(miri) {
        return None;
    }
    #[cfg(test)]
    if reads::fault::is_on() {
        return pages(bytes).next(); // each has to be loaded
    }
    let (page, pages) = (rustix::param::page_size(), pages(bytes));
    pages.clone().step_by(ASKED).find_map(|first| {
        let count = (pages.end() + 1 - first).min(ASKED);
        let mut states = [0_u8; ASKED];
        // SAFETY: the call reads no memory of ours, mapped or not, and writes one byte a page
        // into `states`, which has space for `ASKED`.
        let asked = unsafe {
            let start = std::ptr::without_provenance_mut(first * page);
            libc::mincore(start, count * page, states.as_mut_ptr())
        };
        let missing = states[..count].iter().position(|state| state & 1 == 0);
        missing.filter(|_| asked == 0).map(|at| first + at)
    })
}

/// Checks that the kernel tells which pages are in memory (mincore(2)).
pub(crate) fn can_tell() -> io::Result<()> {
    let (page, mut state) = (vec![0_u8; 1], [0_u8; 1]);
    let start = page.as_ptr().addr() & !(rustix::param::page_size() - 1);
    // SAFETY: the call reads no memory of ours, and writes one byte, for one page, into `state`.
    let asked =
        unsafe { libc::mincore(std::ptr::without_provenance_mut(start), 1, state.as_mut_ptr()) };
    if asked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Cuts bytes where pages begin.
fn pieces_by_page(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let page = rustix::param::page_size();
    let (first, rest) =
        bytes.split_at(bytes.len().min(page - (bytes.as_ptr().addr() & (page - 1))));
    std::iter::once(first).chain(rest.chunks(page))
}

/// Waits until all pages of `bytes` are in memory (madvise(2), `MADV_POPULATE_READ`). A page that
/// the disk does not deliver, or that lies behind the file's end, is an error here, and no signal.
/// Linux before 5.14 does not know this: then the thread waits, or gets the signal, when it touches
/// them.
fn load(bytes: &[u8]) -> io::Result<()> {
    let (page, pages) = (rustix::param::page_size(), pages(bytes));
    if pages.is_empty() || cfg!(miri) {
        return Ok(());
    }
    reads::begin()?;
    let start = std::ptr::without_provenance_mut(pages.start() * page);
    let len = (pages.end() + 1 - pages.start()) * page;
    loop {
        // SAFETY: this changes neither what is mapped nor what is in it.
        match unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxPopulateRead) } {
            Err(Errno::INTR) => {}
            // EIO: of a file system that says why. EFAULT: the touch would be a SIGBUS.
            Err(error @ (Errno::FAULT | Errno::IO | Errno::HWPOISON)) => return Err(error.into()),
            _ => return Ok(()),
        }
    }
}

/// Asks the kernel to read `bytes` from the disk, if they are not in memory. It begins at once
/// and does not wait.
pub(crate) fn will_need(bytes: &[u8]) {
    let (page, pages) = (rustix::param::page_size(), pages(bytes));
    if pages.is_empty() || cfg!(miri) {
        return;
    }
    let start = std::ptr::without_provenance_mut(pages.start() * page);
    let len = (pages.end() + 1 - pages.start()) * page;
    // SAFETY: this advice changes neither what is mapped nor what is in it.
    // A failure costs time and nothing else.
    let _ = unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::WillNeed) };
}
