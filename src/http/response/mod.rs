//! HTTP responses on both paths: headers, bodies, and how they are sent.

mod content;
mod copied_body;
mod disk_thread;
mod headers;
mod http_body;
mod send;
pub(crate) mod writer;

pub(crate) use content::{
    BY_CODING, BYTES, JSON, NO_STORE, PLAIN_TEXT, coded, name_coding, not_stored, typed,
};
pub(crate) use disk_thread::on_disk_thread;
pub(crate) use headers::Persistence;
pub(crate) use http_body::{HttpBody, StreamBody, Streamed, whole};
pub(crate) use send::{poll_send, send};
pub(crate) use writer::{ResponseWriter, Sent};
