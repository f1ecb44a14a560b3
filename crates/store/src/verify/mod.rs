//! Reading everything and believing nothing: the store's half of `neve verify`.
//!
//! Files are read with `pread` into buffers, not through maps, so that a damaged disk is an error
//! and not a signal. No lock is taken: a server may run on the directory meanwhile. What it
//! evicts is skipped, what it is just writing is read again before it is called damaged.

mod digest;
mod directory;
mod finding;
mod inventory;
mod packed_file;
mod segment_file;
mod table_file;

pub(crate) use directory::packed;
pub use directory::{directory, is_store, segment, total_bytes};
pub use finding::{Finding, Stored, Summary, Visitor};
pub use inventory::{StoredFile, Tier, inventory};
