//! Reading heights of the archive page by page: a cache of proven pages on the disk, and the packed files over it.

mod archived_files;
mod budget;
mod fetch;
mod filters;
mod logs;
mod page_dir;
mod page_file;
mod page_source;
mod prefetch;
mod proofs;
mod read_thread;
mod reader;
mod turns;

pub(crate) use read_thread::ReadThread;
pub(crate) use reader::{ArchiveReader, PagePlace};
