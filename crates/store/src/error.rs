//! Errors of the store, their usual causes, and the next steps.

use std::io;
use std::path::PathBuf;

use crate::id::{Hash, Identity};
use crate::memory::residency::ReadFailed;
use crate::reads::is_disk_failure;

/// Reason why the store refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process writes to the directory. Stop it, or choose another directory.
    #[error("{} is in use by another neve: its lock file is held", dir.display())]
    Locked {
        /// The directory whose lock is held.
        dir: PathBuf,
    },

    /// The directory belongs to another chain. Choose another directory or another upstream.
    #[error("{} holds {found}, but {expected} is expected; use another data directory", path.display())]
    WrongChain {
        /// Directory of the store, or its file that is of another chain than the others.
        path: PathBuf,
        /// Chain in the stamp, or in the file.
        found: Identity,
        /// Chain that the caller expects.
        expected: Identity,
    },

    /// The stamp is damaged, or of a format that this program does not know.
    #[error(
        "{}: {reason}; run the release that wrote it, or remove this file: neve makes it anew from the segments",
        path.display()
    )]
    BadStamp {
        /// The stamp file.
        path: PathBuf,
        /// Fault of the file.
        reason: String,
    },

    /// Another release of this program wrote the segment. Run that one, or use another directory.
    #[error(
        "{} is of a format version that this program does not know; run the release that wrote it, or use another \
         data directory",
        path.display()
    )]
    OtherVersion {
        /// Path of the segment.
        path: PathBuf,
    },

    /// A record was appended before the directory was bound to a chain: an error of the caller.
    #[error("the store is not bound to a chain yet")]
    Unbound,

    /// Not the next height: an error of the caller.
    #[error("height {height} was appended, {expected} is next")]
    WrongHeight {
        /// The height of the refused record.
        height: u64,
        /// The only height that would be taken.
        expected: u64,
    },

    /// The record does not follow the head: its parent is another block.
    #[error("block {height} has parent {parent}, but the head is {head}")]
    WrongParent {
        /// The height of the refused record.
        height: u64,
        /// The parent that it names.
        parent: Hash,
        /// The hash of the block stored below it.
        head: Hash,
    },

    /// Segments built below the served range do not end where it begins.
    #[error("history ends {}, and the served range begins {}", end(*last), begin(*first))]
    DoesNotJoin {
        /// Height and hash of the newest block that was built.
        last: Option<(u64, Hash)>,
        /// The first served height, and the parent that its block names.
        first: Option<(u64, Hash)>,
    },

    /// The record breaks a limit of the format.
    #[error("block {height} has {what} of {found}, the format allows {limit}")]
    TooLarge {
        /// The height of the refused record.
        height: u64,
        /// Name of the value that is too large.
        what: &'static str,
        /// Value that was given.
        found: u64,
        /// Highest allowed value.
        limit: u64,
    },

    /// There is no space for another segment. Nothing was written; the same call may succeed later.
    #[error(
        "disk nearly full at {}: {free} bytes free, {needed} needed and {reserve} kept in reserve; \
         free some space or lower --retain-bytes or --retain-age",
        dir.display()
    )]
    DiskFull {
        /// Directory of the store.
        dir: PathBuf,
        /// Bytes that the file system still has.
        free: u64,
        /// Bytes of the segment that was to be allocated.
        needed: u64,
        /// Bytes that must stay free.
        reserve: u64,
    },

    /// A write failed. The writer stops for good (see [`Error::Latched`]); readers go on.
    #[error("{action} {name}: {source}")]
    Write {
        /// Operation that failed.
        action: &'static str,
        /// File of the directory that it was done to.
        name: String,
        /// Reason why it failed.
        source: io::Error,
    },

    /// An earlier write failed, so what is on disk is not known: nothing more is written until
    /// the directory is opened again.
    #[error("writing stopped after an earlier error: {first}")]
    Latched {
        /// The first error.
        first: String,
    },

    /// A file or the directory could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },

    /// The disk did not deliver bytes of a source. Nothing was published; writing goes on.
    #[error(transparent)]
    NotDelivered(#[from] ReadFailed),

    /// An option is out of its range.
    #[error("{name} is {found}, allowed is {allowed}")]
    BadOption {
        /// Name of the option.
        name: &'static str,
        /// Value that was given.
        found: u64,
        /// Values that are allowed.
        allowed: String,
    },
}

impl Error {
    /// True if the same call may succeed later without reopening: the disk was full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::DiskFull { .. })
    }

    /// True if an earlier failure stopped all writing.
    pub(crate) fn is_latched(&self) -> bool {
        matches!(self, Self::Latched { .. })
    }

    /// True if the file was removed by another program.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// True if the disk did not deliver bytes: the file may be right, and readable next time.
    pub(crate) fn is_disk_failure(&self) -> bool {
        match self {
            Self::Read { source, .. } => is_disk_failure(source),
            Self::NotDelivered(_) => true,
            _ => false,
        }
    }

    /// Says that the disk did not deliver bytes of a file.
    pub(crate) fn not_delivered(path: impl Into<PathBuf>) -> Self {
        Self::read(path, rustix::io::Errno::IO.into())
    }

    pub(crate) fn read(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Read { path: path.into(), source }
    }
}

fn end(last: Option<(u64, Hash)>) -> String {
    last.map_or("nowhere".into(), |(height, hash)| format!("at {height} with block {hash}"))
}

fn begin(first: Option<(u64, Hash)>) -> String {
    first.map_or("nowhere".into(), |(height, parent)| format!("at {height} with parent {parent}"))
}
