//! An archive: packed files in an object store, and the objects that lead to them.
//!
//! [`Manifest`] names all other objects, with their lengths and digests. A [`Span`] leads from a
//! hash to a height, a [`HashFilter`] says that there is none. [`Terms`] lead from a term of logs to segments. [`PageLists`] prove pages that are
//! read alone. [`Links`] lead to the manifests before. [`ObjectName`] is the name of an object that never changes. docs/ARCHIVE.md has
//! the forms, to the byte.
//!
//! The readers treat their bytes as hostile: bounds first, bounded work, no panic. No I/O.

#![forbid(unsafe_code)]

mod digest;
mod error;
mod filter;
mod links;
mod manifest;
mod name;
mod page_lists;
mod span;
mod table;
mod terms;

pub use digest::{Digest, OBJECT_BYTES_MAX, PAGE_BYTES, Signature, object_digest};
pub use error::ArchiveError;
pub use filter::{FilterTable, HashFilter, MERGED_FILTERS, Merging};
pub use links::{Descent, LINK_OBJECTS_MAX, LINKS_BYTES, LINKS_MAX, Links};
pub use manifest::{
    Chain, DELETED_MAX, Deletion, IndexEntry, MANIFEST_BYTES_MAX, MANIFEST_NAME, Manifest,
    SEGMENTS_MAX, SegmentEntry, SpanEntry, Trial, VERSION,
};
pub use name::{Kind, ObjectName};
pub use page_lists::{PageList, PageLists, SegmentPages, TermPages};
pub use span::{Key, PREFIX_BYTES, SPAN_SEGMENTS, Span, Spot, span_groups};
pub use terms::{Terms, segment_bit, segments_in};
