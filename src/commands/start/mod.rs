//! Starts what commands share: the store, upstreams, the writer, listeners.

mod dev;
mod error;
mod inherited;
mod listeners;
mod parts;
pub(crate) mod service_manager;
mod store;
mod upstreams;

pub(crate) use error::StartError;
pub(crate) use inherited::Inherited;
pub(crate) use listeners::{Listeners, connections_limits, not_bound};
pub(crate) use parts::{Parts, finish};
#[cfg(feature = "archive")]
pub(crate) use store::open;
pub(crate) use store::{StoreDir, describe_store, open_and_log, serving_of};
pub(crate) use upstreams::Upstreams;
