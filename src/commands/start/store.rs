//! The directory of the store, and its opening.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use neve_record::packed::Codec;
use neve_store::{Opened, Reader, Writer};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::error::StartError;
use crate::config::Human;
use crate::config::settings::{Config, UpstreamConfig};
use crate::ingest::rules_of_stamp;
use crate::observe::log::NOTES;
use crate::shared::Serving;

/// Data directory, and the guard of a temporary one.
pub(crate) enum StoreDir {
    Given(PathBuf),
    Temporary(TempDir),
}

impl StoreDir {
    pub(crate) fn of(config: &Config) -> Result<Self, StartError> {
        match &config.data_dir {
            Some(dir) => Ok(Self::Given(dir.clone())),
            None => tempfile::Builder::new()
                .prefix("neve-dev-")
                .tempdir()
                .map(Self::Temporary)
                .map_err(StartError::Temporary),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Given(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }
}

/// Opens the store for writing, in a runtime.
pub(crate) fn open(config: &Config, dir: &Path) -> Result<Opened, StartError> {
    let expected = match &config.source {
        UpstreamConfig::Upstream { network: Some(network), .. } => Some(network.identity()),
        _ => None,
    };
    // With a handler a write beyond a limit of the size of files (ulimit -f) fails, and does not end the process. The
    // handler stays when the stream of signals is dropped.
    drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
    let options = neve_store::Options { expected, ..config.store };
    let opened = neve_store::open_with(dir, options, Arc::new(Codec::default()));
    opened.map_err(|error| match not_opened(dir, &error) {
        Some(why) => StartError::Setting(config.values.named("data-dir"), why),
        None => error.into(),
    })
}

/// Says why a store is not opened, if `--data-dir` is the cause.
fn not_opened(dir: &Path, error: &neve_store::Error) -> Option<String> {
    match error {
        neve_store::Error::Locked { .. } => {
            Some("locked by another process; stop that one".to_owned())
        }
        neve_store::Error::Read { path, source } => unwritable(path, source),
        neve_store::Error::Write { name, source, .. } => unwritable(&dir.join(name), source),
        _ => None,
    }
}

/// Opens the store as [`open`] does, and writes the notes of recovery to the log.
pub(crate) fn open_and_log(config: &Config, dir: &Path) -> Result<Opened, StartError> {
    let opened = open(config, dir)?;
    opened.notes.iter().for_each(|note| warn!(target: NOTES, note, "store recovered"));
    Ok(opened)
}

/// Returns the serving state of an opened store, with the chain and rules that its stamp names.
pub(crate) fn serving_of(reader: Reader, writer: &Writer) -> Arc<Serving> {
    let serving = Arc::new(Serving::new(reader));
    if let Some(stamp) = writer.stamp() {
        serving.identify(stamp.identity);
        serving.set_rules(rules_of_stamp(stamp.rules));
    }
    serving
}

/// Says what to do about a directory that is none, or that is not neve's.
fn unwritable(path: &Path, error: &io::Error) -> Option<String> {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Some(format!("cannot write to {path}: {error}; let neve's user write there"))
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            Some(format!("no directory at {path}: {error}; name another one"))
        }
        _ => None,
    }
}

/// Says what the store has.
pub(crate) fn describe_store(serving: &Serving, dir: &Path) {
    let usage = serving.reader.usage();
    let (segments, bytes) = (usage.segments, Human(usage.disk_bytes));
    let dir = dir.display();
    if let Some(range) = serving.reader.range() {
        let (first, head) = (range.start(), range.end());
        info!(%dir, first, head, segments, %bytes, "store opened");
    } else {
        info!(%dir, "store opened, empty");
    }
}
