//! Reasons why a command that opens a store cannot begin.

use std::io;
use std::path::PathBuf;

/// Reason why serving could not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("cannot make a temporary directory: {0}")]
    Temporary(io::Error),
    #[error("--data-dir {}: no store, it has no segments; name the directory of neve serve", .0.display())]
    NoStore(PathBuf),
    #[error("block {0} of the store cannot be read; run neve repair")]
    Damaged(u64),
    #[error("repaired, but not verified: {0}")]
    Unverified(String),
    #[error(transparent)]
    Store(#[from] neve_store::Error),
    #[error("{0}")]
    Tls(String),
    #[error("--upstream-header-file {}: {why}", .file.display())]
    Headers { file: PathBuf, why: String },
    /// A setting with value and origin, and why it does not work.
    #[error("{0}: {1}")]
    Setting(String, String),
    #[error("sockets of the service manager (LISTEN_FDS): {0}")]
    Inherited(String),
    #[error("cannot read {0}")]
    Input(String),
    #[error("the development chain does not start: {0}")]
    Dev(String),
    #[error(
        "the system refuses mincore(2): {0}; add mincore to SystemCallFilter= of the unit, or to \
         the seccomp profile of the container"
    )]
    Mincore(io::Error),
    #[error("cannot start a thread or a runtime: {0}")]
    Thread(#[from] io::Error),
}
