//! The proof of receipts by a later header (ACP-194, in force from Helicon on).
//!
//! The header of an asynchronous block commits to the receipts of the heights that it *settles*:
//! from behind its parent's settled height up to its own. Those ranges follow one another without
//! gap or overlap and may be empty. `receiptsRoot` is the root of their receipts joined in order,
//! where the index runs through the whole range but the cumulative gas starts anew in each block;
//! `logsBloom` is the union of their blooms (avalanchego, `vms/saevm/sae/block_builder.go`).
//!
//! The key of a receipt in that trie, and so the path in its leaf, depends on how many receipts
//! precede it in the range, which is not known before the settling header. Hence the window keeps
//! the encodings, not hashes of them.

use std::{collections::VecDeque, ops::RangeInclusive};

use alloy_primitives::{B256, Bloom};

use super::check_receipts::CheckedReceipts;
use crate::header::CheckedHeader;
use crate::rlp::{Encodings, ordered_root};

/// Bytes of an entry besides its receipts; a bound that also limits how many there are.
const ENTRY_BYTES: usize = 512;

/// The heights that are published but not settled.
///
/// A follower calls, for each height in order, [`settle`](Self::settle) with its header and
/// [`push`](Self::push) with its [`Unsettled`] receipts, in either order but never a height before
/// the last one. Code that walks over stored heights (`neve verify`) does the same from
/// [`Settlement::new`]; after a restart, [`Settlement::resume`] with the newest stored header and a
/// push of each height in [`Settlement::unsettled`] rebuild the window.
///
/// Normally there are one to ten heights in it, but on an idle chain the last ones stay for ever,
/// and execution that lags behind consensus adds to them. So memory is bounded: when the
/// receipts exceed the limit the oldest heights are forgotten, and the range with them becomes
/// [`Proof::Unprovable`] here. They are stored, so a new window over that range can still prove it.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// Newest header seen.
    last: Option<(u64, B256)>,
    /// Height up to which that header settles.
    settled: Option<u64>,
    /// Receipts of heights above `settled`, in ascending order, perhaps with gaps.
    entries: VecDeque<Unsettled>,
    bytes: usize,
    bytes_max: usize,
}

/// Receipts of a height that a later header settles: made by [`CheckedReceipts::unsettled`].
#[derive(Clone, Debug)]
pub struct Unsettled {
    height: u64,
    encodings: Encodings,
    logs_bloom: Bloom,
}

impl CheckedReceipts<'_> {
    /// Receipts to keep until a later header settles this height; `None` if its own header
    /// proved it.
    pub fn unsettled(&self) -> Option<Unsettled> {
        let (encodings, logs_bloom) = (self.encodings().clone(), *self.logs_bloom());
        (!self.is_proven()).then_some(Unsettled { height: self.number(), encodings, logs_bloom })
    }
}

/// Proof that a header gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The header is synchronous and commits to its own receipts: [`crate::Receipts::check`]
    /// compared them.
    Own,
    /// The header settles nothing, rightly.
    Nothing,
    /// The header commits to the receipts of these heights.
    Proven(RangeInclusive<u64>),
    /// The header settles heights whose receipts are not all in the window: those before the
    /// store's first height, or forgotten ones. A part of a range cannot be proven.
    Unprovable {
        /// First height of the range; `None` when this is the first header seen.
        from: Option<u64>,
        /// Last height of the range.
        through: u64,
    },
}

/// A header that contradicts the heights before it. The window stays as it was: the caller may
/// try another header or other receipts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Disproof {
    /// The receipts of these heights are not those that the header commits to.
    #[error("receipts of {from}..={through} have root {computed}, header {header} has {claimed}")]
    ReceiptsRoot {
        /// The settling header's height.
        header: u64,
        /// First height of the range; greater than `through` if the range is empty.
        from: u64,
        /// Last height of the range.
        through: u64,
        /// Value in the header.
        claimed: B256,
        /// Root of the receipts.
        computed: B256,
    },
    /// The root is right and the bloom is not: the header contradicts itself.
    #[error("blooms of {from}..={through} differ from that of header {header}")]
    LogsBloom {
        /// The settling header's height.
        header: u64,
        /// First height of the range; greater than `through` if the range is empty.
        from: u64,
        /// Last height of the range.
        through: u64,
        /// That in the header, then the computed one.
        blooms: Box<(Bloom, Bloom)>,
    },
    /// A settled height that is lower than the parent's, or not lower than the block itself; or a
    /// synchronous block behind an asynchronous one.
    #[error("header {header} settles {settled}, its parent {parent:?}")]
    Order {
        /// The header's height.
        header: u64,
        /// The height that it settles.
        settled: u64,
        /// The height that its parent settles, if known.
        parent: Option<u64>,
    },
    /// The header is not the child of the one before it.
    #[error("header {header} has parent {found}, expected {expected} of height {last}")]
    Parent {
        /// The header's height.
        header: u64,
        /// The hash that it names.
        found: B256,
        /// Height of the newest header seen.
        last: u64,
        /// Hash of the newest header seen.
        expected: B256,
    },
}

impl Disproof {
    /// A short label that stays the same between releases, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ReceiptsRoot { .. } => "settled_receipts_root",
            Self::LogsBloom { .. } => "settled_logs_bloom",
            Self::Order { .. } => "settled_order",
            Self::Parent { .. } => "settled_parent",
        }
    }
}

impl Settlement {
    /// The queue of avalanchego holds at most three full blocks, each of ten seconds of gas
    /// (`vms/saevm/params/params.go`), and a byte of a log costs 8 gas: at the 3.2 million gas a
    /// second that Fuji had, 12 MB. This allows twenty times as much.
    pub const BYTES_MAX_DEFAULT: usize = 256 << 20;

    /// A window before the first height that is known.
    pub fn new(bytes_max: usize) -> Self {
        Self { last: None, settled: None, entries: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// A window behind `last`, for the next height. It lacks the receipts of the heights that are
    /// not settled by then: push those of [`Settlement::unsettled`].
    pub fn resume(last: &CheckedHeader<'_>, bytes_max: usize) -> Self {
        let header = last.header();
        Self {
            last: Some((header.number, last.hash())),
            settled: Some(header.settled_through()),
            ..Self::new(bytes_max)
        }
    }

    /// The heights behind the settled one, up to the newest header. Empty for a window that has
    /// seen none.
    pub fn unsettled(&self) -> RangeInclusive<u64> {
        match (self.settled, self.last) {
            (Some(settled), Some((last, _))) => settled.saturating_add(1)..=last,
            _ => RangeInclusive::new(1, 0),
        }
    }

    /// Height up to which receipts are settled, by the newest header.
    pub fn settled(&self) -> Option<u64> {
        self.settled
    }

    /// Memory that the receipts take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the receipts of a height. What is held of that height and of later ones is replaced:
    /// a height that was withdrawn may come again. Receipts that are settled already are ignored.
    pub fn push(&mut self, receipts: Unsettled) {
        let height = receipts.height;
        // Later ones go too: they belong to blocks above the one that was withdrawn.
        while let Some(entry) = self.entries.pop_back_if(|entry| entry.height >= height) {
            self.bytes -= entry.bytes();
        }
        if self.settled.is_some_and(|settled| height <= settled) {
            return;
        }
        self.bytes += receipts.bytes();
        self.entries.push_back(receipts);
        // Heights that are forgotten stay unproven, which is better than memory without a bound.
        while self.bytes > self.bytes_max {
            self.forget_oldest();
        }
    }

    /// Takes the next header and proves the heights that it settles.
    pub fn settle(&mut self, header: &CheckedHeader<'_>) -> Result<Proof, Disproof> {
        self.check_parent(header)?;
        let through = header.header().settled_through();
        let proof = self.prove(header, through)?;
        // Only now: a disproof leaves the window as it was.
        self.last = Some((header.header().number, header.hash()));
        self.settled = Some(through);
        while self.entries.front().is_some_and(|entry| entry.height <= through) {
            self.forget_oldest();
        }
        Ok(proof)
    }

    fn forget_oldest(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= entry.bytes();
        }
    }

    fn check_parent(&self, header: &CheckedHeader<'_>) -> Result<(), Disproof> {
        let Some((last, expected)) = self.last else { return Ok(()) };
        let (number, found) = (header.header().number, header.header().parent_hash);
        if last.checked_add(1) == Some(number) && found == expected {
            return Ok(());
        }
        Err(Disproof::Parent { header: number, found, last, expected })
    }

    /// Checks that a header, which settles up to `through`, follows the newest header seen.
    fn check_order(&self, header: &CheckedHeader<'_>, through: u64) -> Result<(), Disproof> {
        let number = header.header().number;
        let asynchronous = header.header().settles().is_some();
        // An asynchronous block does not settle itself. A synchronous one does, and follows none
        // that left heights unsettled: they would never be proven.
        let follows = |settled: u64| {
            if asynchronous { settled <= through } else { settled.checked_add(1) == Some(number) }
        };
        let ahead = asynchronous && through >= number;
        if ahead || !self.settled.is_none_or(follows) {
            let (settled, parent) = (through, self.settled);
            return Err(Disproof::Order { header: number, settled, parent });
        }
        Ok(())
    }

    fn prove(&self, header: &CheckedHeader<'_>, through: u64) -> Result<Proof, Disproof> {
        self.check_order(header, through)?;
        if header.header().settles().is_none() {
            return Ok(Proof::Own);
        }
        let Some(settled) = self.settled else {
            return Ok(Proof::Unprovable { from: None, through });
        };
        let from = settled.saturating_add(1);
        let Some(entries) = self.range(from, through) else {
            return Ok(Proof::Unprovable { from: Some(from), through });
        };
        // An empty range too: the header must then commit to no receipts.
        compare(header, from, through, &entries)?;
        Ok(if entries.is_empty() { Proof::Nothing } else { Proof::Proven(from..=through) })
    }

    /// The entries of all heights of a range, or `None` if one is missing.
    fn range(&self, from: u64, through: u64) -> Option<Vec<&Unsettled>> {
        let heights = from..=through;
        let held = self.entries.iter().filter(|entry| heights.contains(&entry.height));
        let held: Vec<_> = held.collect();
        let wanted = through.saturating_add(1).saturating_sub(from);
        (held.len() as u64 == wanted).then_some(held)
    }
}

fn compare(
    header: &CheckedHeader<'_>,
    from: u64,
    through: u64,
    entries: &[&Unsettled],
) -> Result<(), Disproof> {
    let header = header.header();
    let receipts: Vec<&[u8]> = entries.iter().flat_map(|entry| entry.encodings.iter()).collect();
    let (number, claimed) = (header.number, header.receipts_root);
    let computed = ordered_root(&receipts);
    if claimed != computed {
        return Err(Disproof::ReceiptsRoot { header: number, from, through, claimed, computed });
    }
    let bloom = entries.iter().fold(Bloom::ZERO, |bloom, entry| bloom | entry.logs_bloom);
    if header.logs_bloom != bloom {
        let blooms = Box::new((header.logs_bloom, bloom));
        return Err(Disproof::LogsBloom { header: number, from, through, blooms });
    }
    Ok(())
}

impl Unsettled {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.encodings.bytes()
    }
}
