//! A store in memory that fails on demand.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use neve_archive::MANIFEST_NAME;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::shared::lock::lock;

/// Behavior of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::archive) enum Fault {
    None,
    /// Every PUT is done, whatever its condition.
    NoConditions,
    /// `If-None-Match` is kept, `If-Match` is not.
    NoIfMatch,
    /// Each second PUT with a condition is done, and its answer is lost.
    LostAnswers,
    /// A PUT of an object stores the half of it, and fails.
    HalfUploads,
    /// A reader of a large object gets its last bytes wrong.
    TornReads,
    /// Nothing can be deleted.
    KeepsAll,
    /// A PUT with a condition is refused, whatever it is.
    NoneUnderstood,
    /// A listing ends never.
    SilentListing,
    /// The clock of the store is two days behind.
    ClockBehind,
    /// A GET of the manifest without a condition is answered as if it had one that holds.
    AlwaysNotModified,
}

/// Request before which a store waits, or behind which its answer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    PutManifest,
    GetManifest,
    GotManifest,
    GetObject,
    List,
}

/// A store in memory with a fault.
pub(in crate::archive) struct FaultStore {
    pub(super) inner: InMemory,
    fault: Mutex<Fault>,
    /// Changes that are still done; then the writer is cut off. Below 0: all are.
    left: AtomicI64,
    is_cut: AtomicBool,
    conditional: AtomicU64,
    listings: AtomicU64,
    /// Answers with the bytes of the manifest.
    manifests: AtomicU64,
    gate: Arc<Gate>,
}

/// A request that waits while work is done.
#[derive(Default)]
struct Gate {
    /// The request, and the number of those of its kind that come before it.
    waits: Mutex<Option<(Point, u32)>>,
    reached: Notify,
    goes_on: Notify,
}

impl Gate {
    /// Waits if work is to be done first.
    async fn pass(&self, point: Point) {
        if self.is_here(point) {
            self.reached.notify_one();
            self.goes_on.notified().await;
        }
    }

    fn is_here(&self, point: Point) -> bool {
        let mut waits = lock(&self.waits);
        match &mut *waits {
            Some((at, 0)) if *at == point => waits.take().is_some(),
            Some((at, left)) if *at == point => {
                *left -= 1;
                false
            }
            _ => false,
        }
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultStore")
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultStore")
    }
}

impl FaultStore {
    pub(in crate::archive) fn new(fault: Fault) -> Self {
        Self {
            inner: InMemory::new(),
            fault: Mutex::new(fault),
            left: AtomicI64::new(-1),
            is_cut: AtomicBool::new(false),
            conditional: AtomicU64::new(0),
            listings: AtomicU64::new(0),
            manifests: AtomicU64::new(0),
            gate: Arc::default(),
        }
    }

    pub(super) fn set(&self, fault: Fault) {
        *lock(&self.fault) = fault;
    }

    /// Cuts the writer off after so many changes, or never.
    pub(super) fn cut_after(&self, changes: Option<i64>) {
        self.left.store(changes.unwrap_or(-1), Ordering::SeqCst);
        self.is_cut.store(false, Ordering::SeqCst);
    }

    /// True if the writer was cut off.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    /// Does some work while the next PUT of the manifest waits. The work begins when it does.
    pub(super) async fn before_the_manifest(&self, work: impl Future<Output = ()>) {
        self.before((Point::PutManifest, 0), work).await;
    }

    /// Does some work while a request waits. So many others of its kind come first.
    pub(super) async fn before(&self, point: (Point, u32), work: impl Future<Output = ()>) {
        *lock(&self.gate.waits) = Some(point);
        self.gate.reached.notified().await;
        work.await;
        self.gate.goes_on.notify_one();
    }

    /// Number of listings.
    pub(super) fn listings(&self) -> u64 {
        self.listings.load(Ordering::SeqCst)
    }

    /// Number of answers with the bytes of the manifest.
    pub(super) fn manifests(&self) -> u64 {
        self.manifests.load(Ordering::SeqCst)
    }

    /// Names of all objects.
    pub(in crate::archive) async fn names(&self) -> Vec<String> {
        let all = self.inner.list(None).map(|meta| meta.expect("it can be listed").location);
        let mut names: Vec<_> = all.map(|path| path.to_string()).collect().await;
        names.sort();
        names
    }

    fn fault(&self) -> Fault {
        *lock(&self.fault)
    }

    /// Fails once the writer is cut off, and takes a change off what is left.
    fn pass(&self, is_change: bool) -> Result<()> {
        let left = self.left.load(Ordering::SeqCst);
        if left == 0 && is_change {
            self.is_cut.store(true, Ordering::SeqCst);
        }
        if self.is_cut() {
            return Err(failed("cut off"));
        }
        if is_change && left > 0 {
            self.left.store(left - 1, Ordering::SeqCst);
        }
        Ok(())
    }
}

fn failed(why: &'static str) -> Error {
    Error::Generic { store: "test", source: why.into() }
}

/// The time of an object as the store says it.
fn told(mut meta: ObjectMeta, fault: Fault) -> ObjectMeta {
    if fault == Fault::ClockBehind {
        meta.last_modified -= Duration::from_hours(48);
    }
    meta
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        yield_now().await; // others come in between
        if location.as_ref() == MANIFEST_NAME {
            self.gate.pass(Point::PutManifest).await;
        }
        self.pass(true)?;
        let is_conditional = options.mode != PutMode::Overwrite;
        let fault = self.fault();
        if fault == Fault::NoneUnderstood && is_conditional {
            let (operation, implementer) = ("If-Match".to_owned(), "test".to_owned());
            return Err(Error::NotImplemented { operation, implementer });
        }
        match fault {
            Fault::NoConditions => options.mode = PutMode::Overwrite,
            Fault::NoIfMatch if options.mode != PutMode::Create => {
                options.mode = PutMode::Overwrite;
            }
            Fault::HalfUploads if !is_conditional => {
                let bytes: Vec<u8> = payload.iter().flatten().copied().collect();
                let half = bytes[..bytes.len() / 2].to_vec();
                self.inner.put(location, PutPayload::from(half)).await?;
                return Err(failed("half of it"));
            }
            _ => {}
        }
        let put = self.inner.put_opts(location, payload, options).await?;
        let number = self.conditional.fetch_add(u64::from(is_conditional), Ordering::SeqCst);
        if fault == Fault::LostAnswers && is_conditional && number.is_multiple_of(2) {
            return Err(failed("no answer"));
        }
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        yield_now().await; // others come in between
        let is_manifest = location.as_ref() == MANIFEST_NAME;
        self.gate.pass(if is_manifest { Point::GetManifest } else { Point::GetObject }).await;
        self.pass(false)?;
        if is_manifest && self.fault() == Fault::AlwaysNotModified {
            let (path, source) = (location.to_string(), "304".into());
            return Err(Error::NotModified { path, source });
        }
        let is_head = options.head;
        let mut found = self.inner.get_opts(location, options).await?;
        if is_manifest {
            self.manifests.fetch_add(u64::from(!is_head), Ordering::SeqCst);
            self.gate.pass(Point::GotManifest).await;
        }
        found.meta = told(found.meta, self.fault());
        if self.fault() != Fault::TornReads || found.meta.size < 16 << 10 {
            return Ok(found);
        }
        let (meta, range) = (found.meta.clone(), found.range.clone());
        let (attributes, extensions) = (found.attributes.clone(), found.extensions.clone());
        let mut bytes = found.bytes().await?.to_vec();
        bytes.iter_mut().rev().take(100).for_each(|byte| *byte = b' ');
        let payload = futures_util::stream::once(async move { Ok(bytes.into()) }).boxed();
        let payload = GetResultPayload::Stream(payload);
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let refused =
            if self.fault() == Fault::KeepsAll { Err(failed("denied")) } else { self.pass(true) };
        match refused {
            Ok(()) => self.inner.delete_stream(locations),
            Err(error) => futures_util::stream::once(async move { Err(error) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listings.fetch_add(1, Ordering::SeqCst);
        if self.fault() == Fault::SilentListing {
            return futures_util::stream::pending().boxed();
        }
        let (gate, fault) = (Arc::clone(&self.gate), self.fault());
        let all = self.inner.list(prefix).map_ok(move |meta| told(meta, fault));
        // As of a listing that has begun.
        let waiting = async move {
            gate.pass(Point::List).await;
            all
        };
        futures_util::stream::once(waiting).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut found = self.inner.list_with_delimiter(prefix).await?;
        found.objects = found.objects.into_iter().map(|meta| told(meta, self.fault())).collect();
        Ok(found)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
