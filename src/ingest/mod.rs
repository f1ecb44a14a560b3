//! The writer thread, the backfill thread, their queue, memory locks, the packer, and the scrubber.

mod backfill_thread;
mod clock;
mod full_disk;
pub(crate) mod memory_lock;
mod packer;
mod queue;
pub(crate) mod scrubber;
pub(crate) mod writer;
mod written;

pub(crate) use backfill_thread::BackfillThread;
pub(crate) use queue::Ingest;
pub(crate) use writer::rules_of_stamp;
pub(crate) use written::Stopped;
