//! The body of a response: slices of mapped files and text, content codings, write buffers.

mod accept_encoding;
mod builder;
mod content_coding;
mod response_body;
mod slice;
mod write_buf;

pub(crate) use accept_encoding::AcceptEncoding;
pub(crate) use builder::{BodyBuilder, Mark};
#[cfg(test)]
pub(crate) use response_body::FRAME_PIECES;
pub(crate) use response_body::ResponseBody;
pub(crate) use write_buf::WriteBuf;
