//! Reasons why bytes of an archive are refused.

/// Reason why an object of an archive cannot be read or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// Another release wrote the object.
    #[error("{what} of version {version}; this release reads version {read}")]
    Version {
        /// Kind of the object.
        what: &'static str,
        /// Version of the object.
        version: u64,
        /// Version that this release reads.
        read: u64,
    },
    /// Bytes that no writer makes.
    #[error("{what}: {why}")]
    Malformed {
        /// Kind of the object.
        what: &'static str,
        /// Reason in words.
        why: String,
    },
}

impl ArchiveError {
    pub(crate) fn malformed(what: &'static str, why: impl Into<String>) -> Self {
        Self::Malformed { what, why: why.into() }
    }
}
