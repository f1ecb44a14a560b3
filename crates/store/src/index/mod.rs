//! Indexes of a segment: hash tables, and postings of logs.

mod active_table;
pub(crate) mod compact_table;
#[cfg(test)]
mod compact_tests;
mod compact_writer;
mod hash_tables;
mod log_index;
pub(crate) mod merged_table;
pub(crate) mod postings;
pub(crate) mod table;

pub(crate) use active_table::{ActiveTable, Entry, Locator, entries_of, homes_for, prefix};
pub use hash_tables::{HashTable, MergedHash};
pub(crate) use log_index::{ActiveLogs, LogIndex};
