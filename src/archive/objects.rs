//! Objects of an archive. Of a directory only regular files are opened: to open a FIFO would wait for its
//! writer, and nothing ends a thread that waits so.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use hyper::http::Extensions;
use neve_store::disk::open_regular;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Attributes, Error, GetOptions, GetResult, GetResultPayload, ObjectMeta, ObjectStore, Result,
};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::connector::time_max;

/// Name of a directory in errors.
const DIRECTORY: &str = "directory";

/// The objects of an archive.
#[derive(Debug, Clone)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    /// The directory that they are in.
    directory: Option<Arc<LocalFileSystem>>,
}

impl Objects {
    pub(super) fn remote(store: impl ObjectStore) -> Self {
        Self { store: Arc::new(store), directory: None }
    }

    pub(super) fn in_directory(directory: LocalFileSystem) -> Self {
        let directory = Arc::new(directory);
        let store: Arc<dyn ObjectStore> = Arc::<LocalFileSystem>::clone(&directory);
        Self { store, directory: Some(directory) }
    }

    /// Gets an object, or a range of it. In a directory a name that leads to no regular file is absent.
    pub(super) async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(directory) = &self.directory else {
            return self.store.get_opts(at, options).await;
        };
        let (path, at) = (directory.path_to_filesystem(at)?, at.clone());
        let opening = spawn_blocking(move || match open_regular(&path) {
            Ok(file) => found(file, path, at, &options),
            Err(error) => Err(absent_or_failed(&at, error)),
        });
        // A disk that does not answer keeps the thread; only the wait for it ends.
        let opened = timeout(time_max(0), opening).await.map_err(failed)?;
        opened.map_err(|source| Error::JoinError { source })?
    }
}

/// Everything besides reads is as the store has it.
impl Deref for Objects {
    type Target = dyn ObjectStore;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic { store: DIRECTORY, source: Box::new(error) }
}

fn absent_or_failed(at: &Path, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::InvalidInput => {
            Error::NotFound { path: at.to_string(), source: Box::new(error) }
        }
        _ => failed(error),
    }
}

fn found(file: File, path: PathBuf, location: Path, options: &GetOptions) -> Result<GetResult> {
    let metadata = file.metadata().map_err(failed)?;
    let meta = ObjectMeta {
        location,
        last_modified: metadata.modified().map_err(failed)?.into(),
        size: metadata.len(),
        e_tag: Some(tag(&metadata)),
        version: None,
    };
    options.check_preconditions(&meta)?;
    let range = options.range.as_ref().map_or(Ok(0..meta.size), |range| range.as_range(meta.size));
    Ok(GetResult {
        payload: GetResultPayload::File(file, path),
        range: range.map_err(failed)?,
        meta,
        attributes: Attributes::default(),
        extensions: Extensions::default(),
    })
}

/// Tag that a file loses when it changes.
fn tag(metadata: &Metadata) -> String {
    let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
    format!("\"{:x}-{seconds:x}-{nanoseconds:x}-{:x}\"", metadata.ino(), metadata.len())
}
