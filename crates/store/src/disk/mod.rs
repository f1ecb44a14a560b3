//! Names of the files of a store, and each change of one.

mod claims;
#[allow(clippy::module_inception, reason = "the file of the trait `Disk`")]
mod disk;
mod locks;
mod names;
mod piece_writer;
mod real_disk;
mod stamp;

pub use crate::reads::open_regular;
pub use disk::{Disk, Op};
pub use real_disk::{RealDisk, free_bytes};
pub use stamp::Stamp;

pub(crate) use claims::Claim;
pub(crate) use disk::Latch;
pub(crate) use locks::Locks;
pub(crate) use names::{
    COPY, CUT, SPLIT, STAMP_NAME, UNFINISHED, list, packed_name, parse_copy_name,
    parse_packed_name, parse_quarantined_name, parse_segment_name, parse_table_name,
    parse_unfinished_name, quarantined_name, segment_name, table_name,
};
pub(crate) use piece_writer::PieceWriter;
