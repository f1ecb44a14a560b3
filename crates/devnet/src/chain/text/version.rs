//! Releases of a node that write texts differently.

/// The release that a node is of, which subscribers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// avalanchego v1.14, which does not know the fields of Helicon.
    V1_14,
    /// avalanchego v1.15, which shows them as null in the headers that lack them.
    V1_15,
}
