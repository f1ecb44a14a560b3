//! Hashes of the archive: filters say in which spans they may be, and spans at which places.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use neve_archive::{Manifest, Span, SpanEntry, Spot};
use neve_store::{ArchivedPlace, ArchivedSegment, Hash};
use tokio::sync::OwnedSemaphorePermit;

use super::{ArchivedFiles, Borrowed, Keys, Known, no_keys};
use crate::archive::read::budget::Budget;
use crate::archive::read::fetch::ObjectNotRead;
use crate::archive::read::page_file::PageFile;

/// Spans in which one hash is searched for.
const SPANS_ASKED_MAX: usize = 4;
/// Hashes that a thread looks up in the filters at a time: 660 filters, those of mainnet, take up to 0.8 ms for each
/// until they are merged.
const LOOKED_UP_TOGETHER: usize = 16;

impl ArchivedFiles {
    /// Returns the index of the newest span with heights below `end` that may have each of the hashes. Hashes that no
    /// span may have are left out.
    pub(in crate::archive::read) async fn newest_spans(
        &self,
        known: &Known,
        end: u64,
        hashes: Vec<[u8; 32]>,
    ) -> Result<HashMap<[u8; 32], usize>, ObjectNotRead> {
        let below = known.manifest.spans.partition_point(|span| span.first < end);
        let found = self.look_up(&known.manifest, below, &hashes).await?;
        let found = hashes.into_iter().zip(found);
        Ok(found.filter_map(|(hash, span)| Some((hash, span?))).collect())
    }

    /// Makes the blocks readable that a hash may be of. `span` is the index of the newest span that may have it.
    pub(in crate::archive::read) async fn hash(
        &self,
        known: &Known,
        end: u64,
        (hash, span): ([u8; 32], usize),
        keys: &Keys,
        budget: &Budget<'_>,
    ) -> Result<Borrowed, ObjectNotRead> {
        let mut borrowed = Borrowed::default();
        for spot in self.find(&known.manifest, span, &hash, budget).await? {
            // The store itself has the heights from `end` on.
            if spot.height >= end {
                continue;
            }
            if known.has(&(spot.height..=spot.height)) {
                borrowed.segments.extend(self.block(known, spot.height, keys, budget).await?);
                borrowed.places.push(place(hash, spot));
            } else {
                borrowed.unproven = Some(spot.height);
            }
        }
        Ok(borrowed)
    }

    /// Makes a block readable, and its logs with the keys.
    async fn block(
        &self,
        known: &Known,
        height: u64,
        keys: &Keys,
        budget: &Budget<'_>,
    ) -> Result<Vec<ArchivedSegment>, ObjectNotRead> {
        let mut segments = Vec::new();
        if !keys.is_empty() {
            segments.extend(self.heights(known, height..=height, keys, budget).await?);
        }
        // Its block is read also if it has no log with the keys.
        segments.extend(self.heights(known, height..=height, &no_keys(), budget).await?);
        Ok(segments)
    }

    /// Returns the index of the last of the spans before `below` that may have each hash, as far as filters say so.
    async fn look_up(
        &self,
        manifest: &Arc<Manifest>,
        below: usize,
        hashes: &[[u8; 32]],
    ) -> Result<Vec<Option<usize>>, ObjectNotRead> {
        let mut found = Vec::with_capacity(hashes.len());
        for some in hashes.chunks(LOOKED_UP_TOGETHER) {
            let place = self.look_up_place().await?;
            let (filters, all) = (Arc::clone(&self.filters), Arc::clone(manifest));
            let some = some.to_vec();
            let looking = move || {
                let _place = place; // goes with the thread, also if the request ends before
                let last_span = |hash| filters.last_span(&all.spans[..below], hash);
                some.iter().map(last_span).collect::<Vec<_>>()
            };
            found.extend(self.pages.compute(looking).await?);
        }
        Ok(found)
    }

    /// Waits for a place of a thread that searches. Threads that wait for a turn are none for reads of others. Places are
    /// taken in order, so that a request of a thousand hashes lets others go first after each part.
    async fn look_up_place(&self) -> Result<OwnedSemaphorePermit, ObjectNotRead> {
        let place = Arc::clone(&self.look_ups).acquire_owned().await;
        place.map_err(|_| ObjectNotRead::Failed)
    }

    /// Finds the places at which a hash may be, in this span and those below it whose filters say so.
    async fn find(
        &self,
        manifest: &Arc<Manifest>,
        newest: usize,
        hash: &[u8; 32],
        budget: &Budget<'_>,
    ) -> Result<Vec<Spot>, ObjectNotRead> {
        let (mut at, mut failed) = (newest, None);
        for asked in 1..=SPANS_ASKED_MAX {
            match self.find_in(manifest, &manifest.spans[at], hash, budget).await {
                Ok(spots) if spots.is_empty() => {}
                Ok(spots) => return Ok(spots),
                // Older spans may have the hash all the same.
                Err(why) => failed = Some(why),
            }
            if asked == SPANS_ASKED_MAX {
                break;
            }
            let Some(below) = self.last_span(manifest, at, hash).await? else { break };
            at = below;
        }
        failed.map_or(Ok(Vec::new()), Err)
    }

    /// Returns the index of the last of the spans before `below` that may have a hash.
    async fn last_span(
        &self,
        manifest: &Arc<Manifest>,
        below: usize,
        hash: &[u8; 32],
    ) -> Result<Option<usize>, ObjectNotRead> {
        let found = self.look_up(manifest, below, &[*hash]).await?;
        Ok(found.into_iter().flatten().next())
    }

    async fn find_in(
        &self,
        manifest: &Manifest,
        entry: &SpanEntry,
        hash: &[u8; 32],
        budget: &Budget<'_>,
    ) -> Result<Vec<Spot>, ObjectNotRead> {
        let (file, pages) = self.bring_pages_of(manifest, entry, hash, budget).await?;
        let span = Span::empty(entry.first, manifest.range, entry.segments);
        let (span, hash) = (span.map_err(|_| ObjectNotRead::Changed)?, *hash);
        let _searching = budget.searching().await;
        let place = self.look_up_place().await?;
        let looking = move || {
            let _place = place; // goes with the thread, also if the request ends before
            let start = file.extent(&pages).start;
            let part = file.read_index(pages)?;
            Some(span.candidates_in(start, &part, &hash).collect())
        };
        self.pages.compute(looking).await?.ok_or(ObjectNotRead::Failed)
    }

    /// Brings those pages of a span that may have a hash.
    async fn bring_pages_of(
        &self,
        manifest: &Manifest,
        entry: &SpanEntry,
        hash: &[u8; 32],
        budget: &Budget<'_>,
    ) -> Result<(Arc<PageFile>, Range<usize>), ObjectNotRead> {
        let lists = self.lists(manifest, entry, budget).await?;
        let ((first, count), list) = (lists.pages_of(hash), lists.span.clone());
        drop(lists); // may be long, and pages come meanwhile
        let name = manifest.span_name(entry);
        let file = self.pages.file(name, entry.bytes, &list).await?;
        let pages = first..first + count;
        self.bring(&file, &pages.clone().collect(), budget).await?;
        self.pages.dir.touch(&file.name);
        Ok((file, pages))
    }
}

fn place(hash: [u8; 32], spot: Spot) -> ArchivedPlace {
    let position = spot.transaction.map(|position| position as usize);
    ArchivedPlace { hash: Hash(hash), height: spot.height, position }
}
