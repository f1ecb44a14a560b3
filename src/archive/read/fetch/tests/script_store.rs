//! A store in memory that answers as it is told.

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use neve_archive::MANIFEST_NAME;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};

use crate::shared::lock::lock;

/// Behavior of GET.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    #[default]
    Serves,
    /// No answer ever comes.
    Silent,
    /// The next one gets no answer, the later ones do.
    StallsFirst,
    Fails,
    /// HTTP 403 for each request.
    Forbidden,
    /// Sends far more than was asked for.
    Floods,
    /// HTTP 403 for the manifest alone.
    ForbidsManifest,
}

/// A store in memory.
#[derive(Debug, Default)]
pub(crate) struct ScriptStore {
    inner: InMemory,
    mode: Mutex<Mode>,
    gets: AtomicUsize,
    /// Bytes of the longest range.
    longest: AtomicU64,
    /// MiB of a flood that were taken.
    sent: Arc<AtomicUsize>,
}

impl ScriptStore {
    pub(crate) fn set(&self, mode: Mode) {
        *lock(&self.mode) = mode;
    }

    /// Requests of GET so far.
    pub(crate) fn gets(&self) -> usize {
        self.gets.load(Ordering::SeqCst)
    }

    /// Bytes of the longest range that was requested.
    pub(crate) fn longest(&self) -> u64 {
        self.longest.load(Ordering::SeqCst)
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    /// A body of 64 MiB.
    fn flood(&self, found: GetResult) -> GetResult {
        let sent = Arc::clone(&self.sent);
        let parts = (0..64).map(move |_| {
            sent.fetch_add(1, Ordering::SeqCst);
            Ok(Bytes::from(vec![7; 1 << 20]))
        });
        let payload = GetResultPayload::Stream(stream::iter(parts).boxed());
        GetResult { payload, ..found }
    }

    /// Mode of a request.
    fn next(&self) -> Mode {
        let mut mode = lock(&self.mode);
        let now = *mode;
        if now == Mode::StallsFirst {
            *mode = Mode::Serves;
        }
        now
    }
}

impl fmt::Display for ScriptStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptStore")
    }
}

#[async_trait]
impl ObjectStore for ScriptStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        if let Some(GetRange::Bounded(range)) = &options.range {
            self.longest.fetch_max(range.end - range.start, Ordering::SeqCst);
        }
        let forbidden =
            || Error::PermissionDenied { path: location.to_string(), source: "forbidden".into() };
        match self.next() {
            Mode::Silent | Mode::StallsFirst => return pending().await,
            Mode::Fails => return Err(Error::Generic { store: "test", source: "fails".into() }),
            Mode::Forbidden => return Err(forbidden()),
            Mode::ForbidsManifest if location.as_ref() == MANIFEST_NAME => return Err(forbidden()),
            Mode::Floods => {
                let found = self.inner.get_opts(location, options).await?;
                return Ok(self.flood(found));
            }
            Mode::Serves | Mode::ForbidsManifest => {}
        }
        self.inner.get_opts(location, options).await
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
