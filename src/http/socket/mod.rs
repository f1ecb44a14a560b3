//! The socket of a connection in hyper's hands: its deadlines, its memory, and what hyper is given of it.

mod deadline;
mod framing;
mod hyper_socket;
mod idle_state;
mod io;
mod memory;

pub(crate) use hyper_socket::{HyperSocket, LINGER, NO_MEMORY, poll_discard};
pub(crate) use idle_state::IdleState;
