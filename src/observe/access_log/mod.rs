//! The access log: a bounded queue of lines, and the thread that writes them.

mod log_file;
mod queue;

pub(crate) use queue::AccessLog;
