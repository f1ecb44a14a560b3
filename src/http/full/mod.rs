//! The full path: hyper for all other requests.

mod calls;
mod fetching;
mod head_refusal;
mod http1;
mod http2;
mod non_rpc;
mod pages;
mod relayed;
mod request_admission;
mod request_body;
mod service;

pub(crate) use http1::serve;
pub(crate) use service::Service;
