//! The socket of a connection in hyper's hands: its deadlines, its memory, and what hyper is given of it.

mod deadline;
mod framing;
mod idle_state;
mod io;
mod memory;
#[allow(clippy::module_inception, reason = "the file of the type `Socket`")]
mod socket;

pub(crate) use idle_state::IdleState;
pub(crate) use socket::{NO_ROOM, Socket};
