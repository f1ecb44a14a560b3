//! Heights and hashes of the archive for requests.

use std::collections::{BTreeSet, HashMap};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::future::join_all;
use neve_archive::{Digest, Manifest, PageLists, SegmentEntry, Span, SpanEntry, Spot};
use neve_record::packed::Codec;
use neve_store::{ArchivedPlace, ArchivedSegment, Hash, PackedBytes, PackedCodec, PackedPages};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::filters::Filters;
use super::gate::Gate;
use super::page_dir::PageDir;
use super::page_file::{NotRead, PageFile};
use super::page_source::PageSource;
use super::proofs::Proofs;
use crate::archive::error::Failed;
use crate::archive::signature::is_signed_by;
use crate::archive::source::{ArchiveSource, identity_of};
use crate::config::ArchiveTrust;
use crate::rpc::methods::{Below, Lending, Lent, LogsAt, Want};
use crate::shared::Serving;
use crate::shared::lock::lock;

/// Time that one request waits for the archive.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// Time after which the manifest is looked at again.
const MANIFEST_EVERY: Duration = Duration::from_mins(1);
/// Time after which the packed files of the store are compared with it, or it is looked for.
const PROVEN_EVERY: Duration = Duration::from_secs(2);
/// Time after which filters are looked for again, and after one could not be had.
const FILTERS_EVERY: Duration = Duration::from_secs(1);
const FILTERS_AGAIN: Duration = Duration::from_secs(5);
/// Spans whose page lists are in memory: 260 KB each.
const LISTS_MAX: usize = 64;
/// Bytes that tables of archived files take together.
const TABLES_BYTES_MAX: usize = 32 << 20;
/// Segments that one call may need.
const SEGMENTS_MAX: usize = 256;
/// Reads of one segment that a call may need.
const READS_MAX: usize = 256;
/// Spans that one hash is looked for in.
const SPANS_ASKED_MAX: usize = 4;

/// Place of the pages on the disk.
pub(crate) struct Place {
    /// Directory of the store.
    pub(crate) store: PathBuf,
    pub(crate) bytes_max: u64,
    pub(crate) filter_bytes_max: u64,
}

/// Manifest whose heights may be answered.
struct Known {
    manifest: Arc<Manifest>,
    heights: RangeInclusive<u64>,
}

/// Segments, and the places of hashes in them.
type Borrowed = (Vec<ArchivedSegment>, Vec<ArchivedPlace>);

/// Reads the archive for requests.
pub(crate) struct ArchiveReader {
    manifests: Arc<ArchiveSource>,
    pages: Arc<PageSource>,
    codec: Arc<dyn PackedCodec>,
    serving: Arc<Serving>,
    trust: ArchiveTrust,
    proofs: Proofs,
    filters: Filters,
    known: ArcSwapOption<Known>,
    lists: Mutex<HashMap<Digest, Arc<PageLists>>>,
}

impl ArchiveReader {
    /// Opens the directory of pages. Reads run on the runtime of the caller.
    pub(crate) fn new(
        manifests: &Arc<ArchiveSource>,
        serving: &Arc<Serving>,
        trust: ArchiveTrust,
        place: Place,
    ) -> Result<Arc<Self>, Failed> {
        let Place { store, bytes_max, filter_bytes_max } = place;
        let dir = PageDir::open(store.join("archive"), bytes_max);
        let proofs = Proofs::open(store.clone(), store.join("archive-proofs"));
        let pages = PageSource {
            store: manifests.store_for_reads()?,
            dir,
            gate: Gate::default(),
            runtime: Handle::current(),
            files: Mutex::default(),
            segments: Mutex::default(),
        };
        Ok(Arc::new(Self {
            manifests: Arc::clone(manifests),
            pages: Arc::new(pages),
            codec: Arc::new(Codec::new(TABLES_BYTES_MAX)),
            serving: Arc::clone(serving),
            trust,
            proofs,
            filters: Filters::new(filter_bytes_max),
            known: ArcSwapOption::empty(),
            lists: Mutex::default(),
        }))
    }

    /// Keeps the manifest up to date, the proven segments and the filters.
    pub(crate) async fn run(self: Arc<Self>) {
        tokio::join!(self.keep_manifest(), self.keep_filters());
    }

    /// Brings filters one after the other, the newest first.
    async fn keep_filters(&self) {
        loop {
            let (known, end) = (self.known.load_full(), self.end());
            let brought = match (known, end) {
                (Some(known), Some(end)) => {
                    let manifest = &known.manifest;
                    let is_asked =
                        |span: &&SpanEntry| span.first < end && span.first <= *known.heights.end();
                    let spans = manifest.spans.iter().rev().filter(is_asked);
                    self.filters.next(&self.pages, manifest, spans).await
                }
                _ => Ok((None, true)),
            };
            let wait = match brought {
                Ok((reach, is_done)) => {
                    self.manifests.filters_reach(reach);
                    if is_done { FILTERS_EVERY } else { Duration::ZERO }
                }
                Err(_) => FILTERS_AGAIN,
            };
            sleep(wait).await;
        }
    }

    async fn keep_manifest(self: &Arc<Self>) {
        loop {
            match self.manifests.named_manifest().await {
                Ok((manifest, digest)) => self.take(manifest, digest).await,
                Err(why) => warn!(error = %why, "archive not read"),
            }
            let proves = self.trust == ArchiveTrust::Prove || self.known.load().is_none();
            sleep(if proves { PROVEN_EVERY } else { MANIFEST_EVERY }).await;
        }
    }

    async fn take(self: &Arc<Self>, manifest: Arc<Manifest>, digest: Digest) {
        let is_ours = |identity| identity == identity_of(&manifest);
        let heights = match self.serving.identity() {
            identity if identity.is_none_or(is_ours) => self.answered(&manifest, digest).await,
            _ => None,
        };
        let known = self.known.load();
        if heights.is_none() && self.trust != ArchiveTrust::Prove {
            return warn!(%digest, "archive manifest refused"); // the one before is as good as it was
        }
        if known.as_ref().map(|known| &known.heights) != heights.as_ref() {
            info!(%digest, ?heights, "archived heights");
        }
        self.manifests.answers(heights.clone());
        self.known.store(heights.map(|heights| Arc::new(Known { manifest, heights })));
    }

    /// Heights that are answered.
    async fn answered(
        self: &Arc<Self>,
        manifest: &Arc<Manifest>,
        digest: Digest,
    ) -> Option<RangeInclusive<u64>> {
        let all = || manifest.heights().map(|(first, last)| first..=last);
        match self.trust {
            ArchiveTrust::Manifest(trusted) => all().filter(|_| trusted == digest.0),
            ArchiveTrust::Key(key) => all()
                .filter(|_| is_signed_by(manifest, &key) && self.proofs.take(manifest.sequence)),
            ArchiveTrust::Prove => {
                let (reader, manifest) = (Arc::clone(self), Arc::clone(manifest));
                let compare = move || {
                    reader.proofs.compare(&manifest, &reader.serving.reader.packed());
                    reader.proofs.heights(&manifest, reader.end()?)
                };
                tokio::task::spawn_blocking(compare).await.ok().flatten()
            }
        }
    }

    /// First height of the served range: what is archived below it is answered.
    fn end(&self) -> Option<u64> {
        self.serving.reader.range().map(|range| *range.start())
    }

    async fn borrow(&self, wants: Vec<Want>) -> Lent {
        let (Some(known), Some(end)) = (self.known.load_full(), self.end()) else {
            return Lent { try_again: true, ..Lent::default() };
        };
        let borrowed = join_all(wants.into_iter().map(|want| self.borrow_one(&known, end, want)));
        let mut lent = Lent::default();
        for borrowed in borrowed.await {
            match borrowed {
                Ok((segments, places)) => {
                    lent.segments.extend(segments);
                    lent.places.extend(places);
                }
                Err(why) => lent.try_again |= why == NotRead::Failed,
            }
        }
        lent
    }

    async fn borrow_one(&self, known: &Known, end: u64, want: Want) -> Result<Borrowed, NotRead> {
        let every: &[Vec<u64>] = &[];
        match want {
            Want::Height(height) => {
                Ok((self.heights(known, height..=height, every).await?, Vec::new()))
            }
            Want::Heights(heights) => Ok((self.heights(known, heights, every).await?, Vec::new())),
            Want::Logs(LogsAt::Heights(heights), keys) => {
                Ok((self.heights(known, heights, &keys).await?, Vec::new()))
            }
            Want::Hash(hash) => self.hash(known, end, hash, every).await,
            Want::Logs(LogsAt::Block(hash), keys) => self.hash(known, end, hash, &keys).await,
        }
    }

    async fn hash(
        &self,
        known: &Known,
        end: u64,
        hash: [u8; 32],
        keys: &[Vec<u64>],
    ) -> Result<Borrowed, NotRead> {
        let (mut segments, mut places) = (Vec::new(), Vec::new());
        for spot in self.find(known, end, &hash).await? {
            if spot.height < end {
                let height = spot.height;
                segments.extend(self.heights(known, height..=height, keys).await?);
                // Its block is read also if it has no log with the keys.
                segments.extend(self.heights(known, height..=height, &[]).await?);
                places.push(place(hash, spot));
            }
        }
        Ok((segments, places))
    }

    /// Makes heights readable, as far as logs with a key of each list need them.
    async fn heights(
        &self,
        known: &Known,
        heights: RangeInclusive<u64>,
        keys: &[Vec<u64>],
    ) -> Result<Vec<ArchivedSegment>, NotRead> {
        let manifest = &known.manifest;
        let is_known =
            known.heights.contains(heights.start()) && known.heights.contains(heights.end());
        let from = manifest.segment_of(*heights.start()).filter(|_| is_known);
        let from = from.ok_or(NotRead::Unknown)?.first;
        let entries = manifest.segments.iter().skip_while(|entry| entry.first < from);
        let entries: Vec<_> = entries.take_while(|entry| entry.first <= *heights.end()).collect();
        if entries.len() > SEGMENTS_MAX {
            return Err(NotRead::TooMany);
        }
        let range = u64::from(manifest.range);
        let parts = entries.into_iter().map(|entry| {
            let start = entry.first.max(*heights.start());
            let end = (entry.first + range).min(heights.end().saturating_add(1));
            self.part(manifest, entry, start..end, keys)
        });
        join_all(parts).await.into_iter().collect()
    }

    /// Makes heights of a segment readable. Opening reads its front, and logs its index of logs; then each
    /// run of neighboring pages is one read.
    async fn part(
        &self,
        manifest: &Manifest,
        entry: &SegmentEntry,
        heights: Range<u64>,
        keys: &[Vec<u64>],
    ) -> Result<ArchivedSegment, NotRead> {
        let (file, segment) = self.open(manifest, entry).await?;
        let wanted = if keys.is_empty() {
            heights.collect()
        } else {
            let (offset, len) = segment.terms_extent().ok_or(NotRead::Changed)?;
            self.pages.ensure(&file, offset..offset + len as u64).await?;
            segment.candidates(keys, heights).ok_or(NotRead::Changed)?
        };
        let mut pages = BTreeSet::new();
        for height in wanted {
            let (offset, len) = segment.extent(height).ok_or(NotRead::Changed)?;
            pages.extend(file.pages(offset..offset + len as u64));
        }
        if file.reads(&pages) > READS_MAX {
            return Err(NotRead::TooMany);
        }
        self.pages.ensure_pages(&file, &pages).await?;
        self.pages.dir.touch(&file.name);
        Ok(segment)
    }

    async fn open(
        &self,
        manifest: &Manifest,
        entry: &SegmentEntry,
    ) -> Result<(Arc<PageFile>, ArchivedSegment), NotRead> {
        let known = lock(&self.pages.segments).get(&entry.digest).cloned();
        let file = lock(&self.pages.files).get(&entry.digest).cloned();
        if let (Some(segment), Some(file)) = (known, file)
            && !segment.has_damage()
        {
            return Ok((file, segment));
        }
        let span = manifest.span_of(entry).ok_or(NotRead::Unknown)?;
        let lists = self.lists(manifest, span).await?;
        let pages = lists.segment(entry.first).ok_or(NotRead::Changed)?;
        if pages.pages.object_digest() != entry.digest || u64::from(pages.front) > entry.bytes {
            return Err(NotRead::Changed);
        }
        let name = manifest.segment_name(entry);
        let file = self.pages.file(name, entry.bytes, &pages.pages);
        self.pages.ensure(&file, 0..u64::from(pages.front)).await?;
        let (codec, source) = (Arc::clone(&self.codec), Arc::clone(&file));
        let opening = move || {
            let pages: Arc<dyn PackedPages> = source;
            ArchivedSegment::open(PackedBytes::paged(pages), &codec)
        };
        let segment = tokio::task::spawn_blocking(opening).await.map_err(|_| NotRead::Failed)?;
        let segment = segment.map_err(|error| {
            warn!(object = %name, %error, "archived segment does not open");
            NotRead::Changed
        })?;
        if !is_named(&segment, manifest, entry) {
            warn!(object = %name, "archived segment has other blocks than the manifest names");
            return Err(NotRead::Changed);
        }
        lock(&self.pages.segments).insert(entry.digest, segment.clone());
        Ok((file, segment))
    }

    async fn lists(
        &self,
        manifest: &Manifest,
        span: &SpanEntry,
    ) -> Result<Arc<PageLists>, NotRead> {
        let key = span.pages.digest;
        if let Some(lists) = lock(&self.lists).get(&key) {
            return Ok(Arc::clone(lists));
        }
        let bytes = self.pages.whole(&manifest.pages_name(span), span.pages.bytes).await?;
        let lists = PageLists::read(&bytes).map_err(|_| NotRead::Changed)?;
        if lists.span.object_digest() != span.digest {
            return Err(NotRead::Changed);
        }
        let lists = Arc::new(lists);
        insert(&self.lists, key, Arc::clone(&lists), LISTS_MAX);
        Ok(lists)
    }

    /// Finds the places at which a hash may be, in the newest spans whose filters say so.
    async fn find(&self, known: &Known, end: u64, hash: &[u8; 32]) -> Result<Vec<Spot>, NotRead> {
        let manifest = &known.manifest;
        let may_have =
            |span: &&SpanEntry| span.first < end && self.filters.span_may_have(span, hash);
        let below = manifest.spans.iter().rev().filter(may_have);
        let mut failed = None;
        for span in below.take(SPANS_ASKED_MAX) {
            match self.find_in(manifest, span, hash).await {
                Ok(spots) if spots.is_empty() => {}
                Ok(spots) => return Ok(spots),
                Err(why) => failed = Some(why),
            }
        }
        failed.map_or(Ok(Vec::new()), Err)
    }

    async fn find_in(
        &self,
        manifest: &Manifest,
        entry: &SpanEntry,
        hash: &[u8; 32],
    ) -> Result<Vec<Spot>, NotRead> {
        let lists = self.lists(manifest, entry).await?;
        let (first, count) = lists.pages_of(hash);
        let file = self.pages.file(manifest.span_name(entry), entry.bytes, &lists.span);
        let bytes = file.extent(&(first..first + count));
        self.pages.ensure(&file, bytes.clone()).await?;
        self.pages.dir.touch(&file.name);
        let part = file.read(bytes.start, (bytes.end - bytes.start) as usize);
        let part = part.ok_or(NotRead::Failed)?;
        let span = Span::empty(entry.first, manifest.range, entry.segments);
        let span = span.map_err(|_| NotRead::Changed)?;
        Ok(span.candidates_in(bytes.start, &part, hash).collect())
    }
}

impl Below for ArchiveReader {
    fn may_have(&self, want: &Want) -> bool {
        let known = self.known.load();
        match (known.as_ref(), want) {
            (None, _) => false,
            (Some(known), Want::Height(height)) => known.heights.contains(height),
            (Some(_), Want::Hash(hash)) => self.filters.may_have(hash),
            (Some(_), _) => true,
        }
    }

    fn lend(&self, wants: Vec<Want>) -> Lending<'_> {
        Box::pin(async move {
            let borrowed = timeout(REQUEST_TIME_MAX, self.borrow(wants)).await;
            borrowed.unwrap_or(Lent { try_again: true, ..Lent::default() })
        })
    }
}

/// True if a segment has the blocks that the manifest names.
fn is_named(segment: &ArchivedSegment, manifest: &Manifest, entry: &SegmentEntry) -> bool {
    let ends = segment.header().map(|header| (header, segment.last_hash()));
    ends.is_some_and(|(header, last)| {
        (header.identity, header.first, header.heights)
            == (identity_of(manifest), entry.first, manifest.range)
            && header.parent.0 == entry.parent.0
            && last.is_some_and(|last| last.0 == entry.last.0)
    })
}

fn place(hash: [u8; 32], spot: Spot) -> ArchivedPlace {
    let position = spot.transaction.map(|position| position as usize);
    ArchivedPlace { hash: Hash(hash), height: spot.height, position }
}

/// Adds to a map that is emptied when it is full.
fn insert<T>(map: &Mutex<HashMap<Digest, T>>, key: Digest, value: T, most: usize) {
    let mut map = lock(map);
    if map.len() >= most {
        map.clear();
    }
    map.insert(key, value);
}
