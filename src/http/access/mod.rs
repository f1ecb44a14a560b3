//! Requests as an operator follows them: lines of the access log, ids, and W3C trace context.

mod access_body;
mod called_methods;
mod entry;
mod escaped;
mod facts;
mod line;
mod request_id;
mod settings;
mod trace_context;

pub(crate) use access_body::answer;
pub(crate) use called_methods::CalledMethods;
pub(crate) use entry::{AccessEntry, MessageAccess, Sink};
pub(crate) use settings::Access;
