//! Logs that match a filter, as slices of the stored receipts, or unpacked.
//!
//! A log matches by the node's rules (libevm, `eth/filters/filter.go`, `filterLogs`; coreth's are the same):
//!
//! - Its address is one of the filter's addresses, if there are any.
//! - It has at least as many topics as the filter has positions, also those at the end that take any topic.
//! - At each position its topic is one of the listed ones, if there are any.
//!
//! The node looks at the blooms of headers first. neve does not, because from Helicon on they are of other blocks.
//!
//! The store finds candidates by the keys of [`term`]. Keys are hashes, so each candidate's
//! address and topics are read from its text and compared.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::{mem, vec};

use bytes::Bytes;
use neve_store::residency::Cold;
use neve_store::{
    Candidate, Candidates, Criteria, LogAt, PackedLogs, Reader, SearchError, SegmentSlice,
};

use crate::parts::{self, RECEIPTS, SPANS};
use crate::raw_filter::{Event, RawFilter};
use crate::spans::SpansRef;
use crate::terms::term;

/// The logs of `heights` that are wanted, by height and position, each the text of its object
/// as the node shows it. Nothing is looked at before it is asked for.
///
/// A height that is not stored or cannot be read is an error and ends the search. The logs before it are then not
/// the whole answer.
pub fn logs(reader: &Reader, wanted: LogMatcher, heights: RangeInclusive<u64>) -> Logs {
    let candidates = reader.logs(heights, wanted.criteria());
    let (places, each) = (Vec::new(), Vec::new().into_iter());
    Logs { candidates, wanted, here: None, height: 0, places, each, examined: 0, ended: false }
}

/// Outcome of one step of a search.
#[derive(Debug)]
pub enum FoundLogs {
    /// A log in the store.
    Stored(SegmentSlice),
    /// Count of logs of a packed height, at least one. Their texts were appended.
    Appended(usize),
}

/// Text of a log.
#[derive(Debug, Clone)]
pub enum LogText {
    /// In the store.
    Stored(SegmentSlice),
    /// Unpacked into memory.
    Unpacked(Bytes),
}

impl LogText {
    /// Number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "no log has an empty text")]
    #[inline]
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }
}

impl AsRef<[u8]> for LogText {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Stored(slice) => slice.as_ref(),
            Self::Unpacked(bytes) => bytes,
        }
    }
}

/// Filter of logs, prepared once for any number of searches.
#[derive(Debug, Clone)]
pub struct LogMatcher(Arc<Prepared>);

#[derive(Debug)]
struct Prepared {
    filter: RawFilter,
    criteria: Criteria,
}

impl LogMatcher {
    /// Makes a filter ready.
    pub fn new(addresses: &[[u8; 20]], topics: &[Vec<[u8; 32]>]) -> Self {
        let criteria = Criteria::new(keys(addresses, topics));
        Self(Arc::new(Prepared { filter: RawFilter::new(addresses, topics), criteria }))
    }

    /// Keys that are looked up: a log has one of each list.
    pub fn criteria(&self) -> &Criteria {
        &self.0.criteria
    }

    /// True if all logs are wanted.
    fn takes_anything(&self) -> bool {
        self.0.criteria.lists().is_empty()
    }

    /// Number of addresses and topics that are looked up, at least one.
    pub fn terms(&self) -> u64 {
        self.0.criteria.lists().iter().map(|keys| keys.len() as u64).sum::<u64>().max(1)
    }

    /// Bytes that making a filter ready takes, the filter included.
    pub fn bytes_of(addresses: &[[u8; 20]], topics: &[Vec<[u8; 32]>]) -> usize {
        let each = |bytes: usize| bytes + 2 * bytes + size_of::<u64>(); // digits, and the key
        let topics: usize = topics.iter().map(Vec::len).sum();
        addresses.len() * each(20) + topics * each(32)
    }

    /// Bytes in memory, approximately.
    pub fn bytes(&self) -> usize {
        let Prepared { filter, criteria } = &*self.0;
        let keys = criteria.lists().iter().map(|keys| size_of_val(keys) + size_of_val(&keys[..]));
        size_of::<Prepared>() + filter.list_bytes() + keys.sum::<usize>()
    }
}

/// Iterator over the logs that match, as [`logs`] returns it.
pub struct Logs {
    candidates: Candidates,
    wanted: LogMatcher,
    /// Place where the last candidate was.
    here: Option<Here>,
    /// Height of the last candidate.
    height: u64,
    /// Places of the logs of the last packed height in the text that they were appended to.
    places: Vec<Range<usize>>,
    /// Logs of a packed height that were not handed out one by one yet.
    each: vec::IntoIter<Bytes>,
    /// Bytes that were examined and not reported yet.
    examined: u64,
    ended: bool,
}

impl Iterator for Logs {
    type Item = Result<LogText, SearchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(log) = self.each.next() {
            return Some(Ok(LogText::Unpacked(log)));
        }
        let mut text = Vec::new();
        match self.next_into(&mut text, true, &|_| true)? {
            Ok(FoundLogs::Stored(log)) => return Some(Ok(LogText::Stored(log))),
            Ok(FoundLogs::Appended(_)) => {}
            Err(error) => return Some(Err(error)),
        }
        let text = Bytes::from(text);
        let each: Vec<_> = self.places.iter().map(|place| text.slice(place.clone())).collect();
        self.each = each.into_iter();
        self.next()
    }
}

/// Bytes that a height counts as besides its logs: a page of its record.
const HEIGHT_BYTES: u64 = 4 << 10;
/// Bytes that one unpacked byte counts as: of fields, each of which is several bytes of text.
const UNPACKED_BYTES: u64 = 4;
/// Examined bytes are reported so many at a time: a report for each log would cost a tenth of a
/// search.
const REPORT_BYTES: u64 = 64 << 10;

impl Logs {
    /// Returns the next log. If it is of a packed height, the texts of all wanted logs of that height are
    /// appended to `out`, with commas between them, and before them unless they are the first of a list.
    /// `examine` is told of the bytes of postings and records that were examined; the search ends when it
    /// returns false.
    pub fn next_into(
        &mut self,
        out: &mut Vec<u8>,
        is_first: bool,
        examine: &dyn Fn(u64) -> bool,
    ) -> Option<Result<FoundLogs, SearchError>> {
        while !self.ended {
            if self.examined >= REPORT_BYTES && !examine(mem::take(&mut self.examined)) {
                break;
            }
            let Some(candidate) = self.candidates.next_examined(examine) else { break };
            let checked = candidate.and_then(|candidate| self.check(candidate, out, is_first));
            self.ended = checked.is_err();
            if let Some(found) = checked.transpose() {
                return Some(found);
            }
        }
        self.ended = true;
        examine(mem::take(&mut self.examined)); // there is nothing more to end
        None
    }

    /// Returns the height of the log that came last. All logs of the heights before it came earlier.
    pub fn height(&self) -> u64 {
        self.height
    }

    /// The candidate's text, if it matches; of a packed height the texts of all matching logs.
    fn check(
        &mut self,
        candidate: Candidate,
        out: &mut Vec<u8>,
        is_first: bool,
    ) -> Result<Option<FoundLogs>, SearchError> {
        self.height = candidate.height();
        let at = match candidate {
            Candidate::Log(at) => at,
            Candidate::Packed(height) => return self.unpack(height, out, is_first),
        };
        let log = self.stored_log(at)?;
        log.probe()?;
        // Also for a filter that takes any log: a text that is no log must not be returned as one.
        let unreadable = SearchError::Unreadable { height: at.height };
        let event = Event::read(log.as_ref()).ok_or(unreadable)?;
        let taken = self.wanted.0.filter.takes(&event);
        self.examined += log.len() as u64;
        Ok(taken.then_some(FoundLogs::Stored(log)))
    }

    /// The text of a log in the store. Goes on to the record of its height.
    fn stored_log(&mut self, at: LogAt) -> Result<SegmentSlice, SearchError> {
        let LogAt { height, index } = at;
        if self.here.as_ref().is_none_or(|here| here.height != height) {
            self.here = Here::at(&self.candidates, height)?;
            self.examined += HEIGHT_BYTES;
            // A filter that takes anything reads all receipts. Others read few logs, and must not
            // load a whole block for them.
            if let Some(here) = self.here.as_ref().filter(|_| self.wanted.takes_anything()) {
                here.probe()?;
            }
        }
        let log = self.here.as_ref().and_then(|here| here.log(index as usize));
        log.ok_or(SearchError::Unreadable { height })
    }
}

impl Logs {
    /// Appends the logs of a height that are wanted.
    #[cold]
    fn unpack(
        &mut self,
        height: u64,
        out: &mut Vec<u8>,
        is_first: bool,
    ) -> Result<Option<FoundLogs>, SearchError> {
        let before = out.len();
        if !is_first {
            out.push(b',');
        }
        let unpacked = self.unpack_logs(height, out);
        let found = self.places.len();
        // Without a log the comma before it goes, too.
        if unpacked.is_err() || found == 0 {
            out.truncate(before);
        }
        let (unpacked, text) = (unpacked? as u64, (out.len() - before) as u64);
        self.examined += HEIGHT_BYTES + unpacked * UNPACKED_BYTES + text;
        Ok((found > 0).then_some(FoundLogs::Appended(found)))
    }

    /// Appends them, and notes their places. Returns the bytes that were unpacked.
    fn unpack_logs(&mut self, height: u64, out: &mut Vec<u8>) -> Result<usize, SearchError> {
        let filter = &self.wanted.0.filter;
        // Both buffers go along and come back, so that no height allocates anew.
        let mut logs = PackedLogs { text: mem::take(out), found: mem::take(&mut self.places) };
        let mut takes =
            |address: &[u8; 20], topics: &[[u8; 32]]| filter.takes_bytes(address, topics);
        let unpacked = self.candidates.unpack(height, &mut takes, &mut logs);
        (*out, self.places) = (logs.text, logs.found);
        unpacked
    }
}

/// Parts of a record that a search reads.
struct Here {
    height: u64,
    spans: SegmentSlice,
    receipts: SegmentSlice,
}

impl Here {
    /// `None` if they are not stored in a form that is known here.
    fn at(candidates: &Candidates, height: u64) -> Result<Option<Self>, Cold> {
        let Some(record) = candidates.record(height)? else { return Ok(None) };
        let spans = parts::readable_part(&record, SPANS)?;
        let receipts = parts::uncompressed_part(&record, RECEIPTS);
        Ok(spans.zip(receipts).map(|(spans, receipts)| Self { height, spans, receipts }))
    }

    /// Probes all receipts: one question to the kernel instead of one for each page.
    fn probe(&self) -> Result<(), Cold> {
        self.receipts.probe()
    }

    fn log(&self, index: usize) -> Option<SegmentSlice> {
        let span = SpansRef(self.spans.as_ref()).log(index)?;
        Some(self.receipts.slice(span.at, span.at.checked_add(span.len)?))
    }
}

/// Keys to search the store for: a list for each place that does not take anything.
fn keys(addresses: &[[u8; 20]], topics: &[Vec<[u8; 32]>]) -> Vec<Vec<u64>> {
    let addresses = addresses.iter().map(|address| term(0, address)).collect();
    let of = |(topics, position): (&Vec<[u8; 32]>, u8)| {
        topics.iter().map(|topic| term(position, topic)).collect()
    };
    let topics = topics.iter().zip(1..).map(of);
    std::iter::once(addresses).chain(topics).filter(|keys: &Vec<u64>| !keys.is_empty()).collect()
}
