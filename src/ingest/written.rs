//! Log lines and counters of both writing threads: their end, and the heights that they wrote.

use metrics::counter;
use neve_store::Record;

/// The writer has stopped.
#[derive(Debug, thiserror::Error)]
#[error("the writer has stopped")]
pub(crate) struct Stopped;

/// Counts what a record that was written is made of.
pub(crate) fn note_written(record: &Record) {
    counter!("neve_store_written_bytes_total").increment(record.encoded_len());
    counter!("neve_logs_stored_total").increment(record.logs.len() as u64);
}
