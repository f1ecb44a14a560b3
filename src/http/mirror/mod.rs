//! Segments and records for mirrors.

mod endpoint;
mod record_stream;

pub(crate) use endpoint::MirrorEndpoint;
