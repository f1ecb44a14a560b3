//! An archive of packed files in an object store: pushing to it, checking it, and taking segments from it.

mod connector;
mod error;
mod file_lock;
mod local;
mod objects;
mod push;
pub(crate) mod read;
mod signature;
mod source;
mod store;
mod verify;

pub(crate) use error::Failed;
pub(crate) use local::packed_files;
pub(crate) use push::{Pushed, push};
pub(crate) use signature::SigningKey;
pub(crate) use source::{ArchiveSource, identity_of};
pub(crate) use store::{ArchiveStore, Place};
pub(crate) use verify::{Finding, Verified, verify};
