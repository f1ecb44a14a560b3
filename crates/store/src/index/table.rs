//! Hash table of a sealed segment, as bytes.
//!
//! ```text
//! 0   homes   u64
//! 8   count   u64
//! 16  entries, each: first 8 bytes of the hash u64, locator + 1 u64 (0: empty)
//! ```
//!
//! Entries stand in ascending order, each at its home or, if that is taken, at the first place
//! after the entry before it; gaps are empty. Reading one from front to back gives its entries in
//! order, so that any number of tables merge in a single pass over each, with no more memory than a
//! buffer. There is no wrapping: the last entries may stand after the last home.

use std::sync::OnceLock;

use super::active_table::{Entry, Locator, home, homes_for, prefix};
use crate::format::{array, le_u64};
use crate::id::Hash;
use crate::memory::residency::Cold;
use crate::memory::{Map, residency};

const TABLE_HEAD: usize = 16;
const ENTRY_LEN: usize = 16;

/// A table's bytes, as found in a file. Whatever they are, looking up ends and does not panic.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    homes: u64,
    entries: &'a [u8],
    /// The map that they are of, where [`residency`] is minded.
    map: Option<&'a Map>,
}

impl<'a> Table<'a> {
    /// Table over bytes that may be touched.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        match bytes.split_at_checked(TABLE_HEAD) {
            Some((head, entries)) => Self { homes: le_u64(head, 0), entries, map: None },
            None => Self { homes: 0, entries: &[], map: None },
        }
    }

    /// Table over bytes of a map, whose number of homes is remembered once its head was read: that
    /// lies on a page of its own.
    pub(crate) fn remembered(
        map: &'a Map,
        bytes: &'a [u8],
        homes: &OnceLock<u64>,
    ) -> Result<Self, Cold> {
        let Some((head, entries)) = bytes.split_at_checked(TABLE_HEAD) else {
            return Ok(Self::new(&[]));
        };
        let homes = if let Some(homes) = homes.get() {
            *homes
        } else {
            let head = residency::read_array::<TABLE_HEAD>(map, head)?;
            *homes.get_or_init(|| le_u64(&head, 0))
        };
        Ok(Self { homes, entries, map: Some(map) })
    }

    fn places(&self) -> usize {
        self.entries.len() / ENTRY_LEN
    }

    /// The bytes of place `at`, which a damaged table's head may put anywhere.
    fn place(&self, at: usize) -> Option<Result<[u8; ENTRY_LEN], Cold>> {
        let from = at.checked_mul(ENTRY_LEN)?;
        let place = self.entries.get(from..from.checked_add(ENTRY_LEN)?)?;
        Some(match self.map {
            Some(map) => residency::read_array(map, place),
            None => Ok(array(place, 0)),
        })
    }

    fn entry(&self, at: usize) -> Option<Result<Entry, Cold>> {
        match self.place(at)? {
            Ok(place) => Some(Ok((le_u64(&place, 0), Locator::from_stored(le_u64(&place, 8))?))),
            Err(cold) => Some(Err(cold)),
        }
    }

    /// Reads the entry at the home of `hash`, for the side effect on the cache.
    pub(crate) fn first_prefix(&self, hash: &Hash) -> Result<u64, Cold> {
        let first = self.place(home(prefix(hash), self.homes)).transpose()?;
        Ok(first.map_or(0, |entry| le_u64(&entry, 0)))
    }

    /// Passes each candidate for `hash` to `found` until that returns something.
    pub(crate) fn find<T>(
        &self,
        hash: &Hash,
        mut found: impl FnMut(Locator) -> Option<Result<T, Cold>>,
    ) -> Option<Result<T, Cold>> {
        let wanted = prefix(hash);
        for at in home(wanted, self.homes)..self.places() {
            // An empty place ends the search: an entry is moved only past places that are taken.
            let (prefix, locator) = match self.entry(at)? {
                Ok(entry) => entry,
                Err(cold) => return Some(Err(cold)),
            };
            // Entries ascend: behind a larger one there is none of this prefix.
            if prefix > wanted {
                return None;
            }
            if prefix == wanted
                && let Some(found) = found(locator)
            {
                return Some(found);
            }
        }
        None
    }

    /// All entries, in order if the table is intact. Those that the disk does not deliver are absent.
    pub(crate) fn entries(self) -> impl Iterator<Item = Entry> + 'a {
        (0..self.places()).filter_map(move |at| self.entry(at)?.ok())
    }
}

/// The bytes of the table of `entries`, which are sorted.
pub(crate) fn build(entries: &[Entry]) -> Vec<u8> {
    let homes = homes_for(entries.len()) as u64;
    let mut bytes = pair(homes, entries.len() as u64).to_vec();
    let mut next = 0;
    for (prefix, locator) in entries {
        // No entry stands before its home, or a look-up would not meet it.
        let place = home(*prefix, homes).max(next);
        bytes.resize(TABLE_HEAD + place * ENTRY_LEN, 0);
        bytes.extend_from_slice(&pair(*prefix, locator.stored()));
        next = place + 1;
    }
    bytes
}

fn pair(first: u64, second: u64) -> [u8; ENTRY_LEN] {
    let mut bytes = [0; ENTRY_LEN];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A third of them have the same prefix, at the very end of the table.
    fn entries(count: u64) -> Vec<Entry> {
        let prefix = |seed: u64| if seed.is_multiple_of(3) { u64::MAX } else { seed << 48 };
        let mut all: Vec<Entry> =
            (0..count).map(|seed| (prefix(seed), Locator::transaction(seed, 3))).collect();
        all.sort_unstable();
        all
    }

    fn hash(prefix: u64) -> Hash {
        let mut hash = Hash([7; 32]);
        hash.0[..8].copy_from_slice(&prefix.to_le_bytes());
        hash
    }

    fn assert_finds_all(bytes: &[u8], all: &[Entry]) {
        for (prefix, wanted) in all {
            let same = |found: Locator| (found == *wanted).then_some(Ok(()));
            assert!(Table::new(bytes).find(&hash(*prefix), same).is_some(), "{wanted:?}");
        }
    }

    #[test]
    fn table_finds_exactly_its_entries() {
        let all = entries(if cfg!(miri) { 150 } else { 5000 });
        let bytes = build(&all);
        assert_finds_all(&bytes, &all);
        assert_eq!(Table::new(&bytes).find(&hash(12345), |_| Some(Ok(()))), None);
    }

    #[test]
    fn damaged_bytes_neither_panic_nor_hang() {
        for bytes in [vec![], vec![1; 15], vec![0xff; 16], vec![0xff; 4096], vec![0; 4096]] {
            assert_eq!(Table::new(&bytes).find::<()>(&hash(u64::MAX), |_| None), None);
            assert!(Table::new(&bytes).first_prefix(&hash(u64::MAX)).is_ok());
            assert!(Table::new(&bytes).entries().count() <= 255);
        }
    }
}
