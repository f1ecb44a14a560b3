//! Changing a store: opening, appending, retention, backfill.

mod backfill_writer;
mod background;
mod built_segments;
mod candidate;
mod eviction;
mod open;
mod options;
mod pack;
mod partial_segment;
mod quarantine;
mod retention;
mod writer;

pub use backfill_writer::BackfillWriter;
pub use background::{Merging, NewTable, Syncing};
pub use built_segments::BuiltSegments;
pub use eviction::Evicted;
pub use open::{Opened, open, open_on, open_on_with, open_with};
pub use options::Options;
pub use pack::{
    NewName, NewPacked, PackEnd, PackOutcome, Packable, PackedHeights, Packing, Replaced,
    UnpackableRange,
};
pub use partial_segment::{PartialSegment, arriving};
pub use retention::{Hold, Retention};
pub use writer::Writer;

pub(crate) use built_segments::FirstPart;
pub(crate) use options::range_blocks;
