//! Writing an archive: the trial of its store, pushing, dropping heights and deleting objects.

mod change;
mod ending;
mod file_system;
mod gc;
mod init;
mod newest;
mod push;
mod pusher;
mod retain;
mod staging;
mod trial;

pub(crate) use change::{WriteOptions, Writer};
pub(crate) use gc::{Collected, GcOptions, gc};
pub(crate) use init::{Initialized, NamedChain, init};
pub(crate) use newest::Newest;
pub(crate) use push::{Progress, Pushed, push};
pub(crate) use pusher::Pusher;
pub(crate) use retain::{Retained, retain};

#[cfg(test)]
pub(super) mod tests;
