//! A real avalanchego.

mod feed;
mod odd_messages;
mod real_node;
