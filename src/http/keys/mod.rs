//! API keys of clients: read from a file, found by hash, bounded by rate and methods.

mod api_key;
mod key_file;
mod key_metrics;
mod key_ring;
mod presented;
mod refusal;

pub(crate) use api_key::KeyHash;
pub(crate) use key_file::{check_name, entry};
pub(crate) use key_metrics::render;
pub(crate) use key_ring::{ClientKey, KeyRing, LiveKeys};
pub(crate) use presented::{KeyPrefix, names_key, take_key};
pub(crate) use refusal::KeyRefusal;
