//! neve's own log on standard error: its levels, and the queue that keeps it from delaying anything.

mod filter;
mod output;
mod queue;
mod repeats;
mod start;

pub(crate) use output::{FlushAtEnd, LogOutput, bars};
pub(crate) use queue::{LineQueue, LineSink};
pub(crate) use repeats::NOTES;
pub(crate) use start::{LogLevels, queued, start};
