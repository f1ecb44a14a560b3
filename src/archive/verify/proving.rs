//! Proof of archived blocks: each is assembled again from its stored text with the proofs of ingest, and linked by parent
//! hashes to the blocks above it. From Helicon on a later header commits to its receipts.

use std::ops::Range;

use neve_chain::{AdmittedKeys, CheckedHeader, Checks, Proof, Settlement};
use neve_record::assemble::{Assembled, assemble};
use neve_record::parts::{FULL, RECEIPTS};
use neve_store::{Hash, PackedKeys};

use super::Fault;
use crate::archive::local::OpenedFile;
use crate::config::Anchor;

/// Memory for receipts that wait for their settling header.
const WINDOW_BYTES_MAX: usize = 64 << 20;
/// Heights of a neighbor that may settle receipts of a segment, or be settled with them: blocks of minutes, where the
/// node settles within seconds (ACP-194).
const NEIGHBOR_HEIGHTS_MAX: u64 = 256;

/// Kind of the fault of heights that nothing disproves, and no header settles.
pub(in crate::archive) const UNPROVEN: &str = "unproven";

/// Heights that are proven so far. Segments come in ascending order.
#[derive(Debug, Clone)]
pub(crate) struct Proving {
    /// Checks of each block, but for its chain.
    checks: Checks,
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
        let checks = Checks { chain_id: 0, senders: false, admitted: AdmittedKeys::default() };
        Self {
            checks,
            anchor,
            window_bytes_max: WINDOW_BYTES_MAX,
            window: Settlement::new(WINDOW_BYTES_MAX),
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

    /// Says why no height of segments without a fault is proven, or the lower ones are not. `first` is the first height
    /// that was read.
    pub(super) fn unproven(&self, first: Option<u64>) -> Option<Fault> {
        if let (Some(from), Some((first, _))) = (self.forgotten, self.proven) {
            return (from < first).then(|| (UNPROVEN, self.forgotten_from(from, first)));
        }
        let (newest, name) = match self.anchor {
            Some(anchor) if !self.has_anchor => {
                return Some(("anchor", not_met(anchor.height, first)));
            }
            Some(anchor) => (anchor.height, "that of --archive-anchor"),
            None => {
                let Some(linked) = self.linked else {
                    let why = "no height is proven: no segment was read; see the heights of the archive, and --from";
                    return Some((UNPROVEN, why.to_owned()));
                };
                (linked.1, "the newest one")
            }
        };
        let why = format!(
            "no height is proven: the header of height {newest}, {name}, settles no receipts of the heights that lead \
             to it; prove again with a later block"
        );
        Some((UNPROVEN, why)).filter(|_| self.proven.is_none())
    }

    /// Says why the heights below `first` are not proven, where receipts from height `from` on were forgotten.
    fn forgotten_from(&self, from: u64, first: u64) -> String {
        format!(
            "heights below {first} are not proven: from height {from} on, over {} bytes of receipts wait for the \
             header that settles them",
            self.window_bytes_max
        )
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
        let mut keys = PackedKeys::default();
        for height in header.first..header.end() {
            self.height(opened, height, &mut keys)?;
        }
        // The terms of a span are those of this index: an absent one would hide logs.
        opened.check_indexes(&keys).map_err(|why| ("index", why))
    }

    fn height(
        &mut self,
        opened: &OpenedFile,
        height: u64,
        keys: &mut PackedKeys,
    ) -> Result<(), Fault> {
        let fault = |kind: &'static str, why: String| fault_at(height, kind, &why);
        let made = self.assembled(opened, height)?;
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

    /// Takes the last heights below a segment, whose receipts its first headers may settle together with its own.
    fn take_below(&mut self, below: &OpenedFile, segment: &OpenedFile) -> Result<(), Fault> {
        let first = segment.header().first;
        let near = first.saturating_sub(NEIGHBOR_HEIGHTS_MAX).max(below.header().first)..first;
        link_down(below, near.clone(), segment.link(first).map_err(unread)?.1)?;
        let mut keys = PackedKeys::default(); // of heights whose index is not compared
        for height in near {
            self.height(below, height, &mut keys)?;
        }
        Ok(())
    }

    /// Assembles the block of a height from its stored text, and compares it with the directory of the segment.
    fn assembled(&self, opened: &OpenedFile, height: u64) -> Result<Assembled, Fault> {
        let checks = Checks { chain_id: opened.header().identity.chain_id, ..self.checks };
        let fault = |kind: &'static str, why: String| fault_at(height, kind, &why);
        let stored = opened.record(height).map_err(|why| fault("segment", why))?;
        let [block, receipts] = [FULL, RECEIPTS].map(|part| &stored.parts[part].bytes);
        let made = assemble(block, receipts, &checks);
        let made = made.map_err(|refusal| fault(refusal.reason(), refusal.to_string()))?;
        // A search compares the hash of the directory, which a block in text form does not have.
        let header = opened.header();
        let is_child = height > header.first || made.record.parent == header.parent;
        let found = (made.record.height, Some(made.record.hash));
        if found != (height, opened.hash(height)) || !is_child {
            return Err(fault("hash", "its block is another one".to_owned()));
        }
        Ok(made)
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

    /// True if these heights are proven.
    fn has_proven(&self, heights: &Range<u64>) -> bool {
        self.proven
            .is_some_and(|(from, through)| from <= heights.start && through + 1 >= heights.end)
    }

    /// Heights from `first` on whose receipts the headers up to `height` settle.
    fn settled(&self, first: u64, height: u64) -> Option<(u64, u64)> {
        let through = self.window.settled().map_or(height, |settled| settled.min(height));
        let from = self.from.max(first);
        (from <= through).then_some((from, through))
    }
}

/// Says why no block was that of the anchor.
fn not_met(height: u64, first: Option<u64>) -> String {
    match first.filter(|first| height < *first) {
        Some(first) => format!(
            "height {height} of --archive-anchor is below {first}, the first height that was read; name a later block, \
             or a lower --from"
        ),
        None => format!("no block of the archive is that of --archive-anchor, at height {height}"),
    }
}

/// Proof of segments by their neighbors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NeighborProof {
    /// Bytes of a segment, which is in memory with both neighbors, and of receipts that wait for their settling header.
    pub(crate) bytes_max: u64,
    /// True to recover senders from signatures.
    pub(crate) senders: bool,
    /// Keys that blocks may have besides those of known releases.
    pub(crate) admitted: AdmittedKeys,
}

#[cfg(test)]
impl Default for NeighborProof {
    fn default() -> Self {
        Self { bytes_max: 24 << 20, senders: false, admitted: AdmittedKeys::default() }
    }
}

impl NeighborProof {
    /// Proves a segment whose last block must be the parent of the first one of `above`, which is proven. From Helicon on
    /// headers of `above`, those before height `until`, settle its last receipts. Its first headers may settle receipts of
    /// `below` together with its own: without `below` it is unproven then.
    pub(in crate::archive) fn prove(
        self,
        below: Option<&OpenedFile>,
        segment: &OpenedFile,
        (above, until): (&OpenedFile, u64),
    ) -> Result<(), Fault> {
        let (first, end) = (segment.header().first, segment.header().end());
        let mut proving = self.begin();
        link_down(segment, first..end, above.link(end).map_err(unread)?.1)?;
        below.map_or(Ok(()), |below| proving.take_below(below, segment))?;
        proving.prove(segment)?;
        let mut keys = PackedKeys::default(); // of heights whose index is not compared
        for height in end..above.header().end().min(until).min(end + NEIGHBOR_HEIGHTS_MAX) {
            // The first one also where nothing is left to settle: it names the last block of the segment.
            proving.height(above, height, &mut keys)?;
            if proving.has_proven(&(first..end)) {
                return Ok(());
            }
        }
        let last = end - 1;
        let why = format!("its neighbors do not settle all receipts of heights {first} to {last}");
        Err((UNPROVEN, why))
    }

    /// Links a segment that has the anchor to it. Returns true if the anchor's header proves all of the segment.
    pub(in crate::archive) fn link(
        self,
        anchor: Anchor,
        segment: &OpenedFile,
    ) -> Result<bool, Fault> {
        let (first, end) = (segment.header().first, segment.header().end());
        link_down(segment, first..anchor.height + 1, Hash(anchor.hash.0))?;
        if anchor.height + 1 < end {
            return Ok(false); // nothing says which blocks follow it
        }
        let mut proving = Proving { anchor: Some(anchor), ..self.begin() };
        proving.prove(segment)?;
        Ok(proving.has_proven(&(first..end)))
    }

    fn begin(self) -> Proving {
        let Self { bytes_max, senders, admitted } = self;
        let checks = Checks { chain_id: 0, senders, admitted };
        let window_bytes_max = bytes_max as usize;
        let window = Settlement::new(window_bytes_max);
        Proving { checks, window_bytes_max, window, ..Proving::new(None) }
    }
}

/// Links heights downward from the hash that the block above them names. This comes before all else: blocks of no chain
/// may be of any length, and so may what is made of them.
fn link_down(opened: &OpenedFile, heights: Range<u64>, mut parent: Hash) -> Result<(), Fault> {
    for height in heights.rev() {
        let (hash, next) = opened.link(height).map_err(unread)?;
        if hash != parent {
            return Err((
                "settled_parent",
                format!("height {height}: the block above names {parent}"),
            ));
        }
        parent = next;
    }
    Ok(())
}

fn fault_at(height: u64, kind: &'static str, why: &str) -> Fault {
    (kind, format!("height {height}: {why}"))
}

fn unread(why: String) -> Fault {
    ("segment", why)
}
