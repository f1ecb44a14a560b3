//! Follows the chain: new heights in order into the writer, and values that no block tells.

mod first_height;
mod givers;
mod refresh_values;
mod session;
mod session_end;
mod stream;
mod value_type;

pub(crate) use givers::Givers;
pub(crate) use refresh_values::run;
pub(crate) use session::Session;
pub(crate) use session_end::SessionEnd;
pub(crate) use stream::StreamFollower;
