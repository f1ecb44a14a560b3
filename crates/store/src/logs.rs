//! Finding logs by their terms.
//!
//! A criterion is a list of keys of which a log must have one; a log must meet all criteria. The
//! heights are gone through in windows of limited size, so that memory is bounded whatever is
//! asked, and whoever stops early has paid for what was used. In a window the criterion with the
//! fewest postings gives the candidates, and the others thin them out.
//!
//! Where there is no index, or but one height to look at, the terms in the records themselves are
//! compared. What cannot be read is an error: an answer about logs may be
//! missing, but must not be incomplete.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use crate::format::Terms;
use crate::postings::{Postings, Words};
use crate::segment::{RecordRef, Segment};
use crate::view::View;

/// Logs that a window has at most, unless a height has more: 128 Ki, or 1 MiB of candidates.
const WINDOW_LOGS: u32 = 1 << 17;
/// Testing one candidate in one list costs about as much as copying so many postings.
const PROBE_COST: usize = 16;

/// A height whose logs cannot be looked at: it is not in the store, or it cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the logs of height {height} cannot be read")]
pub struct Unreadable {
    /// The height.
    pub height: u64,
}

/// A log that meets the criteria.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogAt {
    /// Its block's height.
    pub height: u64,
    /// Its number among the block's logs.
    pub index: u32,
}

/// What a log must have: one key of each list. Lists are sorted and without zeros.
pub(crate) struct Criteria(Vec<Vec<u64>>);

impl Criteria {
    fn new(mut criteria: Vec<Vec<u64>>) -> Self {
        for keys in &mut criteria {
            keys.sort_unstable();
            keys.dedup();
            keys.retain(|key| *key != 0); // it stands for an absent term
        }
        Self(criteria)
    }

    fn are_met_by(&self, terms: &Terms) -> bool {
        let has_one = |keys: &Vec<u64>| terms.iter().any(|key| keys.binary_search(key).is_ok());
        self.0.iter().all(has_one)
    }

    /// The logs of `index` within a range of ordinals that meet all criteria, ascending.
    fn find(&self, index: &Postings<'_>, within: &Range<u32>) -> Vec<u32> {
        let lists = |keys: &Vec<u64>| -> Vec<Words<'_>> {
            let of_key = keys.iter().map(|key| index.of(*key).within(within));
            of_key.filter(|list| list.len() > 0).collect()
        };
        let mut plan: Vec<Vec<Words<'_>>> = self.0.iter().map(lists).collect();
        plan.sort_by_key(|lists| total(lists));
        let mut plan = plan.iter();
        let mut found = plan.next().map(|rarest| union(rarest)).unwrap_or_default();
        plan.for_each(|lists| thin_out(&mut found, lists));
        found
    }
}

fn total(lists: &[Words<'_>]) -> usize {
    lists.iter().map(Words::len).sum()
}

/// The ordinals of all lists, ascending, each once.
fn union(lists: &[Words<'_>]) -> Vec<u32> {
    let mut all = Vec::with_capacity(total(lists));
    lists.iter().for_each(|list| all.extend(list.iter()));
    if lists.len() > 1 {
        all.sort_unstable();
        all.dedup();
    }
    all
}

/// Keeps what is in one of `lists`.
fn thin_out(found: &mut Vec<u32>, lists: &[Words<'_>]) {
    if found.len() * lists.len() * PROBE_COST < total(lists) {
        return found.retain(|ordinal| lists.iter().any(|list| list.contains(*ordinal)));
    }
    let mut other = union(lists).into_iter().peekable();
    found.retain(|ordinal| {
        while other.next_if(|other| other < ordinal).is_some() {}
        other.peek() == Some(ordinal)
    });
}

/// The logs of a range of heights that meet some criteria; see [`crate::Reader::logs`].
///
/// It holds the segments that were there when it was made: what is evicted or withdrawn meanwhile
/// is still found and read.
pub struct Candidates {
    view: Arc<View>,
    criteria: Criteria,
    /// Those behind the last window.
    heights: RangeInclusive<u64>,
    /// The last window's, of which those from `taken` on were not handed out yet.
    found: Vec<LogAt>,
    taken: usize,
}

impl Candidates {
    pub(crate) fn new(
        view: Arc<View>,
        heights: RangeInclusive<u64>,
        criteria: Vec<Vec<u64>>,
    ) -> Self {
        Self { view, criteria: Criteria::new(criteria), heights, found: Vec::new(), taken: 0 }
    }

    /// The record at `height`, also if it is no longer served.
    pub fn record(&self, height: u64) -> Option<RecordRef> {
        self.view.record(height)
    }

    fn window(&mut self) -> Result<(), Unreadable> {
        self.found.clear();
        self.taken = 0;
        let (next, last) = (*self.heights.start(), *self.heights.end());
        let segment = self.view.holder(next).ok_or(Unreadable { height: next })?;
        let heights = next..last.saturating_add(1); // there is no height as great as that
        let end = segment.logs(heights, &self.criteria, &mut self.found)?;
        self.heights = end..=last;
        Ok(())
    }
}

impl Iterator for Candidates {
    type Item = Result<LogAt, Unreadable>;

    /// The next log, or why the next height cannot be looked at; after that there is nothing.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.found.get(self.taken) {
                self.taken += 1;
                return Some(Ok(*found));
            }
            if self.heights.is_empty() {
                return None;
            }
            if let Err(error) = self.window() {
                self.heights = RangeInclusive::new(1, 0);
                return Some(Err(error));
            }
        }
    }
}

impl Segment {
    /// Looks at the first of `heights`, and as many more as make a window; returns where it ended.
    fn logs(
        &self,
        heights: Range<u64>,
        criteria: &Criteria,
        found: &mut Vec<LogAt>,
    ) -> Result<u64, Unreadable> {
        let end = heights.end.min(self.end_height());
        if heights.start >= end {
            return Err(Unreadable { height: heights.start });
        }
        let heights = heights.start..end;
        // One height is not worth an index, which is read whole before its first use.
        let one = heights.end - heights.start == 1;
        if one || criteria.0.is_empty() {
            return self.scan(heights.start, criteria, found);
        }
        let slot = (heights.start - self.base()) as u32;
        let looked_up = self.logs.at(&self.map, slot, |first, index| {
            let stretch = self.base() + u64::from(first);
            look_up(&index, stretch, &heights, criteria, found)
        });
        looked_up.map_or_else(|| self.scan(heights.start, criteria, found), Ok)
    }

    /// Compares the terms of all logs of one height.
    fn scan(
        &self,
        height: u64,
        criteria: &Criteria,
        found: &mut Vec<LogAt>,
    ) -> Result<u64, Unreadable> {
        let record = self.record(height).ok_or(Unreadable { height })?;
        let terms = (0..).zip(record.terms());
        let met = terms.filter(|(_, terms)| criteria.are_met_by(terms));
        found.extend(met.map(|(index, _)| LogAt { height, index }));
        Ok(height + 1)
    }
}

/// Looks a window up in the index of the stretch that begins at height `stretch`.
fn look_up(
    index: &Postings<'_>,
    stretch: u64,
    heights: &Range<u64>,
    criteria: &Criteria,
    found: &mut Vec<LogAt>,
) -> u64 {
    let before = |at: u64| index.before.get(at as usize).unwrap_or_default();
    let start = heights.start - stretch;
    let last = (heights.end - stretch).min(index.heights().into());
    let over = index.before.below((before(start) + 1).saturating_add(WINDOW_LOGS)) as u64;
    let end = (over - 1).clamp(start + 1, last);
    let mut at = start;
    for ordinal in criteria.find(index, &(before(start)..before(end))) {
        while at + 1 < end && before(at + 1) <= ordinal {
            at += 1;
        }
        found.push(LogAt { height: stretch + at, index: ordinal.saturating_sub(before(at)) });
    }
    stretch + end
}
