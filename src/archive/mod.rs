//! An archive of packed files in an object store: pushing to it, and checking it.

mod connector;
mod error;
mod file_lock;
mod local;
mod push;
mod store;
mod verify;

pub(crate) use error::Failed;
pub(crate) use local::packed_files;
pub(crate) use push::{Pushed, push};
pub(crate) use store::{ArchiveStore, Place};
pub(crate) use verify::{Finding, Verified, verify};
