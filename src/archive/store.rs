//! The object store of an archive: its objects, and its manifest.

use std::env;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use metrics::gauge;
use neve_archive::{
    Digest, MANIFEST_BYTES_MAX, MANIFEST_NAME, Manifest, ObjectName, object_digest,
};
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, GetResult, GetResultPayload, ObjectStoreExt, PutMode, PutPayload,
    RetryConfig, UpdateVersion,
};
use tokio::time::timeout;

use self::address::check_endpoints;
use super::connector::{Connector, time_max};
use super::error::Failed;
use super::file_lock::{holding, locked};
use super::objects::Objects;
use super::requests::{PATIENCE, RequestError, counted, within};
use crate::client::{client_config, raw_client};
use crate::config::{ArchiveUrl, ParseError};

/// Variable of AWS with the file of an authority of one's own, PEM.
const AUTHORITY: &str = "AWS_CA_BUNDLE";

/// Place of an archive.
#[derive(Debug, Clone)]
pub(crate) struct ArchiveAddress {
    /// `s3://bucket/prefix` or `file:///dir`.
    pub(crate) url: String,
    /// Address of the S3 API, if it is not the one of AWS.
    pub(crate) endpoint: Option<String>,
}

/// The objects of an archive.
#[derive(Debug, Clone)]
pub(crate) struct ArchiveStore {
    pub(super) objects: Objects,
    pub(super) prefix: Path,
    /// File whose lock a writer of the manifest holds: for stores that do not compare and swap.
    lock: Option<PathBuf>,
    /// Scheme and host of a bucket; `None` for a directory.
    endpoint: Option<String>,
    /// Time that a request without bytes may take with all its attempts.
    pub(super) patience: Duration,
}

/// A manifest as it was read.
#[derive(Debug, Clone)]
pub(crate) struct HeldManifest {
    pub(crate) manifest: Manifest,
    /// SHA-256 of its bytes.
    pub(crate) digest: Digest,
    /// Time in seconds since 1970 at which it was put, by the clock of the store.
    pub(crate) put_at: i64,
    version: UpdateVersion,
}

impl HeldManifest {
    /// Tag of the manifest, by which the store says whether it changed.
    pub(super) fn tag(&self) -> Option<String> {
        self.version.e_tag.clone()
    }

    /// Shows the time at which it was put in /metrics. Readers and writers of the archive show the same.
    pub(super) fn show_put_at(&self) {
        show_put_at(self.put_at);
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are doubles")]
fn show_put_at(seconds: i64) {
    gauge!("neve_archive_manifest_put_timestamp_seconds").set(seconds as f64);
}

impl ArchiveStore {
    /// Opens the store of a URL. Nothing is connected yet.
    pub(crate) fn open(place: &ArchiveAddress) -> Result<Self, Failed> {
        Self::open_with(place, RetryConfig::default())
    }

    /// Opens the store for reads that a client waits for: they fail soon.
    pub(super) fn open_impatient(place: &ArchiveAddress) -> Result<Self, Failed> {
        Self::open_with(place, RetryConfig { max_retries: 0, ..RetryConfig::default() })
    }

    fn open_with(place: &ArchiveAddress, retry: RetryConfig) -> Result<Self, Failed> {
        let wrong = |why: String| Failed::Url { url: place.url.clone(), why };
        let url: ArchiveUrl =
            place.url.parse().map_err(|error: ParseError| wrong(error.to_string()))?;
        match url {
            ArchiveUrl::Directory(dir) => Self::in_directory(&dir),
            ArchiveUrl::Bucket { bucket, prefix } => {
                let prefix = Path::parse(prefix).map_err(|error| wrong(error.to_string()))?;
                Self::in_bucket(place, bucket, prefix, retry)
            }
        }
    }

    fn in_bucket(
        place: &ArchiveAddress,
        bucket: String,
        prefix: Path,
        retry: RetryConfig,
    ) -> Result<Self, Failed> {
        let failed = |why: String| Failed::Client { url: place.url.clone(), why };
        let http = connector().map_err(failed)?;
        let mut builder =
            AmazonS3Builder::from_env().with_bucket_name(bucket).with_http_connector(http);
        // Each object has a request of its own: some stores lack the one for many.
        builder = builder.with_retry(retry).with_disable_bulk_delete(true);
        if let Some(endpoint) = &place.endpoint {
            builder = builder.with_endpoint(endpoint).with_allow_http(true);
        }
        check_endpoints(&builder)?;
        let objects = builder.build().map_err(|error| failed(error.to_string()))?;
        let endpoint = Some(place.endpoint.as_deref().map_or("s3".to_owned(), host_of));
        let objects = Objects::remote(objects);
        Ok(Self { objects, prefix, lock: None, endpoint, patience: PATIENCE })
    }

    fn in_directory(dir: &std::path::Path) -> Result<Self, Failed> {
        if !dir.is_dir() {
            return Err(Failed::NoDirectory(dir.to_owned()));
        }
        let objects = LocalFileSystem::new_with_prefix(dir)?;
        // A manifest must not name objects that a power failure takes back.
        let objects = Objects::in_directory(objects.with_fsync(true), dir);
        let lock = Some(dir.join("manifest.lock"));
        let prefix = Path::default();
        Ok(Self { objects, prefix, lock, endpoint: None, patience: PATIENCE })
    }

    /// Makes an archive in memory.
    #[cfg(test)]
    pub(crate) fn in_memory() -> Self {
        Self::over(object_store::memory::InMemory::new())
    }

    /// Makes an archive over objects that behave as those of a bucket.
    #[cfg(test)]
    pub(crate) fn over(objects: impl object_store::ObjectStore) -> Self {
        let (objects, endpoint) = (Objects::remote(objects), Some("test".to_owned()));
        Self { objects, prefix: Path::default(), lock: None, endpoint, patience: PATIENCE }
    }

    /// Returns scheme and host of a bucket; `None` for a directory.
    pub(super) fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    /// Returns the directory of an archive that is one.
    pub(super) fn directory(&self) -> Option<&std::path::Path> {
        self.lock.as_deref().and_then(std::path::Path::parent)
    }

    /// Counts a request that moves `bytes`, and bounds its time.
    pub(super) async fn counted<T, E: RequestError>(
        &self,
        operation: &'static str,
        bytes: u64,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        // In a box: each caller would hold the whole future of the store's client.
        let request = Box::pin(within(bytes, self.patience, request));
        counted(operation, bytes, request).await
    }

    pub(super) fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), Path::join)
    }

    /// Puts an object, unless it is there with the bytes of its name. Returns true if it was put.
    ///
    /// An object that is there is read, because a manifest names only objects that were compared.
    pub(crate) async fn put(&self, name: &ObjectName, bytes: Vec<u8>) -> Result<bool, Failed> {
        match self.get(name, bytes.len() as u64).await {
            Ok(_) => return Ok(false),
            // Cut off, or damaged: it is replaced. Without the right to list, S3 forbids an absent object.
            Err(
                Failed::Absent(_)
                | Failed::Changed(_)
                | Failed::Objects(Error::PermissionDenied { .. }),
            ) => {}
            Err(failed) => return Err(failed),
        }
        let path = self.path(&name.to_string());
        let length = bytes.len() as u64;
        match self.counted("put", length, self.objects.put(&path, PutPayload::from(bytes))).await {
            Ok(_) => Ok(true),
            // An answer may be lost, so the object that is there decides.
            Err(error) => match self.get(name, length).await {
                Ok(_) => Ok(true),
                Err(_) => Err(error.into()),
            },
        }
    }

    /// Gets an object whole, and compares its digest with its name.
    pub(crate) async fn get(&self, name: &ObjectName, length: u64) -> Result<Bytes, Failed> {
        let path = self.path(&name.to_string());
        let read = async {
            let found = self.objects.get_opts(&path, GetOptions::default()).await?;
            if found.meta.size != length {
                return Err(Failed::Changed(*name)); // before a byte of it is taken
            }
            body(found).await
        };
        let bytes = match self.counted("get", length, read).await {
            Err(Failed::Objects(Error::NotFound { .. })) => return Err(Failed::Absent(*name)),
            read => read?,
        };
        if object_digest(&bytes) == name.digest { Ok(bytes) } else { Err(Failed::Changed(*name)) }
    }

    /// Gets a range of an object. The caller must prove its bytes.
    pub(super) async fn range(
        &self,
        name: &ObjectName,
        range: Range<u64>,
    ) -> Result<Bytes, Failed> {
        let path = self.path(&name.to_string());
        let (start, length) = (range.start, range.end.saturating_sub(range.start));
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        let read = async { at_most(self.objects.get_opts(&path, options).await?, length).await };
        match self.counted("get", length, read).await {
            Err(Error::NotFound { .. }) => Err(Failed::Absent(*name)),
            // The object was cut off before the range.
            Err(Error::Precondition { .. }) => Err(Failed::Changed(*name)),
            // A directory has no error of its own for a range behind the end.
            Err(error) if self.lock.is_some() => {
                let there = self.counted("get", 0, self.objects.head(&path)).await?;
                let is_cut = there.size <= start;
                Err(if is_cut { Failed::Changed(*name) } else { error.into() })
            }
            read => Ok(read?),
        }
    }

    /// Tries whether the store answers, by a byte of the manifest.
    pub(super) async fn probe(&self) -> Result<(), Failed> {
        let options = GetOptions { range: Some(GetRange::Bounded(0..1)), ..GetOptions::default() };
        self.objects.get_opts(&self.path(MANIFEST_NAME), options).await?.bytes().await?;
        Ok(())
    }

    /// Shows the time at which the manifest was put, which is not read: it may have 30 MB.
    pub(super) async fn show_put_at(&self) {
        let path = self.path(MANIFEST_NAME);
        if let Ok(found) = self.counted("get", 0, self.objects.head(&path)).await {
            show_put_at(found.last_modified.timestamp());
        }
    }

    /// Reads the manifest; `None` if there is none.
    pub(crate) async fn manifest(&self) -> Result<Option<HeldManifest>, Failed> {
        self.read_manifest(GetOptions::default()).await
    }

    /// Reads the manifest, which may have 30 MB; `None` if it still has the tag.
    pub(super) async fn newer_manifest(
        &self,
        tag: Option<String>,
    ) -> Result<Option<HeldManifest>, Failed> {
        let is_known = tag.is_some();
        let unless = GetOptions { if_none_match: tag, ..GetOptions::default() };
        match self.read_manifest(unless).await {
            // Without a tag it is an error of the store: to take it for no manifest would fork the archive.
            Err(Failed::Objects(Error::NotModified { .. })) if is_known => Ok(None),
            read => read?.ok_or(Failed::NoManifest).map(Some),
        }
    }

    async fn read_manifest(&self, options: GetOptions) -> Result<Option<HeldManifest>, Failed> {
        let path = self.path(MANIFEST_NAME);
        let read = self.objects.get_opts(&path, options);
        let found = match self.counted("get", 0, read).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found?,
        };
        if found.meta.size > MANIFEST_BYTES_MAX {
            return Err(Failed::LargeManifest(MANIFEST_BYTES_MAX));
        }
        let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
        let version = UpdateVersion { e_tag, version };
        let put_at = found.meta.last_modified.timestamp();
        let bytes = body(found).await?;
        // One of the whole chain takes a while, and the runtime follows heads too.
        let reading = move || Manifest::read(&bytes).map(|manifest| (manifest, Digest::of(&bytes)));
        let read = tokio::task::spawn_blocking(reading).await;
        let (manifest, digest) = read.map_err(|source| Error::JoinError { source })??;
        Ok(Some(HeldManifest { manifest, digest, put_at, version }))
    }

    /// Replaces the manifest if it is still `before`. Returns false if another one is there.
    pub(crate) async fn replace(
        &self,
        before: Option<&HeldManifest>,
        next: &Manifest,
    ) -> Result<bool, Failed> {
        self.replace_by(before, next, true).await
    }

    /// Replaces it in a store that keeps no conditions: no other writer may be there. One that is there all
    /// the same may be noticed, or may not.
    pub(crate) async fn replace_alone(
        &self,
        before: Option<&HeldManifest>,
        next: &Manifest,
    ) -> Result<bool, Failed> {
        self.replace_by(before, next, false).await
    }

    async fn replace_by(
        &self,
        before: Option<&HeldManifest>,
        next: &Manifest,
        is_conditional: bool,
    ) -> Result<bool, Failed> {
        let bytes = next.to_bytes()?;
        if bytes.len() as u64 > MANIFEST_BYTES_MAX {
            return Err(Failed::LargeManifest(MANIFEST_BYTES_MAX));
        }
        let digest = Digest::of(&bytes);
        let swapped = self.swap(before, bytes, is_conditional).await;
        let Err(error) = swapped else { return Ok(true) };
        // A refusal, or an answer that was lost: the object that is there decides.
        let there = self.manifest().await?.map(|held| held.digest);
        if there == Some(digest) {
            return Ok(true);
        }
        if there == before.map(|held| held.digest) { Err(error) } else { Ok(false) }
    }

    async fn swap(
        &self,
        before: Option<&HeldManifest>,
        bytes: Vec<u8>,
        is_conditional: bool,
    ) -> Result<(), Failed> {
        let Some(lock) = &self.lock else {
            let mode = if is_conditional {
                before.map_or(PutMode::Create, |held| PutMode::Update(held.version.clone()))
            } else {
                self.compare(before).await?;
                PutMode::Overwrite
            };
            return self.put_as(mode, bytes).await;
        };
        let held = locked(lock).await;
        let held = held.map_err(|error| Failed::File { path: lock.clone(), error })?;
        // Under the lock: another writer may have been first.
        self.compare(before).await?;
        self.put_holding(held, bytes).await
    }

    /// Puts the manifest in a bucket.
    async fn put_as(&self, mode: PutMode, bytes: Vec<u8>) -> Result<(), Failed> {
        let (path, length) = (self.path(MANIFEST_NAME), bytes.len() as u64);
        let put = self.objects.put_opts(&path, PutPayload::from(bytes), mode.into());
        self.counted("put", length, put).await?;
        Ok(())
    }

    /// Fails unless the manifest is `before`.
    async fn compare(&self, before: Option<&HeldManifest>) -> Result<(), Failed> {
        let there = self.manifest().await?.map(|held| held.digest);
        if there == before.map(|held| held.digest) { Ok(()) } else { Err(Failed::Busy(1)) }
    }

    /// Puts the manifest in a directory. A late rename still happens, and no other writer may compare before it. So
    /// the put keeps the lock even if its caller has stopped waiting.
    async fn put_holding(&self, lock: File, bytes: Vec<u8>) -> Result<(), Failed> {
        let (objects, path) = (self.objects.clone(), self.path(MANIFEST_NAME));
        let length = bytes.len() as u64;
        let put = async move { objects.put(&path, PutPayload::from(bytes)).await };
        let put = holding(lock, put);
        let put = async { put.await.map_err(|source| Error::JoinError { source })? };
        self.counted("put", length, put).await?;
        Ok(())
    }
}

/// neve's HTTP client. It also trusts the authority of the operator.
fn connector() -> Result<Connector, String> {
    let own = env::var_os(AUTHORITY).filter(|path| !path.is_empty()).map(PathBuf::from);
    let own = own.as_deref().map(|path| (AUTHORITY, path));
    client_config(own).map(|config| Connector(raw_client(config)))
}

/// Scheme and host of a URL.
fn host_of(url: &str) -> String {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default().rsplit('@').next().unwrap_or_default();
    format!("{}://{host}", url.split_once("://").map_or("http", |(scheme, _)| scheme))
}

/// Reads a body of at most so many bytes: a store may send more than was asked for.
async fn at_most(found: GetResult, bytes_max: u64) -> Result<Bytes, Error> {
    // A file is read as far as the range goes; only a store over HTTP can send more.
    if !matches!(found.payload, GetResultPayload::Stream(_)) {
        return found.bytes().await;
    }
    let (mut parts, mut bytes) = (found.into_stream(), Vec::new());
    while let Some(part) = parts.try_next().await? {
        if (bytes.len() + part.len()) as u64 > bytes_max {
            let source = "more bytes than were asked for".into();
            return Err(Error::Generic { store: "range", source });
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes.into())
}

/// Reads a body, in bounded time.
async fn body(found: GetResult) -> Result<Bytes, Failed> {
    let limit = time_max(found.meta.size);
    timeout(limit, found.bytes()).await.map_err(|_| Failed::Slow(limit))?.map_err(Failed::from)
}

mod address;
#[cfg(test)]
mod tests;
