//! Objects of an archive. Of a directory only regular files are opened: to open a FIFO would wait for its
//! writer, and nothing ends a thread that waits so. A directory that is gone, for example unmounted, has no
//! absent objects and is not made again: a writer would begin another archive there.

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
    Attributes, Error, GetOptions, GetResult, GetResultPayload, ObjectMeta, ObjectStore,
    PutOptions, PutPayload, PutResult, Result,
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
    directory: Option<Directory>,
}

/// The directory that objects are in.
#[derive(Debug, Clone)]
struct Directory {
    objects: Arc<LocalFileSystem>,
    root: Arc<std::path::Path>,
}

impl Objects {
    pub(super) fn remote(store: impl ObjectStore) -> Self {
        Self { store: Arc::new(store), directory: None }
    }

    pub(super) fn in_directory(objects: LocalFileSystem, root: &std::path::Path) -> Self {
        let objects = Arc::new(objects);
        let store: Arc<dyn ObjectStore> = Arc::<LocalFileSystem>::clone(&objects);
        Self { store, directory: Some(Directory { objects, root: root.into() }) }
    }

    /// Gets an object, or a range of it. In a directory a name that leads to no regular file is absent.
    pub(super) async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(directory) = &self.directory else {
            return self.store.get_opts(at, options).await;
        };
        let (path, at) = (directory.objects.path_to_filesystem(at)?, at.clone());
        let root = Arc::clone(&directory.root);
        aside(move || match open_regular(&path) {
            Ok(file) => found(file, path, at, &options),
            Err(error) => check_there(&root).and(Err(absent_or_failed(&at, error))),
        })
        .await
    }

    /// Puts an object.
    pub(super) async fn put(&self, at: &Path, bytes: PutPayload) -> Result<PutResult> {
        self.put_opts(at, bytes, PutOptions::default()).await
    }

    /// Puts an object under a condition. The client of directories makes each one that is not there.
    pub(super) async fn put_opts(
        &self,
        at: &Path,
        bytes: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if let Some(directory) = &self.directory {
            let root = Arc::clone(&directory.root);
            aside(move || check_there(&root)).await?;
        }
        self.store.put_opts(at, bytes, options).await
    }
}

/// Runs work on a thread of its own. A disk that does not answer keeps the thread; only the wait for it ends.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = timeout(time_max(0), spawn_blocking(work)).await.map_err(failed)?;
    done.map_err(|source| Error::JoinError { source })?
}

/// Fails if the directory of an archive is gone.
fn check_there(root: &std::path::Path) -> Result<()> {
    if root.is_dir() {
        return Ok(());
    }
    let why = format!("{}: not there any more; mount it, or make it again", root.display());
    Err(failed(io::Error::new(ErrorKind::NotFound, why)))
}

/// Everything besides reads and puts is as the store has it.
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
