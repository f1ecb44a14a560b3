//! A reader of packed files beside the served range.

use std::ops::{Range, RangeInclusive};

use super::archived::{ArchivedPlace, ArchivedSegment, WithoutLogs};
use super::criteria::Criteria;
use super::reader::Reader;
use super::view::{Archived, View};
use crate::segment::Segment;

impl ArchivedSegment {
    /// Returns the heights, ascending, that may have a log with a key of each of the `criteria`.
    pub fn candidates(&self, criteria: &[Vec<u64>], heights: Range<u64>) -> Option<Vec<u64>> {
        Criteria::new(criteria.to_vec()).heights(self.0.as_packed()?, &heights).ok()
    }
}

impl Reader {
    /// True if each of the heights can be read.
    pub fn covers(&self, heights: &RangeInclusive<u64>) -> bool {
        covers(&self.view(), heights, None)
    }

    /// True if each of the heights can be read, or has no log of the criteria.
    pub fn covers_logs(&self, heights: &RangeInclusive<u64>, criteria: &Criteria) -> bool {
        covers(&self.view(), heights, Some(criteria))
    }

    /// Returns a reader of what is served now, of these packed files, and of heights known to have no logs.
    #[must_use]
    pub fn with_archived(
        &self,
        mut segments: Vec<ArchivedSegment>,
        places: Vec<ArchivedPlace>,
        without: Vec<WithoutLogs>,
    ) -> Self {
        segments.sort_by_key(|segment| segment.0.base());
        let of = |without: WithoutLogs| (Criteria::new(without.criteria), without.heights);
        let without = without.into_iter().map(of).collect();
        self.beside(Archived { base: self.view(), segments, places, without })
    }
}

fn covers(view: &View, heights: &RangeInclusive<u64>, criteria: Option<&Criteria>) -> bool {
    let mut next = *heights.start();
    while next <= *heights.end() {
        let without = criteria.and_then(|criteria| view.end_without(criteria, next));
        let holder = || view.holder(next).map(Segment::end_height).filter(|end| *end > next);
        match without.or_else(holder) {
            Some(end) => next = end,
            // A height that nothing has: the answer would be incomplete.
            None => return false,
        }
    }
    true
}
