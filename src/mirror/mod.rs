//! The protocol of a mirror and its source, and the mirror's side of it.

mod rejected_segments;
mod source;
mod stream_buffer;
mod wire;

pub(crate) use source::{ByteStream, Channel, MirrorSource, SourceError};
#[cfg(fuzzing)]
pub(crate) use wire::Malformed;
pub(crate) use wire::{
    Form, Frame, Listed, Listing, PACKED, RECORDS, ROOT, SEGMENT, SEGMENTS, record,
};
