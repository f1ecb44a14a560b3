//! Misses that an upstream answers.

mod attacks;
mod batches;
mod bounds;
mod calls;
mod framing;
mod odd;
mod paths;
mod sockets;
mod wire;
