//! Proof of archived blocks: each is assembled again from its stored text with the proofs of ingest, and linked by parent
//! hashes to the blocks above it. From Helicon on a later header commits to its receipts.

use neve_chain::{AdmittedKeys, CheckedHeader, Checks, Proof, Settlement};
use neve_record::assemble::assemble;
use neve_record::parts::{FULL, RECEIPTS};
use neve_store::{Hash, PackedKeys};

use super::Fault;
use crate::archive::local::OpenedFile;
use crate::config::Anchor;

/// Memory for receipts that wait for their settling header.
const WINDOW_BYTES_MAX: usize = 64 << 20;

/// Heights that are proven so far. Segments come in ascending order.
#[derive(Debug, Clone)]
pub(crate) struct Proving {
    /// A block that is known to be in the chain.
    anchor: Option<Anchor>,
    /// Bytes of receipts that wait for their settling header.
    window_bytes_max: usize,
    window: Settlement,
    /// First and last height of blocks of which each is the parent of the next one.
    linked: Option<(u64, u64)>,
    /// Height from which on the receipts of linked blocks are compared with the headers that settle them.
    from: u64,
    /// Lowest linked height whose receipts were forgotten before a header settled them.
    forgotten: Option<u64>,
    /// First and last height of linked blocks whose receipts are settled, up to the anchor if there is one.
    proven: Option<(u64, u64)>,
    /// True if a block was the anchor.
    has_anchor: bool,
}

impl Proving {
    /// Begins a proof that leads to `anchor`, if there is one.
    pub(crate) fn new(anchor: Option<Anchor>) -> Self {
        let window = Settlement::new(WINDOW_BYTES_MAX);
        Self {
            anchor,
            window_bytes_max: WINDOW_BYTES_MAX,
            window,
            linked: None,
            from: 0,
            forgotten: None,
            proven: None,
            has_anchor: false,
        }
    }

    /// Keeps receipts in so much memory.
    #[cfg(test)]
    pub(crate) fn with_window(mut self, bytes_max: usize) -> Self {
        self.window_bytes_max = bytes_max;
        self
    }

    /// Returns first and last height of the blocks whose receipts are settled by a header that leads to the anchor, or
    /// without one to the newest block. Receipts above them are those of no header.
    pub(super) fn proven(&self) -> Option<(u64, u64)> {
        self.proven
    }

    /// Says why no height of segments without a fault is proven, or the lower ones are not.
    pub(super) fn unproven(&self) -> Option<Fault> {
        if let (Some(from), Some((first, _))) = (self.forgotten, self.proven) {
            let why = format!(
                "heights below {first} are not proven: from height {from} on, over {} bytes of receipts wait for the \
                 header that settles them",
                self.window_bytes_max
            );
            return Some(("unproven", why)).filter(|_| from < first);
        }
        let (newest, name) = match self.anchor {
            Some(anchor) if !self.has_anchor => {
                let Anchor { height, .. } = anchor;
                let why = format!(
                    "no block of the archive is that of --archive-anchor, at height {height}"
                );
                return Some(("anchor", why));
            }
            Some(anchor) => (anchor.height, "that of --archive-anchor"),
            None => (self.linked?.1, "the newest one"),
        };
        let why = format!(
            "no height is proven: the header of height {newest}, {name}, settles no receipts of the heights that lead \
             to it; prove again with a later block"
        );
        Some(("unproven", why)).filter(|_| self.proven.is_none())
    }

    /// Proves a segment. One that fails changes nothing, so that the next one has no link to the blocks below.
    pub(super) fn segment(&mut self, opened: &OpenedFile) -> Result<(), Fault> {
        let mut next = self.clone();
        next.prove(opened)?;
        *self = next;
        Ok(())
    }

    fn prove(&mut self, opened: &OpenedFile) -> Result<(), Fault> {
        let header = opened.header();
        if self.linked.is_none_or(|(_, last)| last + 1 != header.first) {
            self.window = Settlement::new(self.window_bytes_max);
            (self.linked, self.from) = (None, 0);
        }
        let chain_id = header.identity.chain_id;
        let checks = Checks { chain_id, senders: false, admitted: AdmittedKeys::default() };
        let mut keys = PackedKeys::default();
        for height in header.first..header.end() {
            self.height(opened, height, &checks, &mut keys)?;
        }
        // The terms of a span are those of this index: an absent one would hide logs.
        opened.check_indexes(&keys).map_err(|why| ("index", why))
    }

    fn height(
        &mut self,
        opened: &OpenedFile,
        height: u64,
        checks: &Checks,
        keys: &mut PackedKeys,
    ) -> Result<(), Fault> {
        let fault = |kind: &'static str, why: String| (kind, format!("height {height}: {why}"));
        let stored = opened.record(height).map_err(|why| fault("segment", why))?;
        let [block, receipts] = [FULL, RECEIPTS].map(|part| &stored.parts[part].bytes);
        let made = assemble(block, receipts, checks);
        let made = made.map_err(|refusal| fault(refusal.reason(), refusal.to_string()))?;
        if (made.record.height, made.record.hash) != (height, stored.hash) {
            return Err(fault("hash", "its block is another one".to_owned()));
        }
        let settled = self.window.settle(&CheckedHeader::of(&made.header));
        let proof = settled.map_err(|disproof| fault(disproof.reason(), disproof.to_string()))?;
        if let Proof::Unprovable { from, through } = proof {
            self.from = through.saturating_add(1); // receipts below a gap, or beyond the memory
            let begun = self.linked.map_or(height, |(first, _)| first);
            self.forgotten = self.forgotten.or(from.filter(|from| *from >= begun));
        }
        made.unsettled.into_iter().for_each(|receipts| self.window.push(receipts));
        keys.add(&made.record);
        self.link(height, made.record.hash).map_err(|why| fault("anchor", why))
    }

    /// Links the block to those below it. Fails if it is not the anchor's and should be.
    fn link(&mut self, height: u64, hash: Hash) -> Result<(), String> {
        let first = self.linked.map_or(height, |(first, _)| first);
        self.linked = Some((first, height));
        if let Some(anchor) = self.anchor.filter(|anchor| anchor.height == height) {
            if anchor.hash.0 != hash.0 {
                return Err(format!("its block is {hash}, not that of --archive-anchor"));
            }
            self.has_anchor = true;
        }
        // Nothing says that a header above the anchor is in the chain, nor what it settles.
        if self.anchor.is_none_or(|anchor| anchor.height == height) {
            self.proven = self.settled(first, height);
        }
        Ok(())
    }

    /// Heights from `first` on whose receipts the headers up to `height` settle.
    fn settled(&self, first: u64, height: u64) -> Option<(u64, u64)> {
        let through = self.window.settled().map_or(height, |settled| settled.min(height));
        let from = self.from.max(first);
        (from <= through).then_some((from, through))
    }
}
