//! Publication of a fetched height, or its contradiction.

use std::ops::RangeInclusive;

use bytes::Bytes;
use neve_chain::{CheckedHeader, Disproof, Header, TotalDifficulty};
use neve_record::assemble::Assembled;
use neve_record::parts::{FULL, RECEIPTS, readable_part};
use neve_store::Record;
use neve_store::residency::loaded;

use super::Session;
use crate::fetch::follow::session_end::SessionEnd;
use crate::fetch::{FetchedHeight, Payload, note_proof, refuse};
use crate::shared::IngestReservation;
use crate::upstream::rules_of;

impl Session<'_> {
    /// Compares a proven height with those before it, and publishes it.
    pub(super) async fn publish(
        &mut self,
        fetched: FetchedHeight,
        room: IngestReservation,
    ) -> Result<(), SessionEnd> {
        let FetchedHeight { assembled, from } = fetched;
        let Assembled { record, header, unsettled, difficulty } = assembled;
        let height = record.height;
        self.note_giver(height, from)?;
        self.check_parent(&record, from)?;
        // From Helicon on this header proves the receipts of an earlier block (ACP-194), or disproves them.
        match self.window.settle(&CheckedHeader::of(&header)) {
            Ok(proof) => note_proof(height, &proof),
            Err(disproof) => return Err(self.disproved(height, &disproof).await?),
        }
        unsettled.into_iter().for_each(|receipts| self.window.push(receipts));
        self.last = Some((height, record.hash));
        self.note_rules(from, difficulty, &header);
        self.held.push_back((record, room));
        self.release().await
    }

    /// Notes the upstream that gave a height. Fails if the mirror source gave the height and withdrew it.
    fn note_giver(&mut self, height: u64, from: usize) -> Result<(), SessionEnd> {
        let upstream = &self.source.pool.upstreams[from];
        if upstream.peer.is_some() && self.givers.is_withdrawn(height) {
            upstream.withdrew();
            return Err(SessionEnd::withdrawn(height));
        }
        self.givers.gave(height, from);
        Ok(())
    }

    /// Rejects a record whose parent is not the last published block.
    fn check_parent(&self, record: &Record, from: usize) -> Result<(), SessionEnd> {
        let last = self.last.filter(|(_, hash)| *hash != record.parent);
        let Some((_, hash)) = last else { return Ok(()) };
        let (height, upstream) = (record.height, &self.source.pool.upstreams[from]);
        let why = format!("its parent is {}, the block before is {hash}", record.parent);
        refuse(height, Some(&upstream.name), "parent_link", &why);
        self.source.refused(height, upstream, texts_of(record), "parent_link", &why);
        Err(SessionEnd::Contradiction { height, why })
    }

    /// A block is linked and proven, and shows by which rules its giver answers.
    fn note_rules(&self, from: usize, difficulty: TotalDifficulty, header: &Header) {
        let pool = &self.source.pool;
        let rules = rules_of(difficulty, self.follower.serving.rules());
        if pool.upstreams[from].shows_rules(rules) {
            pool.changed(false);
        }
        if header.settles().is_some() {
            pool.note_asynchronous();
        }
    }

    /// A header contradicts receipts that are published: they go, and come back only proven.
    async fn disproved(
        &mut self,
        height: u64,
        disproof: &Disproof,
    ) -> Result<SessionEnd, SessionEnd> {
        refuse(height, None, disproof.reason(), &disproof.to_string());
        let why = disproof.to_string();
        if let Disproof::ReceiptsRoot { from, through, .. }
        | Disproof::LogsBloom { from, through, .. } = disproof
            && from <= through
        {
            self.distrust = Some(height);
            // Before the withdrawal, as published texts are read from the store.
            self.blame(*from..=*through, disproof);
            self.follower.ingest.withdraw(*from).await??;
        }
        Ok(SessionEnd::Contradiction { height, why })
    }

    /// Keeps disproved data as evidence, and penalizes its upstream.
    fn blame(&self, heights: RangeInclusive<u64>, disproof: &Disproof) {
        let why = disproof.to_string();
        for (height, by) in self.givers.of(heights) {
            let held = self.held.iter().find(|(record, ..)| record.height == height);
            let stored = || {
                let stored = self.follower.serving.reader.record(height)?;
                let text = |part| {
                    Some(Bytes::copy_from_slice(readable_part(&stored, part).ok()??.as_ref()))
                };
                Some((text(FULL)?, text(RECEIPTS)?))
            };
            let texts = held.map(|(record, ..)| texts_of(record)).or_else(|| loaded(stored));
            let upstream = &self.source.pool.upstreams[by];
            let reason = disproof.reason();
            self.source.refused(height, upstream, texts.unwrap_or_default(), reason, &why);
        }
    }

    /// Publishes the fetched heights below the first one that was disproved once and is not proven
    /// yet.
    async fn release(&mut self) -> Result<(), SessionEnd> {
        let settled = self.window.settled();
        // A settled height cannot be disproved, so that no upstream is blamed for it.
        if let Some(settled) = settled {
            self.givers.settle(settled);
        }
        while let Some((record, room)) = self.held.pop_front_if(|(record, ..)| {
            let trusted = self.distrust.is_none_or(|distrust| record.height > distrust);
            trusted || settled.is_some_and(|settled| record.height <= settled)
        }) {
            self.published += 1;
            let rules = self.source.pool.sight().borrow().rules();
            self.follower.ingest.append(record, rules, room).await?;
        }
        self.note_verified();
        Ok(())
    }
}

/// Block and receipts of a record that is not stored yet.
fn texts_of(record: &Record) -> Payload {
    let text =
        |part: usize| record.parts.get(part).map_or_else(Bytes::new, |part| part.bytes.clone());
    (text(FULL), text(RECEIPTS))
}
