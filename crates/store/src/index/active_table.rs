//! The hash table of the active segment, in memory.
//!
//! From a block or transaction hash to a height and a position, by open addressing with linear
//! probing. An entry holds the first 8 bytes of the hash and a [`Locator`]; the record itself
//! holds the whole hash, so a match here is a candidate that the caller checks there. A table can
//! therefore be stale, or wrong, without ever making an answer wrong. `table.rs` has the same
//! entries as bytes, for sealed segments; `compact_table.rs` has less of them, for merged tables.

use crate::format::{le_u64, transaction_hash};
use crate::id::Hash;
use crate::sync::{ArcSwap, AtomicU64, AtomicUsize, Ordering};

/// Slots at first. Under loom so few that the table grows.
const SLOTS_MIN: usize = if cfg!(loom) { 2 } else { 1024 };

/// Target of a table's entry: `height << 16 | ordinal`. Ordinal 0 is the block itself, ordinal i +
/// 1 its transaction i.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Locator(u64);

impl Locator {
    pub(crate) fn block(height: u64) -> Self {
        Self(height << 16)
    }

    pub(crate) fn transaction(height: u64, position: usize) -> Self {
        Self(height << 16 | (position as u64 + 1))
    }

    /// Target by its ordinal, which has at most 16 bits.
    pub(super) fn new(height: u64, ordinal: u64) -> Self {
        Self(height << 16 | ordinal)
    }

    pub(crate) fn height(self) -> u64 {
        self.0 >> 16
    }

    pub(super) fn ordinal(self) -> u64 {
        self.0 & 0xffff
    }

    /// Position of the transaction in its block; `None` for the block itself.
    pub(crate) fn position(self) -> Option<usize> {
        (self.ordinal() as usize).checked_sub(1)
    }

    /// Number that stands in an entry, where 0 means empty.
    pub(crate) fn stored(self) -> u64 {
        self.0 + 1
    }

    pub(crate) fn from_stored(stored: u64) -> Option<Self> {
        stored.checked_sub(1).map(Self)
    }
}

/// The first 8 bytes of a hash, and what it is the hash of.
pub(crate) type Entry = (u64, Locator);

/// The part of a hash that an entry holds.
pub(crate) fn prefix(hash: &Hash) -> u64 {
    le_u64(&hash.0, 0)
}

/// The entries that a record adds, made from its bytes.
pub(crate) fn entries_of(
    height: u64,
    hash: &Hash,
    record: &[u8],
    transactions: u32,
) -> impl Iterator<Item = Entry> {
    let block = (prefix(hash), Locator::block(height));
    let transaction = move |at| {
        let hash = transaction_hash(record, at)?;
        Some((prefix(&hash), Locator::transaction(height, at)))
    };
    std::iter::once(block).chain((0..transactions as usize).map_while(transaction))
}

/// Place where an entry would like to be among `homes`. Hashes are uniform, so nothing needs
/// mixing; and the home grows with the prefix, which `table.rs` builds on.
pub(crate) fn home(prefix: u64, homes: u64) -> usize {
    ((u128::from(prefix) * u128::from(homes)) >> 64) as usize
}

/// Homes for `count` entries: two thirds full, so that a probe ends after two entries in the mean
/// and five when the hash is not there, one or two cache lines.
pub(crate) fn homes_for(count: usize) -> usize {
    count + count / 2 + 1
}

type Slots = Vec<[AtomicU64; 2]>;

/// A table that one thread adds to while others look up.
pub(crate) struct ActiveTable {
    /// Replaced by one twice as large before it is more than two thirds full.
    slots: ArcSwap<Slots>,
    len: AtomicUsize,
}

impl ActiveTable {
    pub(crate) fn new() -> Self {
        Self { slots: ArcSwap::from_pointee(empty_slots(SLOTS_MIN)), len: AtomicUsize::new(0) }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: only the writer decides by this number.
        self.len.load(Ordering::Relaxed)
    }

    /// Adds an entry. Only the one writer calls this.
    pub(crate) fn insert(&self, entry: Entry) {
        let len = self.len() + 1;
        // Before the insertion: a probe ends at a free place, so there must always be one.
        if homes_for(len) > self.slots.load().len() {
            self.grow();
        }
        place(&self.slots.load(), entry);
        self.len.store(len, Ordering::Relaxed);
    }

    fn grow(&self) {
        let old = self.slots.load_full();
        let new = empty_slots(2 * old.len());
        old.iter().filter_map(read).for_each(|entry| place(&new, entry));
        // Readers that hold the old table miss only entries that come after this.
        self.slots.store(new.into());
    }

    /// Asks `found` about each candidate for `hash` until it returns something.
    pub(crate) fn find<T>(
        &self,
        hash: &Hash,
        mut found: impl FnMut(Locator) -> Option<T>,
    ) -> Option<T> {
        let slots = self.slots.load();
        let wanted = prefix(hash);
        let start = home(wanted, slots.len() as u64);
        let run = slots[start..].iter().chain(&slots[..start]);
        run.map_while(read)
            .filter(|(prefix, _)| *prefix == wanted)
            .find_map(|(_, locator)| found(locator))
    }

    /// All entries, sorted as `table::build` wants them.
    pub(crate) fn sorted_entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.slots.load().iter().filter_map(read).collect();
        entries.sort_unstable();
        entries
    }
}

fn empty_slots(count: usize) -> Slots {
    std::iter::repeat_with(|| [AtomicU64::new(0), AtomicU64::new(0)]).take(count).collect()
}

fn read(slot: &[AtomicU64; 2]) -> Option<Entry> {
    // The locator first: with this acquire load its prefix is there, too.
    let locator = Locator::from_stored(slot[1].load(Ordering::Acquire))?;
    Some((slot[0].load(Ordering::Relaxed), locator))
}

fn place(slots: &Slots, (prefix, locator): Entry) {
    let start = home(prefix, slots.len() as u64);
    // Relaxed: this thread alone fills places.
    let free = (start..slots.len())
        .chain(0..start)
        .find(|at| slots[*at][1].load(Ordering::Relaxed) == 0)
        .expect("a table is never more than two thirds full");
    slots[free][0].store(prefix, Ordering::Relaxed);
    // The locator last: a reader that sees it sees the prefix, too.
    slots[free][1].store(locator.stored(), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_is_found_however_the_hashes_cluster() {
        let hash = |seed: u64| {
            let mut hash = Hash::default();
            let prefix = if seed.is_multiple_of(3) { u64::MAX } else { seed << 32 };
            hash.0[..8].copy_from_slice(&prefix.to_le_bytes());
            hash
        };
        let count = if cfg!(miri) { 40 } else { 5000 };
        let table = ActiveTable::new();
        for seed in 0..count {
            table.insert((prefix(&hash(seed)), Locator::block(seed)));
        }
        for seed in 0..count {
            let same = |found: Locator| (found.height() == seed).then_some(());
            assert!(table.find(&hash(seed), same).is_some(), "{seed}");
        }
        assert_eq!(table.find(&hash(count + 2), |_| None::<()>), None);
        assert_eq!(table.sorted_entries().len(), table.len());
    }

    #[test]
    fn an_empty_table_finds_nothing() {
        assert_eq!(ActiveTable::new().find(&Hash([0xff; 32]), |_| Some(())), None);
    }

    #[test]
    fn a_locator_keeps_block_and_transaction_apart() {
        assert_eq!(Locator::block(7).position(), None);
        assert_eq!(Locator::transaction(7, 0).position(), Some(0));
        assert_eq!(Locator::transaction(7, 0xfffd).position(), Some(0xfffd));
        assert_eq!(Locator::transaction(7, 0xfffd).height(), 7);
        assert_eq!(Locator::from_stored(Locator::block(0).stored()), Some(Locator::block(0)));
        assert_eq!(Locator::from_stored(0), None);
    }
}
