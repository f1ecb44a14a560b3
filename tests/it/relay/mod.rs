//! Misses that an upstream answers.

mod batches;
mod bounds;
mod calls;
mod paths;
mod sockets;
mod wire;
