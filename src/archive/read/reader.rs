//! Heights and hashes of the archive for requests.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::future::join_all;
use neve_archive::{Digest, Manifest, SpanEntry};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::archived_files::{ArchivedFiles, Borrowed, Keys, Known, no_keys};
use super::budget::Budget;
use super::fetch::{BreakerState, ObjectNotRead, ObjectReader, Payer, ReadRates};
use super::page_dir::PageDir;
use super::page_file::OpenPages;
use super::page_source::{LIST_BYTES_MAX, PageSource};
use super::prefetch::Prefetch;
use super::proofs::Proofs;
use crate::archive::error::Failed;
use crate::archive::source::{ArchiveSource, identity_of};
use crate::archive::verify::NeighborProof;
use crate::config::settings::ArchiveConfig;
use crate::config::{Anchor, ArchiveTrust};
use crate::fetch::Evidence;
use crate::rpc::methods::{Below, Lending, Lent, LogsAt, Want};
use crate::shared::lock::lock;
use crate::shared::{ClientAddress, Serving};

mod descent;
mod proving;
mod signed;

use descent::Descendants;
use proving::Demand;
use signed::JudgedManifests;

/// Time that one request waits for the archive.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// Time after which the manifest is looked at again.
const MANIFEST_EVERY: Duration = Duration::from_mins(1);
/// Time after which the packed files of the store are compared with it, or it is looked for.
const PROVEN_EVERY: Duration = Duration::from_secs(2);
/// Time after which filters are looked for again, and after one could not be had.
const FILTERS_EVERY: Duration = Duration::from_secs(1);
const FILTERS_AGAIN: Duration = Duration::from_secs(5);
/// Heights that are answered: those below the tail, and those that lead to an anchor further down.
type AnsweredRanges = (Option<RangeInclusive<u64>>, Option<RangeInclusive<u64>>);

/// Place of the pages on the disk, and of those that are rejected.
pub(crate) struct PagePlace {
    /// Directory of the store.
    pub(crate) store: PathBuf,
    pub(crate) evidence: Evidence,
    /// Files of pages that may be open, those of requests included.
    pub(crate) files_max: usize,
}

/// Reads the archive for requests.
pub(crate) struct ArchiveReader {
    manifests: Arc<ArchiveSource>,
    files: Arc<ArchivedFiles>,
    prefetch: Arc<Prefetch>,
    serving: Arc<Serving>,
    trust: ArchiveTrust,
    anchor: Option<Anchor>,
    proofs: Arc<Proofs>,
    proof: NeighborProof,
    demand: Demand,
    descendants: Mutex<Descendants>,
    judged: Mutex<JudgedManifests>,
    known: ArcSwapOption<Known>,
}

impl ArchiveReader {
    /// Opens the directory of pages. All work for requests runs on the runtime. `proof` is for segments that
    /// are not proven yet.
    pub(crate) fn new(
        manifests: &Arc<ArchiveSource>,
        serving: &Arc<Serving>,
        config: &ArchiveConfig,
        place: PagePlace,
        proof: NeighborProof,
        runtime: &Handle,
    ) -> Result<Arc<Self>, Failed> {
        let PagePlace { store, evidence, files_max } = place;
        let rates =
            ReadRates { reads: config.reads_per_second, bytes: config.read_bytes_per_second };
        let dir = PageDir::open(store.join("archive"), config.cache_bytes);
        let proofs = Proofs::open(store.clone(), store.join("archive-proofs"));
        let pages = PageSource {
            objects: ObjectReader::new(manifests.store_for_reads()?, rates),
            dir,
            evidence,
            runtime: runtime.clone(),
            open: OpenPages::new(files_max, LIST_BYTES_MAX),
            files: Mutex::default(),
            segments: Mutex::default(),
        };
        Ok(Arc::new(Self {
            manifests: Arc::clone(manifests),
            files: Arc::new(ArchivedFiles::new(pages, config)),
            prefetch: Arc::default(),
            serving: Arc::clone(serving),
            trust: config.trust,
            anchor: config.anchor,
            proofs: Arc::new(proofs),
            proof,
            demand: Demand::default(),
            descendants: Mutex::default(),
            judged: Mutex::default(),
            known: ArcSwapOption::empty(),
        }))
    }

    /// Keeps the manifest up to date, the proven segments and the filters, proves segments that clients ask for, and
    /// probes a store that fails.
    pub(crate) async fn run(self: Arc<Self>) {
        let probing = self.files.pages.objects.keep_probing();
        let (manifest, filters) = (self.keep_manifest(), self.keep_filters());
        tokio::join!(manifest, filters, self.keep_proving(), probing, self.show_breaker());
    }

    /// Shows the state of the breaker in /health.
    async fn show_breaker(&self) {
        let mut watch = self.files.pages.objects.watch();
        let mut was_closed = true;
        loop {
            let state = *watch.borrow_and_update();
            self.manifests.breaker(state.word());
            let is_closed = state == BreakerState::Closed;
            match (was_closed, is_closed) {
                (true, false) => warn!("archive fails, reads rest"),
                (false, true) => info!("archive answers, reads begin again"),
                _ => {}
            }
            was_closed = is_closed;
            if watch.changed().await.is_err() {
                return;
            }
        }
    }

    /// Brings filters one after the other, the newest first.
    async fn keep_filters(&self) {
        loop {
            // No pause while more are to come: hashes are misses until their filter is here.
            let wait = match self.next_filter().await {
                Ok((reach, is_done)) => {
                    self.manifests.filters_reach(reach);
                    if is_done { FILTERS_EVERY } else { Duration::ZERO }
                }
                Err(_) => FILTERS_AGAIN,
            };
            sleep(wait).await;
        }
    }

    /// Brings the next filter. Returns the height down to which filters are here without a gap, and true if there is no
    /// other one to bring.
    async fn next_filter(&self) -> Result<(Option<u64>, bool), ObjectNotRead> {
        let (Some(known), Some(end)) = (self.asked(), self.end()) else { return Ok((None, true)) };
        let manifest = &known.manifest;
        // Spans of the tail alone are left out: the store finds its own hashes.
        let is_asked = |span: &&SpanEntry| span.first < end && span.first <= *known.heights.end();
        let spans = manifest.spans.iter().rev().filter(is_asked);
        self.files.filters.next(&self.files.pages, manifest, spans).await
    }

    async fn keep_manifest(self: &Arc<Self>) {
        let mut has_failed = false;
        loop {
            match self.manifests.named_manifest().await {
                Ok((manifest, digest)) => {
                    let doubt = self.take(manifest, digest).await;
                    if has_failed || doubt.is_some() {
                        self.manifests.say(doubt.as_deref());
                    }
                    has_failed = doubt.is_some();
                }
                Err(why) => {
                    has_failed = true;
                    self.manifests.say(Some(&why.to_string()));
                }
            }
            // With `prove` the answered heights change also as the tail is packed and evicted.
            let proves = self.trust == ArchiveTrust::Prove || self.known.load().is_none();
            sleep(if proves { PROVEN_EVERY } else { MANIFEST_EVERY }).await;
        }
    }

    /// Takes a manifest. Returns the reason if it cannot be known whether it is an earlier one.
    async fn take(self: &Arc<Self>, manifest: Arc<Manifest>, digest: Digest) -> Option<String> {
        let is_ours = |identity| identity == identity_of(&manifest);
        let answered = match self.serving.identity() {
            identity if identity.is_none_or(is_ours) => self.answered(&manifest, digest).await,
            _ => Ok(AnsweredRanges::default()),
        };
        let ((heights, anchored), doubt) = match answered {
            // The tail may have none proven below it yet.
            Ok((None, anchored)) => ((anchored, None), None),
            Ok(both) => (both, None),
            Err(doubt) => (AnsweredRanges::default(), Some(doubt)),
        };
        // With `prove` none is no refusal: no segment is proven yet, or not any more.
        if heights.is_none() && self.trust != ArchiveTrust::Prove {
            if lock(&self.judged).refuse(digest) {
                warn!(%digest, "archive manifest refused");
            }
            return doubt; // the one before is as good as it was
        }
        lock(&self.judged).take();
        self.answer(manifest, digest, (heights, anchored));
        None
    }

    /// Answers these heights from now on.
    fn answer(&self, manifest: Arc<Manifest>, digest: Digest, (heights, anchored): AnsweredRanges) {
        let known = self.known.load();
        let before = known.as_ref().map(|known| (&known.heights, known.anchored.as_ref()));
        if before != heights.as_ref().map(|heights| (heights, anchored.as_ref())) {
            let [heights, anchored] = [&heights, &anchored].map(|range| shown(range.as_ref()));
            info!(%digest, heights, anchored, "archived heights");
        }
        self.manifests.answers(heights.clone(), anchored.clone());
        let known = heights.map(|heights| Known { manifest, heights, anchored });
        self.known.store(known.map(Arc::new));
    }

    /// Heights that are answered; an error if the manifest is an earlier one, does not descend from the trusted one, or
    /// that cannot be known.
    async fn answered(
        self: &Arc<Self>,
        manifest: &Arc<Manifest>,
        digest: Digest,
    ) -> Result<AnsweredRanges, String> {
        let all = || manifest.heights().map(|(first, last)| first..=last);
        match self.trust {
            ArchiveTrust::Manifest(trusted) => {
                self.takes_descendant(manifest, digest, Digest(trusted)).await?;
                Ok((all(), None))
            }
            ArchiveTrust::Key(key) => {
                let is_taken = self.takes_signed(manifest, digest, key).await?;
                Ok((all().filter(|_| is_taken), None))
            }
            ArchiveTrust::Prove => Ok(self.proven(manifest).await),
        }
    }

    /// Heights of proven segments, once the packed files of the store are compared with the archive.
    async fn proven(self: &Arc<Self>, manifest: &Arc<Manifest>) -> AnsweredRanges {
        self.demand.offer(manifest);
        let (reader, manifest) = (Arc::clone(self), Arc::clone(manifest));
        let compare = move || {
            reader.proofs.compare(&manifest, &reader.serving.reader.packed());
            let end = reader.end()?;
            let anchored = reader.anchor_below(&manifest, end);
            let anchored =
                anchored.and_then(|(_, entry)| reader.proofs.anchored_heights(&manifest, &entry));
            Some((reader.proofs.heights(&manifest, end), anchored))
        };
        tokio::task::spawn_blocking(compare).await.ok().flatten().unwrap_or_default()
    }

    /// First height of the served range: what is archived below it is answered.
    fn end(&self) -> Option<u64> {
        self.serving.reader.range().map(|range| *range.start())
    }

    /// Manifest that requests are about. Nothing of it is answered if no segment is proven yet.
    fn asked(&self) -> Option<Arc<Known>> {
        self.known.load_full().or_else(|| self.demand.unanswered())
    }

    async fn borrow(&self, mut wants: Vec<Want>, address: ClientAddress) -> Lent {
        // A batch may name one hash a thousand times, and each search reads and hashes pages.
        let mut seen = HashSet::new();
        wants.retain(|want| seen.insert(want.clone()));
        let (Some(known), Some(end)) = (self.asked(), self.end()) else {
            return Lent { try_again: true, ..Lent::default() };
        };
        let ask = |awaits, want| self.demand.ask(want, Some(&known)) || awaits;
        let awaits_proof = wants.iter().fold(false, ask);
        let lent = self.borrow_from(&known, end, wants, address).await;
        Lent { try_again: lent.try_again || awaits_proof, ..lent }
    }

    async fn borrow_from(
        &self,
        known: &Arc<Known>,
        end: u64,
        wants: Vec<Want>,
        address: ClientAddress,
    ) -> Lent {
        // A batch tells nothing of the order in which its client reads.
        if let [Want::Height(height)] = wants[..] {
            return self.borrow_height(known, end, height, address).await;
        }
        let budget = Budget::of_a_request(Payer::Client(address), self.files.logs_reads_max);
        // Together, before anything else: a thread for each would leave none for the reads of others.
        let hashes = wants.iter().filter_map(hash_of).collect();
        let Ok(spans) = self.files.newest_spans(known, end, hashes).await else {
            return Lent { try_again: true, ..Lent::default() };
        };
        let spans = |hash: &[u8; 32]| spans.get(hash).copied();
        let one = |want| self.borrow_one((&**known, end), want, &spans, &budget);
        let borrowed = join_all(wants.into_iter().map(one)).await;
        lent(borrowed.into_iter(), &budget)
    }

    /// Lends a height, and may bring those that its reader needs next.
    async fn borrow_height(
        &self,
        known: &Arc<Known>,
        end: u64,
        height: u64,
        address: ClientAddress,
    ) -> Lent {
        let budget = Budget::of_a_request(Payer::Client(address), self.files.logs_reads_max);
        let borrowed = self.heights(known, height..=height, &budget).await;
        let read = (address, budget.has_taken());
        self.prefetch.begin((&self.files, known), height, end, read);
        lent([borrowed].into_iter(), &budget)
    }

    /// Lends what one call needs. `newest_span` has the index of the newest span that may have a hash.
    async fn borrow_one(
        &self,
        (known, end): (&Known, u64),
        want: Want,
        newest_span: impl Fn(&[u8; 32]) -> Option<usize>,
        budget: &Budget<'_>,
    ) -> Result<Borrowed, ObjectNotRead> {
        let (hash, keys) = match want {
            Want::Height(height) => return self.heights(known, height..=height, budget).await,
            Want::Heights(heights) => return self.heights(known, heights, budget).await,
            Want::Logs(LogsAt::Heights(heights), keys) => {
                return self.files.logs(known, heights, &Keys::from(keys), budget).await;
            }
            Want::Hash(hash) => (hash, no_keys()),
            Want::Logs(LogsAt::Block(hash), keys) => (hash, Keys::from(keys)),
        };
        let Some(span) = newest_span(&hash) else { return Ok(Borrowed::default()) };
        let mut found = self.files.hash(known, end, (hash, span), &keys, budget).await?;
        let asks = |height: &u64| self.demand.ask(&Want::Height(*height), Some(known));
        found.unproven = found.unproven.filter(asks);
        Ok(found)
    }

    async fn heights(
        &self,
        known: &Known,
        heights: RangeInclusive<u64>,
        budget: &Budget<'_>,
    ) -> Result<Borrowed, ObjectNotRead> {
        let segments = self.files.heights(known, heights, &no_keys(), budget).await?;
        Ok(Borrowed { segments, ..Borrowed::default() })
    }
}

/// Hash that a request needs.
fn hash_of(want: &Want) -> Option<[u8; 32]> {
    match want {
        Want::Hash(hash) | Want::Logs(LogsAt::Block(hash), _) => Some(*hash),
        Want::Height(_) | Want::Heights(_) | Want::Logs(LogsAt::Heights(_), _) => None,
    }
}

/// Heights for the log; no field without any.
fn shown(heights: Option<&RangeInclusive<u64>>) -> Option<String> {
    heights.map(|heights| format!("{} to {}", heights.start(), heights.end()))
}

/// Puts together all that was borrowed.
fn lent(
    borrowed: impl Iterator<Item = Result<Borrowed, ObjectNotRead>>,
    budget: &Budget<'_>,
) -> Lent {
    let mut lent = Lent::default();
    for borrowed in borrowed {
        match borrowed {
            Ok(borrowed) => {
                lent.segments.extend(borrowed.segments);
                lent.places.extend(borrowed.places);
                lent.without.extend(borrowed.without);
                lent.beyond.extend(borrowed.beyond);
                lent.try_again |= borrowed.unproven.is_some();
            }
            // What was read is here at the next attempt, which needs less then.
            Err(ObjectNotRead::TooMany) => lent.try_again |= budget.has_taken(),
            Err(why) => lent.try_again |= why.passes(),
        }
    }
    lent
}

impl Below for ArchiveReader {
    fn may_have(&self, want: &Want) -> bool {
        let known = self.known.load();
        match (known.as_ref(), want) {
            (None, _) => false,
            (Some(known), Want::Height(height)) => known.has(&(*height..=*height)),
            (Some(_), Want::Hash(hash)) => self.files.filters.may_have(hash),
            (Some(_), _) => true,
        }
    }

    fn may_lend(&self, want: &Want) -> bool {
        // Those who lend look in the filters, on threads that may take long.
        if matches!(want, Want::Hash(_)) && self.files.filters.are_many() {
            return true;
        }
        // Those who lend ask for a proof, too: a hash leads to a height there.
        match want {
            Want::Hash(hash) => self.files.filters.may_have(hash),
            _ => self.may_have(want) || self.demand.may_ask(want, self.known.load().as_deref()),
        }
    }

    fn lend(self: Arc<Self>, wants: Vec<Want>, address: ClientAddress) -> Lending {
        let runtime = self.files.pages.runtime.clone();
        let borrowing = runtime.spawn(async move {
            timeout(REQUEST_TIME_MAX, self.borrow(wants, address)).await.ok()
        });
        let borrowing = AbortOnDropHandle::new(borrowing); // the client may go
        Box::pin(async move {
            let borrowed = borrowing.await.ok().flatten();
            borrowed.unwrap_or(Lent { try_again: true, ..Lent::default() })
        })
    }
}

#[cfg(test)]
mod tests;
