//! The access log: a file with a line for each request.

mod log_file;
mod queue;

pub(crate) use queue::AccessLog;
