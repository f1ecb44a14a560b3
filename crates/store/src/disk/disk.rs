//! Changes of the store's files.
//!
//! Every change is one [`Op`], so that a test can record them, replay any prefix of them, tear the
//! last one, or make one fail: see `tests/crash.rs`. `reads.rs` reads.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::claims::{Claim, Claims};
use super::names::{COPY, UNFINISHED};
use crate::error::Error;
use crate::sync::file_bytes;

/// A change to the directory. Names are file names within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// Creates the file, `len` bytes long, all zero, with its blocks reserved.
    Allocate {
        /// The new file. It must not exist.
        name: &'a str,
        /// Length, which never changes.
        len: u64,
    },
    /// Overwrites bytes inside the file's length.
    Write {
        /// Name of the file.
        name: &'a str,
        /// Offset in the file.
        offset: u64,
        /// Bytes to write.
        bytes: &'a [u8],
    },
    /// Makes all earlier writes to the file survive power loss.
    Sync {
        /// Name of the file.
        name: &'a str,
    },
    /// Gives the blocks from `offset` on back; the length stays, the bytes read as zero.
    Punch {
        /// Name of the file.
        name: &'a str,
        /// The first byte given back.
        offset: u64,
    },
    /// Replaces `to` by `from` in one step.
    Rename {
        /// The name that disappears.
        from: &'a str,
        /// The name that stays.
        to: &'a str,
    },
    /// Removes the file; threads that have it open or mapped keep it.
    Remove {
        /// Name of the file.
        name: &'a str,
    },
    /// Makes earlier creations, renames and removals survive power loss.
    SyncDir,
}

impl<'a> Op<'a> {
    /// The verb, for error messages.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Allocate { .. } => "allocating",
            Self::Write { .. } => "writing",
            Self::Sync { .. } => "syncing",
            Self::Punch { .. } => "giving back the end of",
            Self::Rename { .. } => "renaming",
            Self::Remove { .. } => "removing",
            Self::SyncDir => "syncing the directory of",
        }
    }

    /// Bytes of the disk that it asks for.
    fn len(&self) -> u64 {
        match self {
            Self::Allocate { len, .. } => *len,
            Self::Write { bytes, .. } => bytes.len() as u64,
            _ => 0,
        }
    }

    /// The file that it is about.
    pub fn name(&self) -> &'a str {
        match self {
            Self::Allocate { name, .. }
            | Self::Write { name, .. }
            | Self::Sync { name }
            | Self::Punch { name, .. }
            | Self::Remove { name } => name,
            Self::Rename { to, .. } => to,
            Self::SyncDir => ".",
        }
    }
}

/// A directory that can be changed.
pub trait Disk: Send + Sync + 'static {
    /// Directory of the store.
    fn dir(&self) -> &Path;

    /// Does one change, wholly or with an error.
    fn apply(&self, op: Op<'_>) -> io::Result<()>;

    /// Bytes that an ordinary user can still allocate.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// A disk that stops taking changes after the first one that failed: what is on it is not known
/// then, and an fsync that is tried again may claim success for pages that were dropped.
pub(crate) struct Latch {
    disk: Arc<dyn Disk>,
    reserve: u64,
    first: Option<String>,
    claims: Arc<Claims>,
    /// Files to remove, in order, for whose removal the disk had no space.
    due: VecDeque<String>,
    /// Names of files that are to be set aside, and whose bytes no other file may replace before.
    kept: Vec<String>,
}

impl Latch {
    pub(crate) fn new(disk: Arc<dyn Disk>, reserve: u64) -> Self {
        Self {
            disk,
            reserve,
            first: None,
            claims: Arc::default(),
            due: VecDeque::new(),
            kept: Vec::new(),
        }
    }

    /// Returns this disk for files of another purpose: what fails there says nothing of these.
    pub(crate) fn beside(&self) -> Self {
        let (disk, claims) = (Arc::clone(&self.disk), Arc::clone(&self.claims));
        Self { claims, ..Self::new(disk, self.reserve) }
    }

    /// Returns this disk for work that gives back more than it takes: half of the reserve is for it. Without
    /// that a disk could stay full that only this work would empty.
    pub(crate) fn beside_in_reserve(&self) -> Self {
        Self { reserve: self.reserve.div_ceil(2), ..self.beside() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.disk.dir()
    }

    /// Waits until no other thread has the unfinished file `name`, and takes it.
    pub(crate) fn claim(&self, name: &str) -> Result<Claim, Error> {
        self.claims.take(name).ok_or_else(|| {
            let source = io::Error::new(io::ErrorKind::ResourceBusy, "another thread has it");
            Error::Write { action: "waiting for", name: name.to_owned(), source }
        })
    }

    /// Takes the unfinished file `name`, unless another thread has it.
    pub(crate) fn claim_if_free(&self, name: &str) -> Option<Claim> {
        self.claims.take_if_free(name)
    }

    /// Takes no more changes, because of an error on files of the same purpose elsewhere.
    pub(crate) fn stop(&mut self, error: &Error) {
        self.first.get_or_insert_with(|| error.to_string());
    }

    /// Does one change. A full disk is no reason to stop for good: a refused allocation changed
    /// nothing, and a refused write is below no watermark and is written again from its start.
    pub(crate) fn apply(&mut self, op: Op<'_>) -> Result<(), Error> {
        if let Some(first) = &self.first {
            return Err(Error::Latched { first: first.clone() });
        }
        // A full disk is the only error that the writer waits out, and waiting is right here too:
        // the kept file gets its new name first.
        if let Op::Rename { to, .. } = op
            && self.kept.iter().any(|kept| kept == to)
        {
            return Err(self.disk_full(0));
        }
        file_bytes();
        match self.change(op) {
            Ok(()) => self.note_names(op),
            Err(source) => return self.note_failure(op, source),
        }
        Ok(())
    }

    /// Notes the names that a change took and gave.
    fn note_names(&mut self, op: Op<'_>) {
        if let Op::Rename { from, .. } = op {
            self.forget_kept(from);
        }
        if let Op::Rename { to: name, .. } | Op::Allocate { name, .. } = op {
            self.due.retain(|due| due != name); // another file has the name now
        }
    }

    /// Returns the error of a failed change, unless it was to remove a file that is gone. Takes no more changes if the bytes on
    /// disk are not known.
    fn note_failure(&mut self, op: Op<'_>, source: io::Error) -> Result<(), Error> {
        if source.kind() == io::ErrorKind::StorageFull {
            return Err(self.disk_full(op.len()));
        }
        // Another program removed the file: the operation changed nothing, so the state of the disk is known.
        let is_gone = source.kind() == io::ErrorKind::NotFound;
        if is_gone && let Op::Remove { name } = op {
            tracing::warn!(file = name, "file was already removed");
            return Ok(());
        }
        let (action, name) = (op.verb(), op.name().to_owned());
        let error = Error::Write { action, name, source };
        // A failed allocation left no file, and a file that is gone was not changed. After any
        // other failure the bytes on disk are not known.
        if !is_gone && !matches!(op, Op::Allocate { .. }) {
            self.first = Some(error.to_string());
        }
        Err(error)
    }

    /// Does one change. An unfinished file of a write that there was no space for makes way.
    fn change(&self, op: Op<'_>) -> io::Result<()> {
        let changed = self.disk.apply(op);
        match (&changed, op) {
            (Err(error), Op::Allocate { name, .. })
                // Left over from a write that ended on a full disk: nothing refers to it.
                if error.kind() == io::ErrorKind::AlreadyExists && name.ends_with(UNFINISHED) =>
            {
                self.disk.apply(Op::Remove { name })?;
                self.disk.apply(op)
            }
            _ => changed,
        }
    }

    /// Removes a file. If the disk has no space to do that, it waits for [`Latch::settle`], and with it each file that is
    /// removed later: in another order a crash could leave a gap. An unfinished file stays instead, as another thread may
    /// make it anew before there is space: that thread removes it then, or the next start does.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Error> {
        // Only a start makes copies, and one that is left could get the name of its segment.
        if name.ends_with(UNFINISHED) && !name.ends_with(COPY) {
            return match self.apply(Op::Remove { name }) {
                Err(error) if error.is_disk_full() => {
                    tracing::warn!(%error, file = name, "unfinished file left");
                    Ok(())
                }
                removed => removed,
            };
        }
        self.due.push_back(name.to_owned());
        self.settle_if_room()
    }

    /// True if files wait for space to be removed.
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Removes files that wait for space.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        while let Some(name) = self.due.front().cloned() {
            self.apply(Op::Remove { name: &name })?;
            self.due.pop_front();
        }
        Ok(())
    }

    /// Removes files that wait for space, as far as there is any.
    pub(crate) fn settle_if_room(&mut self) -> Result<(), Error> {
        match self.settle() {
            Err(error) if error.is_disk_full() => {
                tracing::warn!(%error, files = self.due.len(), "files not removed yet");
                Ok(())
            }
            settled => settled,
        }
    }

    /// Refuses to replace this file until it is renamed, as if the disk had no space.
    pub(crate) fn keep(&mut self, name: &str) {
        self.kept.push(name.to_owned());
    }

    /// A file that is kept.
    pub(crate) fn kept(&self) -> Option<String> {
        self.kept.last().cloned()
    }

    /// Keeps a file no longer that is gone.
    pub(crate) fn forget_kept(&mut self, name: &str) {
        self.kept.retain(|kept| kept != name);
    }

    /// Allocates a file, unless that would eat into the reserve.
    pub(crate) fn allocate(&mut self, name: &str, len: u64) -> Result<(), Error> {
        self.check_room(len)?;
        self.apply(Op::Allocate { name, len })
    }

    /// Fails if `len` bytes more would take the reserve.
    pub(crate) fn check_room(&self, len: u64) -> Result<(), Error> {
        let free = self.free_bytes()?;
        if free.saturating_sub(len) < self.reserve { Err(self.disk_full(len)) } else { Ok(()) }
    }

    fn disk_full(&self, needed: u64) -> Error {
        let free = self.free_bytes().unwrap_or(0);
        Error::DiskFull { dir: self.dir().to_owned(), free, needed, reserve: self.reserve }
    }

    fn free_bytes(&self) -> Result<u64, Error> {
        self.disk.free_bytes().map_err(|error| Error::read(self.dir(), error))
    }
}
