//! The body of a response: slices of mapped files and text, content codings, write buffers.

mod builder;
mod content_coding;

#[cfg(test)]
pub(crate) use builder::FRAME_PIECES;
pub(crate) use builder::{BodyBuilder, ResponseBody, WriteBuf};
pub(crate) use content_coding::AcceptEncoding;
