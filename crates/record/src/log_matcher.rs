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
        let topics = filter.topics.iter().map(|list| size_of_val(list) + size_of_val(&list[..]));
        let addresses = size_of_val(&filter.addresses[..]);
        size_of::<Prepared>() + addresses + topics.sum::<usize>() + keys.sum::<usize>()
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
            match candidate.and_then(|candidate| self.check(candidate, out, is_first)) {
                Ok(None) => {}
                Ok(Some(found)) => return Some(Ok(found)),
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
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
        let LogAt { height, index } = match candidate {
            Candidate::Log(at) => at,
            Candidate::Packed(height) => return self.unpack(height, out, is_first),
        };
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
        let log = log.ok_or(SearchError::Unreadable { height })?;
        log.probe()?;
        // Also for a filter that takes any log: a text that is no log must not be returned as one.
        let event = Event::read(log.as_ref()).ok_or(SearchError::Unreadable { height })?;
        let taken = self.wanted.0.filter.takes(&event);
        self.examined += log.len() as u64;
        Ok(taken.then_some(FoundLogs::Stored(log)))
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
        let (filter, before) = (&self.wanted.0.filter, out.len());
        if !is_first {
            out.push(b',');
        }
        // Both buffers go along and come back, so that no height allocates anew.
        let mut logs = PackedLogs { text: mem::take(out), found: mem::take(&mut self.places) };
        let mut takes =
            |address: &[u8; 20], topics: &[[u8; 32]]| filter.takes_bytes(address, topics);
        let unpacked = self.candidates.unpack(height, &mut takes, &mut logs);
        (*out, self.places) = (logs.text, logs.found);
        let found = self.places.len();
        // Without a log the comma before it goes, too.
        if unpacked.is_err() || found == 0 {
            out.truncate(before);
        }
        let (unpacked, text) = (unpacked? as u64, (out.len() - before) as u64);
        self.examined += HEIGHT_BYTES + unpacked * UNPACKED_BYTES + text;
        Ok((found > 0).then_some(FoundLogs::Appended(found)))
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

/// A filter as text, like the logs: hexadecimal digits need not be read to be compared. Lists are
/// sorted, so that long ones cost little.
#[derive(Debug)]
struct RawFilter {
    addresses: Vec<Hex<40>>,
    topics: Vec<Vec<Hex<64>>>,
}

/// `N` digits in lower case.
type Hex<const N: usize> = [u8; N];

impl RawFilter {
    fn new(addresses: &[[u8; 20]], topics: &[Vec<[u8; 32]>]) -> Self {
        let topics = topics.iter().map(|topics| sorted(topics));
        Self { addresses: sorted(addresses), topics: topics.collect() }
    }

    fn takes(&self, event: &Event<'_>) -> bool {
        let Self { addresses, topics } = self;
        let mut places = topics.iter().zip(&event.topics);
        topics.len() <= event.topic_count
            && has(addresses, event.address)
            && places.all(|(wanted, topic)| has(wanted, topic))
    }
}

impl RawFilter {
    /// True if the filter takes a log that is unpacked.
    fn takes_bytes(&self, address: &[u8; 20], topics: &[[u8; 32]]) -> bool {
        let Self { addresses, topics: wanted } = self;
        let mut places = wanted.iter().zip(topics);
        wanted.len() <= topics.len()
            && (addresses.is_empty() || has(addresses, &digits(address)))
            && places.all(|(wanted, topic)| wanted.is_empty() || has(wanted, &digits(topic)))
    }
}

/// True if the list has `found`, or is empty, which takes anything.
fn has<const N: usize>(list: &[Hex<N>], found: &Hex<N>) -> bool {
    list.is_empty() || list.binary_search(found).is_ok()
}

/// The digits of each, ascending.
fn sorted<const BYTES: usize, const DIGITS: usize>(list: &[[u8; BYTES]]) -> Vec<Hex<DIGITS>> {
    let mut list: Vec<Hex<DIGITS>> = list.iter().map(digits).collect();
    list.sort_unstable();
    list
}

fn digits<const BYTES: usize, const DIGITS: usize>(bytes: &[u8; BYTES]) -> Hex<DIGITS> {
    const { assert!(DIGITS == 2 * BYTES, "two digits a byte") };
    let mut text = [0; DIGITS];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    text
}

fn digit(value: u8) -> u8 {
    b"0123456789abcdef"[usize::from(value)]
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

/// Fields of a log that filters compare.
struct Event<'t> {
    address: &'t Hex<40>,
    topics: [&'t Hex<64>; 4],
    topic_count: usize,
}

impl<'t> Event<'t> {
    /// Reads the beginning of a log's text: `{"address":"0x…","topics":["0x…",…],`. Nothing else
    /// was stored (libevm, `core/types/gen_log_json.go`; `neve_chain` insists on it, and on
    /// digits).
    fn read(text: &'t [u8]) -> Option<Self> {
        const NONE: &Hex<64> = &[0; 64];
        let (address, rest) = text.strip_prefix(b"{\"address\":\"0x")?.split_first_chunk()?;
        let mut rest = rest.strip_prefix(b"\",\"topics\":[")?;
        let mut event = Self { address, topics: [NONE; 4], topic_count: 0 };
        while !rest.starts_with(b"]") {
            if event.topic_count > 0 {
                rest = rest.strip_prefix(b",")?;
            }
            let (topic, behind) = rest.strip_prefix(b"\"0x")?.split_first_chunk()?;
            *event.topics.get_mut(event.topic_count)? = topic;
            event.topic_count += 1;
            rest = behind.strip_prefix(b"\"")?;
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"{\"address\":\"0x00112233445566778899aabbccddeeff01020304\",\
        \"topics\":[\"0x0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a\",\
        \"0x0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b\"],\"data\":\"0x\"}";

    const ADDRESS: [u8; 20] =
        *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff\x01\x02\x03\x04";

    fn takes(addresses: &[[u8; 20]], topics: &[&[[u8; 32]]]) -> bool {
        let topics: Vec<_> = topics.iter().map(|topics| topics.to_vec()).collect();
        let event = Event::read(TEXT).unwrap();
        let unhex = |digits: &[u8; 64]| -> [u8; 32] {
            let text = str::from_utf8(digits).unwrap();
            std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
        };
        let of_log: Vec<_> =
            event.topics[..event.topic_count].iter().map(|one| unhex(one)).collect();
        let unpacked = RawFilter::new(addresses, &topics).takes_bytes(&ADDRESS, &of_log);
        assert_eq!(RawFilter::new(addresses, &topics).takes(&event), unpacked);
        unpacked
    }

    #[test]
    fn a_log_is_taken_as_the_node_says() {
        let address = ADDRESS;
        let (a, b, c) = ([0x0a; 32], [0x0b; 32], [0x0c; 32]);
        assert!(takes(&[], &[]));
        assert!(takes(&[[9; 20], address], &[&[c, a], &[]]));
        assert!(takes(&[address], &[&[], &[b, c]]));
        assert!(!takes(&[[9; 20]], &[]));
        assert!(!takes(&[], &[&[b]]));
        assert!(!takes(&[], &[&[a], &[a]]));
        // More positions than the log has topics, though they take anything.
        assert!(takes(&[], &[&[], &[]]));
        assert!(!takes(&[], &[&[], &[], &[]]));
        assert!(!takes(&[], &[&[], &[], &[], &[], &[]]));
    }

    #[test]
    fn text_of_another_form_is_not_read() {
        let end = TEXT.iter().position(|byte| *byte == b']').unwrap();
        for at in 0..=end {
            assert!(Event::read(&TEXT[..at]).is_none(), "{at} bytes");
            // Digits are not looked at: they were when the log was stored.
            if !TEXT[at].is_ascii_hexdigit() || TEXT[at - 1] == b'"' || at < 10 {
                let mut bad = TEXT.to_vec();
                bad[at] = b'G';
                assert!(Event::read(&bad).is_none(), "byte {at}");
            }
        }
    }
}
