//! The archive as a source of segments: its manifest as last read, and segments that failed.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use metrics::counter;
use neve_archive::{Digest, Manifest, ObjectName, SegmentEntry};
use neve_store::{Hash, Identity};
use tracing::{info, warn};

use super::error::Failed;
use super::store::{ArchiveAddress, ArchiveStore, HeldManifest};
use crate::config::Anchor;
use crate::config::settings::ArchiveConfig;
use crate::shared::Status;
use crate::shared::lock::lock;

/// Time for which a manifest is used.
const MANIFEST_EVERY: Duration = Duration::from_mins(1);
/// Time for which a segment that failed is left alone.
const REFUSED_FOR: Duration = Duration::from_mins(5);
/// Bytes of a segment that is taken: it is in memory as a whole. One of mainnet has 8 MB.
pub(super) const SEGMENT_BYTES_MAX: u64 = 256 << 20;

/// A manifest as it was read last.
#[derive(Clone)]
struct KnownManifest {
    read: Instant,
    manifest: Arc<Manifest>,
    digest: Digest,
    /// Tag in the store.
    tag: Option<String>,
}

impl KnownManifest {
    /// Manifest that was read now: a newer one, or else the one that was known.
    fn read_now(newer: Option<HeldManifest>, known: Option<Self>) -> Result<Self, Failed> {
        let read = Instant::now();
        match (newer, known) {
            (None, Some(known)) => Ok(Self { read, ..known }),
            (None, None) => Err(Failed::NoManifest), // nothing was held that it could equal
            (Some(held), _) => {
                held.show_put_at();
                let (tag, digest) = (held.tag(), held.digest);
                Ok(Self { read, manifest: Arc::new(held.manifest), digest, tag })
            }
        }
    }
}

/// An archive that segments come from.
pub(crate) struct ArchiveSource {
    store: ArchiveStore,
    /// URL as given.
    pub(crate) url: String,
    /// Block from which it is proven where no upstream is.
    pub(crate) anchor: Option<Anchor>,
    place: ArchiveAddress,
    manifest: Mutex<Option<KnownManifest>>,
    /// Held by the task that reads the manifest, so that it is read and checked once for all.
    reading: tokio::sync::Mutex<()>,
    /// Time when the manifest could not be read.
    failed: Mutex<Option<Instant>>,
    refused: Mutex<HashMap<Digest, Instant>>,
    /// Error of the last segment that could not be had.
    segment_error: Mutex<Option<String>>,
    status: Arc<Status>,
}

impl ArchiveSource {
    /// Opens the archive of the settings. Nothing is connected yet.
    pub(crate) fn open(config: &ArchiveConfig, status: &Arc<Status>) -> Result<Self, Failed> {
        let ArchiveConfig { url, endpoint, anchor, .. } = config.clone();
        let place = ArchiveAddress { url, endpoint };
        let store = ArchiveStore::open(&place)?;
        status.change_archive(|archive| archive.url.clone_from(&place.url));
        Ok(Self::new(store, place, anchor, Arc::clone(status)))
    }

    /// Makes the source of an archive that a test has.
    #[cfg(test)]
    pub(crate) fn over(store: ArchiveStore) -> Self {
        let place = ArchiveAddress { url: String::new(), endpoint: None };
        Self::new(store, place, None, Arc::default())
    }

    fn new(
        store: ArchiveStore,
        place: ArchiveAddress,
        anchor: Option<Anchor>,
        status: Arc<Status>,
    ) -> Self {
        Self {
            store,
            url: place.url.clone(),
            anchor,
            place,
            manifest: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            failed: Mutex::default(),
            refused: Mutex::default(),
            segment_error: Mutex::default(),
            status,
        }
    }

    /// Opens the store for reads that a client waits for.
    pub(super) fn store_for_reads(&self) -> Result<ArchiveStore, Failed> {
        ArchiveStore::open_impatient(&self.place)
    }

    /// Notes the height down to which hashes are found in the archive.
    pub(super) fn filters_reach(&self, height: Option<u64>) {
        self.status.change_archive(|archive| archive.hashes_from = height);
    }

    /// Notes the state of the breaker of reads.
    pub(super) fn breaker(&self, state: &'static str) {
        self.status.change_archive(|archive| archive.breaker = state);
    }

    /// Notes the heights that are answered from the archive, and those below a gap that lead to the anchor.
    pub(super) fn answers(
        &self,
        heights: Option<RangeInclusive<u64>>,
        anchored: Option<RangeInclusive<u64>>,
    ) {
        self.status.change_archive(|archive| {
            (archive.answers, archive.anchored) = (heights, anchored);
        });
    }

    /// Returns the manifest, not older than a minute.
    pub(crate) async fn manifest(&self) -> Result<Arc<Manifest>, Failed> {
        Ok(self.named_manifest().await?.0)
    }

    /// Returns the manifest, not older than a minute, and its digest.
    pub(super) async fn named_manifest(&self) -> Result<(Arc<Manifest>, Digest), Failed> {
        let is_new = |known: &KnownManifest| known.read.elapsed() < MANIFEST_EVERY;
        let known = lock(&self.manifest).clone().filter(is_new);
        match known {
            Some(known) => Ok((known.manifest, known.digest)),
            None => self.read_unless(is_new).await,
        }
    }

    /// Reads the manifest, unless another task has read one meanwhile that will do.
    async fn read_unless(
        &self,
        will_do: impl Fn(&KnownManifest) -> bool + Send,
    ) -> Result<(Arc<Manifest>, Digest), Failed> {
        // Others wait for this read: a manifest of the whole chain has 30 MB.
        let _reading = self.reading.lock().await;
        let known = lock(&self.manifest).clone();
        if let Some(known) = known.clone().filter(will_do) {
            return Ok((known.manifest, known.digest));
        }
        let tag = known.as_ref().and_then(|known| known.tag.clone());
        let newer = self.store.newer_manifest(tag).await;
        *lock(&self.failed) = newer.as_ref().err().map(|_| Instant::now());
        let known = KnownManifest::read_now(newer?, known)?;
        let heights = known.manifest.heights();
        self.status.change_archive(|archive| archive.heights = heights);
        *lock(&self.manifest) = Some(known.clone());
        Ok((known.manifest, known.digest))
    }

    /// Store of the manifest, for reads that no client waits for.
    pub(super) fn store(&self) -> &ArchiveStore {
        &self.store
    }

    /// True for a minute after the manifest could not be read: a store that does not answer must not
    /// hold up what comes from elsewhere.
    pub(crate) fn rests(&self) -> bool {
        lock(&self.failed).is_some_and(|at| at.elapsed() < MANIFEST_EVERY)
    }

    /// Gets a segment. One whose bytes are not those of its name is requested twice.
    pub(crate) async fn segment(
        &self,
        manifest: &Manifest,
        entry: &SegmentEntry,
    ) -> Result<Bytes, Failed> {
        let name = manifest.segment_name(entry);
        if entry.bytes > SEGMENT_BYTES_MAX {
            return Err(Failed::LargeSegment(name, SEGMENT_BYTES_MAX));
        }
        let got = match self.get(&name, entry.bytes).await {
            Err(failed) if may_be_absent(&failed) && !self.names(manifest, &name).await? => {
                return Err(Failed::Dropped(name));
            }
            got => got,
        };
        count_received(&got);
        got
    }

    /// Gets an object, once more if its bytes are not those of its name.
    async fn get(&self, name: &ObjectName, bytes: u64) -> Result<Bytes, Failed> {
        match self.store.get(name, bytes).await {
            Err(Failed::Changed(_)) => {
                count("changed");
                self.store.get(name, bytes).await
            }
            got => got,
        }
    }

    /// True if the manifest that is there now names an object, which was named by `before`: others may have dropped it.
    async fn names(&self, before: &Manifest, name: &ObjectName) -> Result<bool, Failed> {
        let is_later = |known: &KnownManifest| known.manifest.sequence > before.sequence;
        let (manifest, _) = self.read_unless(is_later).await?;
        Ok(manifest.objects().any(|(named, _)| named == *name))
    }

    /// A segment was proven and published.
    pub(crate) fn accept(&self) {
        self.status.change_archive(|archive| archive.accepted += 1);
        count("accepted");
        self.say(None);
    }

    /// A segment did not check out: it is left alone for a while.
    pub(crate) fn refuse(&self, entry: &SegmentEntry, why: &str) {
        warn!(base = entry.first, archive = self.url, error = why, "segment rejected");
        self.status.change_archive(|archive| archive.refused += 1);
        count("rejected");
        // By digest: the same heights written anew have another one, and are tried at once.
        lock(&self.refused).insert(entry.digest, Instant::now());
    }

    /// Leaves a segment that could not be had alone for a while.
    pub(crate) fn leave(&self, entry: &SegmentEntry, why: &str) {
        self.say(Some(why));
        *lock(&self.segment_error) = Some(why.to_owned());
        lock(&self.refused).insert(entry.digest, Instant::now());
    }

    /// Notes that no segment is wanted: one that could not be had is no error any more.
    pub(crate) fn wants_nothing(&self) {
        let ended = lock(&self.segment_error).take();
        let error = self.status.archive().and_then(|archive| archive.error);
        if ended.is_some() && ended == error {
            self.say(None);
        }
    }

    /// True if the segment is left alone.
    pub(crate) fn is_refused(&self, entry: &SegmentEntry) -> bool {
        let mut refused = lock(&self.refused);
        refused.retain(|_, since| since.elapsed() < REFUSED_FOR);
        refused.contains_key(&entry.digest)
    }

    /// Notes why nothing comes, or that it does. Says a new reason once.
    pub(crate) fn say(&self, why: Option<&str>) {
        self.status.change_archive(|archive| {
            if archive.error.as_deref() == why {
                return;
            }
            if let Some(why) = why {
                warn!(archive = self.url, error = why, "archive failed");
            } else {
                info!(archive = self.url, "archive works again");
            }
            archive.error = why.map(str::to_owned);
        });
    }
}

/// True if an object may not be there. Without the right to list, S3 forbids an absent one.
fn may_be_absent(failed: &Failed) -> bool {
    use object_store::Error::PermissionDenied;
    matches!(failed, Failed::Absent(_) | Failed::Objects(PermissionDenied { .. }))
}

/// Counts the bytes of a segment, or the reason why it did not come.
fn count_received(got: &Result<Bytes, Failed>) {
    match got {
        Ok(bytes) => {
            counter!("neve_archive_received_segment_bytes_total").increment(bytes.len() as u64);
        }
        Err(Failed::Absent(_)) => count("absent"),
        Err(Failed::Changed(_)) => count("changed"),
        Err(_) => count("failed"),
    }
}

fn count(outcome: &'static str) {
    counter!("neve_archive_received_segments_total", "outcome" => outcome).increment(1);
}

/// Chain of an archive.
pub(crate) fn identity_of(manifest: &Manifest) -> Identity {
    Identity { chain_id: manifest.chain_id, genesis: Hash(manifest.genesis.0) }
}
