//! Bodies of responses, and what hyper receives of a body.

mod accept_encoding;
mod builder;
mod content_coding;
mod incoming;
mod response_body;
mod slice;
mod write_buf;

pub(crate) use accept_encoding::AcceptEncoding;
pub(crate) use builder::{BodyBuilder, Mark};
pub(crate) use incoming::{ConnectionWakes, poll_part};
#[cfg(test)]
pub(crate) use response_body::FRAME_PIECES;
pub(crate) use response_body::ResponseBody;
pub(crate) use write_buf::WriteBuf;
