//! Reasons why something of an archive in an object store is not read.

/// Reason why pages, or what they hold, were not brought from the object store. Work on an archive that a command does
/// has [`Failed`](crate::archive::Failed) instead, with words for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ObjectNotRead {
    /// The object is not in the store.
    #[error("absent")]
    Absent,
    /// Bytes that are not those of its name.
    #[error("changed")]
    Changed,
    /// The store did not answer, or rests because it did not before.
    #[error("the object store does not answer")]
    Failed,
    /// The reads of this second are used up: those of all, or those of the address.
    #[error("no read is left for now")]
    Refused,
    /// The manifest names no such thing, or the packed file has no such height.
    #[error("not in the archive")]
    Unknown,
    /// A request needs more reads, or more bytes, than it may.
    #[error("too many reads")]
    TooMany,
    /// A call for logs needs more reads, or more bytes, than one may.
    #[error("too many reads for logs")]
    Beyond,
}

impl ObjectNotRead {
    /// True if another attempt may succeed soon.
    pub(crate) fn passes(self) -> bool {
        matches!(self, Self::Failed | Self::Refused)
    }
}
