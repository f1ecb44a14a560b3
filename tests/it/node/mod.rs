//! A real avalanchego.

mod feed;
mod real_node;
