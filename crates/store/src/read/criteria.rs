//! Criteria of a search for logs, and the postings that meet them.

use std::ops::Range;
use std::sync::Arc;

use crate::format::Terms;
use crate::index::postings::{Postings, U32List};
use crate::segment::{Packed, PackedDamage};

/// Testing one candidate in one list costs about as much as copying so many postings.
const PROBE_COST: usize = 16;
/// Bytes that one posting, or one test of a candidate, counts as.
pub(super) const POSTING_BYTES: usize = size_of::<u32>();
/// Bytes that looking a key up counts as: its entry in the directory of an index.
const KEY_BYTES: usize = 16;

#[cfg(test)]
thread_local! {
    /// Criteria that the thread prepared.
    pub(crate) static PREPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Criteria for a log: one key of each list. They are prepared once for any number of searches, and a clone shares
/// the lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Criteria(Arc<[Vec<u64>]>);

impl Criteria {
    /// Prepares lists of keys: sorted, each key once, without zeros.
    pub fn new(mut criteria: Vec<Vec<u64>>) -> Self {
        for keys in &mut criteria {
            keys.sort_unstable();
            keys.dedup();
            keys.retain(|key| *key != 0); // it stands for an absent term
        }
        #[cfg(test)]
        PREPARED.set(PREPARED.get() + 1);
        Self(criteria.into())
    }

    /// Returns the lists of keys, each ascending.
    pub fn lists(&self) -> &[Vec<u64>] {
        &self.0
    }

    /// The heights of a packed file, ascending, that may have a log of each criterion.
    pub(super) fn heights(
        &self,
        packed: &Packed,
        within: &Range<u64>,
    ) -> Result<Vec<u64>, PackedDamage> {
        let mut all: Option<Vec<u64>> = None;
        for keys in &*self.0 {
            let before = all.as_ref();
            let is_left = |height: &u64| before.is_none_or(|all| all.binary_search(height).is_ok());
            let mut of_one = packed.heights_of_terms(keys)?;
            of_one.retain(|height| within.contains(height) && is_left(height));
            if of_one.is_empty() {
                return Ok(of_one);
            }
            all = Some(of_one);
        }
        Ok(all.unwrap_or_else(|| within.clone().collect()))
    }

    /// True if all logs meet them.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of keys.
    pub(super) fn keys(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Bytes that looking the keys up counts as.
    pub(super) fn bytes(&self) -> usize {
        self.keys() * KEY_BYTES
    }

    pub(super) fn are_met_by(&self, terms: &Terms) -> bool {
        let has_one = |keys: &Vec<u64>| terms.iter().any(|key| keys.binary_search(key).is_ok());
        self.0.iter().all(has_one)
    }

    /// The logs of `index` within a range of ordinals that meet all criteria, ascending, and the
    /// bytes examined for them.
    pub(super) fn find(&self, index: &Postings<'_>, within: &Range<u32>) -> (Vec<u32>, usize) {
        let lists = |keys: &Vec<u64>| -> Vec<U32List<'_>> {
            let of_key = keys.iter().map(|key| index.of(*key).within(within));
            of_key.filter(|list| list.len() > 0).collect()
        };
        let mut plan: Vec<Vec<U32List<'_>>> = self.0.iter().map(lists).collect();
        // The rarest first: each other list is only probed for what it left.
        plan.sort_by_key(|lists| total(lists));
        let postings: usize = plan.iter().map(|lists| total(lists)).sum();
        let mut plan = plan.iter();
        let mut found = plan.next().map(|rarest| union(rarest)).unwrap_or_default();
        plan.for_each(|lists| thin_out(&mut found, lists));
        (found, self.bytes() + postings * POSTING_BYTES)
    }
}

fn total(lists: &[U32List<'_>]) -> usize {
    lists.iter().map(U32List::len).sum()
}

/// The ordinals of all lists, ascending, each once.
fn union(lists: &[U32List<'_>]) -> Vec<u32> {
    let mut all = Vec::with_capacity(total(lists));
    lists.iter().for_each(|list| all.extend(list.iter()));
    if lists.len() > 1 {
        all.sort_unstable();
        all.dedup();
    }
    all
}

/// Keeps what is in one of `lists`.
fn thin_out(found: &mut Vec<u32>, lists: &[U32List<'_>]) {
    // A probe is a binary search: for few candidates it reads less than a pass over the lists.
    if found.len() * lists.len() * PROBE_COST < total(lists) {
        return found.retain(|ordinal| lists.iter().any(|list| list.contains(*ordinal)));
    }
    let mut other = union(lists).into_iter().peekable();
    found.retain(|ordinal| {
        while other.next_if(|other| other < ordinal).is_some() {}
        other.peek() == Some(ordinal)
    });
}
