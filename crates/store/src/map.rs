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

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// A file mapped whole and read-only, of which two regions are readable: `first..` up to the
/// first watermark and `second..` up to the second.
pub(crate) struct Map {
    raw: MmapRaw,
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
        let (first_end, second_end) = (AtomicU64::new(first), AtomicU64::new(second));
        Ok(Self { raw, first, second, first_end, second_end })
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

    /// Where the first region's readable bytes end.
    pub(crate) fn first_end(&self) -> u64 {
        self.first_end.load(Ordering::Acquire)
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
}
