//! Records of a segment that were found intact, or damaged.
//!
//! Opening believes a sealed segment's index, so a flipped bit in a record would be served as the
//! truth. A record's checksum is therefore compared before it is served first, once an opening.
//! A bit a record remembers that it is intact: a look-up costs one relaxed load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64 as Counter};

use crate::format::FormatError;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Records, sections and merged hash tables that were found damaged since the start, over all stores of the process.
static FOUND: Counter = Counter::new(0);

/// Damaged records, sections and merged hash tables that were found since the process started.
pub fn damages_found() -> u64 {
    FOUND.load(Ordering::Relaxed)
}

/// Counts merged hash tables that are damaged.
pub(crate) fn note_tables(count: usize) {
    FOUND.fetch_add(count as u64, Ordering::Relaxed);
}

/// Results of the checks of one segment's records. Clones share it.
#[derive(Clone)]
pub(crate) struct Checked {
    intact: Arc<[AtomicU64]>,
    damage: Arc<Damages>,
}

struct Damages {
    records: Box<[AtomicU64]>,
    count: AtomicU32,
    /// The hash table or the index of logs is damaged, or the file cannot be read.
    sections: AtomicBool,
}

/// Place and mask of the bit of slot `at`.
fn bit(at: u32) -> (usize, u64) {
    ((at / u64::BITS) as usize, 1 << (at % u64::BITS))
}

fn has(bits: &[AtomicU64], at: u32) -> bool {
    let (place, mask) = bit(at);
    // Relaxed: a record's bytes never change, so the bit publishes nothing.
    bits.get(place).is_some_and(|word| word.load(Ordering::Relaxed) & mask != 0)
}

impl Checked {
    /// Nothing is known of `span` records.
    pub(crate) fn new(span: u32) -> Self {
        let none = || (0..span.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0));
        let (count, sections) = (AtomicU32::new(0), AtomicBool::new(false));
        let damage = Damages { records: none().collect(), count, sections };
        Self { intact: none().collect(), damage: Arc::new(damage) }
    }

    /// True if the record of slot `at` was found intact, and not damaged since.
    pub(crate) fn is_intact(&self, at: u32) -> bool {
        has(&self.intact, at)
    }

    /// True if the record of slot `at` was found damaged.
    pub(crate) fn is_damaged(&self, at: u32) -> bool {
        has(&self.damage.records, at)
    }

    /// The record of slot `at` is intact. It stays damaged if it was found to be so before.
    pub(crate) fn note_intact(&self, at: u32) {
        let (place, mask) = bit(at);
        let Some(word) = self.intact.get(place) else { return };
        word.fetch_or(mask, Ordering::SeqCst);
        // Found damaged meanwhile: of the two orders one clears the bit.
        if self.damage.records[place].load(Ordering::SeqCst) & mask != 0 {
            word.fetch_and(!mask, Ordering::SeqCst);
        }
    }

    /// The record of slot `at` of the segment that begins at `base` is damaged.
    pub(crate) fn note_damaged(&self, base: u64, at: u32, damage: FormatError) {
        let (place, mask) = bit(at);
        let Some(word) = self.damage.records.get(place) else { return };
        let before = word.fetch_or(mask, Ordering::SeqCst);
        self.intact[place].fetch_and(!mask, Ordering::SeqCst);
        if before & mask != 0 {
            return;
        }
        FOUND.fetch_add(1, Ordering::Relaxed);
        let height = base + u64::from(at);
        // One line a segment: a bad disk has many.
        if self.damage.count.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(height, segment = base, reason = damage, "damaged record is not served");
        } else {
            tracing::debug!(height, segment = base, reason = damage, "damaged record");
        }
    }

    /// Something of the segment that begins at `base` is damaged that is no record.
    pub(crate) fn note_sections(&self, base: u64, damage: &str) {
        if !self.damage.sections.swap(true, Ordering::Relaxed) {
            FOUND.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(segment = base, reason = damage, "damaged segment");
        }
    }

    /// Records that were found damaged.
    pub(crate) fn damaged(&self) -> u32 {
        self.damage.count.load(Ordering::Relaxed)
    }

    /// True if anything was found damaged.
    pub(crate) fn has_damage(&self) -> bool {
        self.damaged() > 0 || self.damage.sections.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packed file has at most 1,024 heights, and a segment as many as its file has slots.
    #[test]
    fn results_of_the_checks_take_two_bits_a_record() {
        for span in [0, 1, 64, 65, 1024] {
            let Checked { intact, damage } = Checked::new(span);
            let bits = 64 * (intact.len() + damage.records.len());
            assert_eq!(bits, 2 * span.next_multiple_of(64) as usize, "{span}");
        }
    }

    #[test]
    fn damaged_record_stays_damaged_and_neighbours_are_independent() {
        let checked = Checked::new(70);
        assert!(!checked.is_intact(33) && !checked.is_damaged(33) && !checked.has_damage());
        checked.note_intact(33);
        assert!(checked.is_intact(33) && !checked.is_intact(32) && !checked.is_intact(34));
        checked.note_damaged(0, 33, "test");
        checked.note_damaged(0, 33, "test");
        checked.note_intact(33);
        assert!(checked.is_damaged(33) && !checked.is_intact(33));
        assert_eq!(checked.damaged(), 1);
        checked.note_intact(69);
        assert!(checked.is_intact(69));
        checked.note_intact(1000); // no such slot
        assert!(!checked.is_intact(1000) && !checked.is_damaged(1000));
    }
}
