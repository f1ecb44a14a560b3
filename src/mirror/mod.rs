//! Copies of a neve, made from it and from nothing else.
//!
//! A neve that is asked to (`--serve-segments`) gives its sealed segments as files and its records
//! as a stream ([`wire`] has the form of both; `src/http/mirror.rs` gives them). Another one takes
//! them from there (`--mirror-from`): it is an upstream like others, asked over JSON-RPC for what
//! neither brings. Nothing is believed: a record from the stream goes the way of any answer, a
//! segment's file is made again record by record ([`check`]) before anybody sees it.

pub(crate) mod check;
mod feed;
mod peer;
mod refused;
pub(crate) mod wire;

pub(crate) use feed::Feed;
pub(crate) use peer::{Means, Peer, Unusable};
