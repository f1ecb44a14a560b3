//! The full path: hyper for all other requests.

mod connection;
mod relayed;
mod request_body;
mod response;
mod service;

pub(crate) use connection::serve;
pub(crate) use response::{BY_CODING, JSON, name_coding, with_type};
pub(crate) use service::Service;
