//! A reader of packed files beside the served range.

use std::ops::{Range, RangeInclusive};

use super::archived::{Archived, ArchivedPlace, ArchivedSegment};
use super::log_search::Criteria;
use super::reader::Reader;
use super::view::View;

impl ArchivedSegment {
    /// Returns the heights, ascending, that may have a log with a key of each of the `criteria`.
    pub fn candidates(&self, criteria: &[Vec<u64>], heights: Range<u64>) -> Option<Vec<u64>> {
        Criteria::new(criteria.to_vec()).heights(self.0.as_packed()?, &heights).ok()
    }
}

impl Reader {
    /// True if each of the heights can be read.
    pub fn covers(&self, heights: &RangeInclusive<u64>) -> bool {
        let (view, mut next) = (self.view(), *heights.start());
        while next <= *heights.end() {
            match view.holder(next) {
                Some(holder) if holder.end_height() > next => next = holder.end_height(),
                _ => return false,
            }
        }
        true
    }

    /// Returns a reader of what is served now and of these packed files.
    #[must_use]
    pub fn with_archived(
        &self,
        mut segments: Vec<ArchivedSegment>,
        places: Vec<ArchivedPlace>,
    ) -> Self {
        segments.sort_by_key(|segment| segment.0.base());
        let segments = segments.into_iter().map(|segment| segment.0).collect();
        self.over(|view| View { archived: Some(Box::new(Archived { segments, places })), ..view })
    }
}
