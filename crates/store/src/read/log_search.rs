//! Finding logs by their terms.
//!
//! A criterion is a list of keys of which a log must have one. A log must meet all criteria. A search goes
//! through the heights in windows of limited size. So its memory is bounded for any criteria, and a
//! caller that stops early has paid only for the windows that it used. In a window the criterion with
//! the fewest postings gives the candidates, and the others remove some of them.
//!
//! Without an index, or for a single height, the search compares the terms in the records themselves. A
//! part that cannot be read is an error: an answer about logs may be absent, but must not be incomplete.
//!
//! A search says how many bytes it examines, and ends when its caller has seen enough.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use super::criteria::{Criteria, POSTING_BYTES};
use super::view::View;
use crate::format::Terms;
use crate::index::postings::Postings;
use crate::memory::residency;
use crate::memory::residency::Cold;
use crate::segment::{LogTest, Packed, PackedLogs, RecordRef, Segment};

/// Logs that a window has at most, unless a height has more: 128 Ki, or 1 MiB of candidates.
const WINDOW_LOGS: u32 = 1 << 17;
/// Packed heights that a thread which must not wait unpacks for one search.
const UNPACKED_INLINE: usize = 8;
/// Keys that such a thread looks up in the index of a packed file. More take a millisecond or two.
const KEYS_INLINE: usize = 256;

/// Reason why a search ends before its last height.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// A height is not in the store, or it cannot be read.
    #[error("the logs of height {height} cannot be read")]
    Unreadable {
        /// Height of the record.
        height: u64,
    },
    /// The search needs bytes that are not in memory, or takes too long for this thread.
    #[error(transparent)]
    Cold(#[from] Cold),
}

/// Index that stands for all logs of a packed height: no block has as many.
const WHOLE: u32 = u32::MAX;

/// A log that meets the criteria.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogAt {
    /// Height of the block.
    pub height: u64,
    /// Number among the block's logs.
    pub index: u32,
}

/// A part of the store that may have logs which meet the criteria.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    /// A log of an unpacked height, which may meet the criteria.
    Log(LogAt),
    /// A packed height, whose logs the caller unpacks ([`Candidates::unpack`]).
    Packed(u64),
}

impl Candidate {
    /// Height of the block.
    #[inline]
    pub fn height(self) -> u64 {
        match self {
            Self::Log(LogAt { height, .. }) | Self::Packed(height) => height,
        }
    }
}

impl LogAt {
    fn candidate(self) -> Candidate {
        if self.index == WHOLE { Candidate::Packed(self.height) } else { Candidate::Log(self) }
    }
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
    found: WindowLogs,
    taken: usize,
    /// Packed heights that were handed out so far.
    packed: usize,
}

/// Result of a window.
#[derive(Default)]
struct WindowLogs {
    /// Logs, and packed heights with [`WHOLE`]: of one size, so that most searches copy them only.
    logs: Vec<LogAt>,
    /// Bytes of the store that were examined for it.
    examined: usize,
}

impl Candidates {
    pub(crate) fn new(view: Arc<View>, heights: RangeInclusive<u64>, criteria: Criteria) -> Self {
        Self { view, criteria, heights, found: WindowLogs::default(), taken: 0, packed: 0 }
    }

    /// The record at `height`, also if it is no longer served.
    pub fn record(&self, height: u64) -> Result<Option<RecordRef>, Cold> {
        self.view.record(height)
    }

    /// Finds the logs of a packed height that `matches` accepts; returns the bytes that were unpacked.
    pub fn unpack(
        &self,
        height: u64,
        matches: &mut LogTest<'_>,
        out: &mut PackedLogs,
    ) -> Result<usize, SearchError> {
        let unreadable = SearchError::Unreadable { height };
        let holder = self.view.holder(height).ok_or(unreadable)?;
        holder.logs_of_packed(height, matches, out)?.ok_or(unreadable)
    }

    fn window(&mut self) -> Result<(), SearchError> {
        self.found.logs.clear();
        (self.found.examined, self.taken) = (0, 0);
        let (next, last) = (*self.heights.start(), *self.heights.end());
        // The archive's spans exclude many heights at once, without a look into a segment.
        if let Some(end) = self.view.end_without(&self.criteria, next) {
            self.heights = end..=last;
            return Ok(());
        }
        let segment = self.view.holder(next).ok_or(SearchError::Unreadable { height: next })?;
        // An archived segment may reach into the heights that the store has.
        let end = last.saturating_add(1).min(self.view.archived_end(next));
        let heights = next..end; // there is no height as great as that
        let end = segment.logs(heights, &self.criteria, &mut self.found)?;
        self.heights = end..=last;
        if segment.is_packed() {
            self.packed += self.found.logs.len();
            if self.packed > UNPACKED_INLINE {
                residency::not_here()?;
            }
        }
        Ok(())
    }

    /// Returns the next candidate, or the reason why the next height cannot be looked at; after that
    /// there is nothing.
    ///
    /// `examine` is told of the bytes that were examined, window by window. The search ends when it
    /// returns false.
    #[inline]
    pub fn next_examined(
        &mut self,
        examine: &dyn Fn(u64) -> bool,
    ) -> Option<Result<Candidate, SearchError>> {
        loop {
            if let Some(found) = self.found.logs.get(self.taken) {
                self.taken += 1;
                return Some(Ok(found.candidate()));
            }
            if self.heights.is_empty() {
                return None;
            }
            let looked_up = self.window();
            // Over: the logs of a window that was not finished would be an incomplete answer.
            if looked_up.is_err() || !examine(self.found.examined as u64) {
                self.found.logs.clear();
                self.heights = RangeInclusive::new(1, 0);
            }
            if let Err(error) = looked_up {
                return Some(Err(error));
            }
        }
    }
}

impl Candidates {
    /// Unpacks a height whole and compares the terms of its logs.
    fn scan_packed(&self, height: u64) -> Result<Vec<LogAt>, SearchError> {
        let record = self.view.record(height)?.ok_or(SearchError::Unreadable { height })?;
        let mut logs = WindowLogs::default();
        scan(&record, &self.criteria, &mut logs)?;
        Ok(logs.logs)
    }
}

impl Iterator for Candidates {
    type Item = Result<LogAt, SearchError>;

    /// The next log, or why the next height cannot be looked at; after that there is nothing. Packed
    /// heights are unpacked whole.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let height = match self.next_examined(&|_| true)? {
                Ok(Candidate::Log(log)) => return Some(Ok(log)),
                Ok(Candidate::Packed(height)) => height,
                Err(error) => return Some(Err(error)),
            };
            match self.scan_packed(height) {
                // Before the candidates behind this height, so that logs stay in order.
                Ok(logs) => _ = self.found.logs.splice(self.taken..self.taken, logs),
                Err(error) => {
                    self.heights = RangeInclusive::new(1, 0);
                    self.found.logs.clear();
                    return Some(Err(error));
                }
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
        found: &mut WindowLogs,
    ) -> Result<u64, SearchError> {
        let end = heights.end.min(self.end_height());
        if heights.start >= end {
            return Err(SearchError::Unreadable { height: heights.start });
        }
        let heights = heights.start..end;
        if let Some(packed) = self.as_packed() {
            return self.packed_logs(packed, heights, criteria, found);
        }
        // One height is not worth an index, which is read whole before its first use.
        let one = heights.end - heights.start == 1;
        if one || criteria.is_empty() {
            return self.scan(heights.start, criteria, found);
        }
        self.search_index(&heights, criteria, found)
    }

    /// Looks `heights` up in the index. If there is none, it compares the terms of the first.
    fn search_index(
        &self,
        heights: &Range<u64>,
        criteria: &Criteria,
        found: &mut WindowLogs,
    ) -> Result<u64, SearchError> {
        let slot = (heights.start - self.base()) as u32;
        let looked_up = self.logs.at(&self.map, slot, |first, index| {
            let run = self.base() + u64::from(first);
            look_up(&index, run, heights, criteria, found)
        });
        looked_up?.map_or_else(|| self.scan(heights.start, criteria, found), Ok)
    }

    /// The heights that have a key of each criterion, as the file's index says.
    #[cold]
    fn packed_logs(
        &self,
        packed: &Packed,
        heights: Range<u64>,
        criteria: &Criteria,
        found: &mut WindowLogs,
    ) -> Result<u64, SearchError> {
        let next = heights.start;
        let is_long = criteria.keys() > KEYS_INLINE;
        // So many keys take longer than unpacking one height, whose logs the caller compares with all of them.
        if criteria.is_empty() || is_long && heights.end - next == 1 {
            found.logs.push(LogAt { height: next, index: WHOLE });
            return Ok(next + 1);
        }
        if is_long {
            residency::not_here()?;
        }
        let candidates = self.packed_candidates(packed, &heights, criteria)?;
        found.examined += criteria.bytes() + candidates.len() * POSTING_BYTES;
        found.logs.extend(candidates.into_iter().map(|height| LogAt { height, index: WHOLE }));
        Ok(heights.end)
    }

    /// Finds the heights that the index names for the criteria; all of `heights` if it is damaged.
    fn packed_candidates(
        &self,
        packed: &Packed,
        heights: &Range<u64>,
        criteria: &Criteria,
    ) -> Result<Vec<u64>, Cold> {
        criteria.heights(packed, heights).or_else(|damage| {
            damage.unless_cold()?;
            // Without its index each height is unpacked: slower, and as complete.
            self.checked.note_sections(self.base(), &damage.to_string());
            Ok(heights.clone().collect())
        })
    }

    /// Compares the terms of all logs of one height.
    fn scan(
        &self,
        height: u64,
        criteria: &Criteria,
        found: &mut WindowLogs,
    ) -> Result<u64, SearchError> {
        let record = self.record(height)?.ok_or(SearchError::Unreadable { height })?;
        scan(&record, criteria, found)?;
        Ok(height + 1)
    }
}

/// Compares the terms of all logs of a record.
fn scan(record: &RecordRef, criteria: &Criteria, found: &mut WindowLogs) -> Result<(), Cold> {
    for (index, terms) in (0..).zip(record.terms()?) {
        found.examined += size_of::<Terms>();
        if criteria.are_met_by(&terms) {
            found.logs.push(LogAt { height: record.height(), index });
        }
    }
    Ok(())
}

/// Looks a window up in the index of the run that begins at height `run`.
fn look_up(
    index: &Postings<'_>,
    run: u64,
    heights: &Range<u64>,
    criteria: &Criteria,
    found: &mut WindowLogs,
) -> u64 {
    let before = |at: u64| index.before.get(at as usize).unwrap_or_default();
    let start = heights.start - run;
    let last = (heights.end - run).min(index.heights().into());
    // A window of so many logs, and at least of one height.
    let over = index.before.below((before(start) + 1).saturating_add(WINDOW_LOGS)) as u64;
    let end = (over - 1).clamp(start + 1, last);
    let mut at = start;
    let (ordinals, examined) = criteria.find(index, &(before(start)..before(end)));
    found.examined += examined;
    for ordinal in ordinals {
        while at + 1 < end && before(at + 1) <= ordinal {
            at += 1;
        }
        // A damaged run may have any numbers; the caller compares the log itself.
        let index = ordinal.saturating_sub(before(at));
        found.logs.push(LogAt { height: run + at, index });
    }
    run + end
}
