//! An archive of packed files in an object store: pushing to it, checking it, and taking segments from it.

mod connector;
mod error;
mod file_lock;
mod index_objects;
mod listing;
mod local;
mod objects;
pub(crate) mod read;
mod requests;
mod signature;
mod source;
mod store;
mod verify;
pub(crate) mod write;

pub(crate) use error::Failed;
pub(crate) use local::{BadFile, packed_files};
pub(crate) use signature::SigningKey;
pub(crate) use source::{ArchiveSource, identity_of};
pub(crate) use store::{ArchiveAddress, ArchiveStore, HeldManifest};
pub(crate) use verify::{
    ArchiveCheck, ArchiveFinding, CheckEvent, NeighborProof, Proving, Verified, verify_from,
};
