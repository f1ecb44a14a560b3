//! Upstreams that gave the unsettled heights, and heights that the mirror source withdrew before they were published.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{Range, RangeInclusive};

/// Upstreams that gave the unsettled heights. It outlives sessions, so that a withdrawal finds heights of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Givers {
    /// Heights, ascending, and the places of their upstreams; `None`: stored before this process began.
    unsettled: VecDeque<(u64, Option<usize>)>,
    /// True once a session has begun.
    has_begun: bool,
    /// Heights that were withdrawn after they were requested, and that are not published yet.
    in_flight: BTreeSet<u64>,
}

impl Givers {
    /// Begins a session with these unsettled heights. Those without a place come from the store: it stays known who gave
    /// them to an earlier session.
    pub(super) fn begin(&mut self, unsettled: Vec<(u64, Option<usize>)>) {
        let known = std::mem::take(&mut self.unsettled);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let of = |(height, by): (u64, Option<usize>)| match by {
            Some(by) => Some((height, Some(by))),
            None if is_first => Some((height, None)),
            // A height that is not known was settled before newer ones were withdrawn. It stays.
            None => known.iter().find(|(at, _)| *at == height).copied(),
        };
        self.unsettled = unsettled.into_iter().filter_map(of).collect();
        self.in_flight.clear();
    }

    /// Notes the upstream of the next height.
    pub(super) fn gave(&mut self, height: u64, place: usize) {
        self.in_flight.remove(&height);
        self.unsettled.push_back((height, Some(place)));
    }

    /// Forgets heights that a header has settled.
    pub(super) fn settle(&mut self, settled: u64) {
        while self.unsettled.pop_front_if(|(height, _)| *height <= settled).is_some() {}
    }

    /// Returns the known upstreams of these heights.
    pub(super) fn of(&self, heights: RangeInclusive<u64>) -> impl Iterator<Item = (u64, usize)> {
        let within = self.unsettled.iter().filter(move |(height, _)| heights.contains(height));
        within.filter_map(|(height, by)| Some((*height, (*by)?)))
    }

    /// Returns the lowest height from `from` on that this upstream gave, or may have given to an earlier process. The
    /// latter come back with a known giver, so an upstream that did not give them withdraws them once only.
    pub(super) fn first_of(&self, place: usize, from: u64) -> Option<u64> {
        let is_its = |by: Option<usize>| by.is_none_or(|by| by == place);
        let mut from = self.unsettled.iter().filter(|(height, _)| *height >= from);
        from.find(|(_, by)| is_its(*by)).map(|(height, _)| *height)
    }

    /// Notes heights that are in flight and were withdrawn. There are as many as are requested at a time.
    pub(super) fn withdraw(&mut self, in_flight: Range<u64>) {
        self.in_flight.extend(in_flight);
    }

    /// True if a height was withdrawn after it was requested.
    pub(super) fn is_withdrawn(&self, height: u64) -> bool {
        self.in_flight.contains(&height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: usize = 1;

    #[test]
    fn stored_height_without_a_giver_is_withdrawn_once() {
        let mut givers = Givers::default();
        givers.begin(vec![(7, None), (8, None), (9, Some(0))]);
        assert_eq!([6, 8, 9].map(|from| givers.first_of(SOURCE, from)), [Some(7), Some(8), None]);
        // Withdrawn from 8 on. The node gave them again, and a header below them settles less.
        givers.begin(vec![(5, None), (6, None), (7, None)]);
        (8..10).for_each(|height| givers.gave(height, 0));
        assert_eq!([0, 8].map(|from| givers.first_of(SOURCE, from)), [Some(7), None]);
        givers.begin(vec![(3, None), (4, None), (5, None), (6, None)]);
        assert_eq!(givers.first_of(SOURCE, 0), None, "these were settled");
    }

    #[test]
    fn giver_of_an_earlier_session_is_known() {
        let mut givers = Givers::default();
        givers.begin(Vec::new());
        (1..=4).for_each(|height| givers.gave(height, usize::from(height == 3)));
        givers.settle(1);
        givers.begin(vec![(2, None), (3, None), (4, None)]);
        assert_eq!(givers.first_of(SOURCE, 0), Some(3));
        assert_eq!(givers.of(1..=3).collect::<Vec<_>>(), [(2, 0), (3, SOURCE)]);
    }
}
