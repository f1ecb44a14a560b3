//! Logs that match a filter, as slices of the stored receipts.
//!
//! What matches is what the node says (libevm, `eth/filters/filter.go`, `filterLogs`; coreth's is
//! the same): the address is among the addresses, if there are any; the log has at least as many
//! topics as the filter has positions, those at the end that take anything included; and at each
//! position the topic is among the listed ones, if there are any. The node asks the blooms of
//! headers first; here they are not looked at, because from Helicon on they are other blocks'.
//!
//! The store finds candidates by the keys of [`parts::term`]. Keys are hashes, so each candidate's
//! address and topics are read from its text and compared.

use std::ops::RangeInclusive;
use std::sync::Arc;

use neve_jsonrpc::LogFilter;
use neve_store::{Candidates, LogAt, Reader, SegmentSlice, Unreadable};

use crate::parts::{self, RECEIPTS, SPANS, SpansRef};

/// The logs of `heights` that are wanted, by height and position, each the text of its object
/// as the node shows it. Nothing is looked at before it is asked for.
///
/// A height that is not stored or cannot be read is an error, and the end: what came before is
/// then not the whole answer.
pub fn logs(reader: &Reader, wanted: Wanted, heights: RangeInclusive<u64>) -> Logs {
    let candidates = reader.logs(heights, wanted.0.keys.clone());
    Logs { candidates, wanted, here: None, ended: false }
}

/// What is looked for, made ready once for any number of searches.
#[derive(Debug, Clone)]
pub struct Wanted(Arc<Prepared>);

#[derive(Debug)]
struct Prepared {
    filter: Filter,
    keys: Vec<Vec<u64>>,
}

impl Wanted {
    /// Makes a filter ready.
    pub fn new(filter: LogFilter) -> Self {
        let filter = Filter::new(filter);
        Self(Arc::new(Prepared { keys: filter.keys(), filter }))
    }

    /// What it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let Prepared { filter: Filter(filter), keys } = &*self.0;
        let keys = keys.iter().map(|keys| size_of_val(keys) + size_of_val(&keys[..]));
        let topics = filter.topics.iter().map(|list| size_of_val(list) + size_of_val(&list[..]));
        let addresses = size_of_val(&filter.addresses[..]);
        size_of::<Prepared>() + addresses + topics.sum::<usize>() + keys.sum::<usize>()
    }
}

/// See [`logs`].
pub struct Logs {
    candidates: Candidates,
    wanted: Wanted,
    /// Where the last candidate was.
    here: Option<Here>,
    ended: bool,
}

impl Iterator for Logs {
    type Item = Result<SegmentSlice, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let candidate = self.candidates.next()?;
            match candidate.and_then(|candidate| self.check(candidate)) {
                Ok(None) => {}
                Ok(Some(log)) => return Some(Ok(log)),
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl Logs {
    /// The candidate's text, if it is what is looked for.
    fn check(&mut self, candidate: LogAt) -> Result<Option<SegmentSlice>, Unreadable> {
        let LogAt { height, index } = candidate;
        if self.here.as_ref().is_none_or(|here| here.height != height) {
            self.here = Here::at(&self.candidates, height);
        }
        let log = self.here.as_ref().and_then(|here| here.log(index as usize));
        let log = log.ok_or(Unreadable { height })?;
        let event = Event::read(log.as_ref()).ok_or(Unreadable { height })?;
        Ok(self.wanted.0.filter.takes(&event).then_some(log))
    }
}

/// What is needed of a record.
struct Here {
    height: u64,
    spans: SegmentSlice,
    receipts: SegmentSlice,
}

impl Here {
    fn at(candidates: &Candidates, height: u64) -> Option<Self> {
        let record = candidates.record(height)?;
        let spans = parts::plain(&record, SPANS)?;
        let receipts = parts::plain(&record, RECEIPTS)?;
        Some(Self { height, spans, receipts })
    }

    fn log(&self, index: usize) -> Option<SegmentSlice> {
        let span = SpansRef(self.spans.as_ref()).log(index)?;
        Some(self.receipts.slice(span.at, span.at.checked_add(span.len)?))
    }
}

/// A filter whose lists are sorted, so that long ones cost little.
#[derive(Debug)]
struct Filter(LogFilter);

impl Filter {
    fn new(mut filter: LogFilter) -> Self {
        filter.addresses.sort_unstable();
        filter.topics.iter_mut().for_each(|topics| topics.sort_unstable());
        Self(filter)
    }

    /// What the store is asked for: a list for each place that does not take anything.
    fn keys(&self) -> Vec<Vec<u64>> {
        let LogFilter { addresses, topics } = &self.0;
        let addresses = addresses.iter().map(|address| parts::term(0, address)).collect();
        let of = |(topics, position): (&Vec<[u8; 32]>, u8)| {
            topics.iter().map(|topic| parts::term(position, topic)).collect()
        };
        let topics = topics.iter().zip(1..).map(of);
        std::iter::once(addresses)
            .chain(topics)
            .filter(|keys: &Vec<u64>| !keys.is_empty())
            .collect()
    }

    fn takes(&self, event: &Event) -> bool {
        let LogFilter { addresses, topics } = &self.0;
        let mut places = topics.iter().zip(&event.topics);
        (addresses.is_empty() || addresses.binary_search(&event.address).is_ok())
            && topics.len() <= event.topic_count
            && places
                .all(|(wanted, topic)| wanted.is_empty() || wanted.binary_search(topic).is_ok())
    }
}

/// What filters look at in a log.
struct Event {
    address: [u8; 20],
    topics: [[u8; 32]; 4],
    topic_count: usize,
}

impl Event {
    /// Reads the beginning of a log's text: `{"address":"0x…","topics":["0x…",…],`. Nothing else
    /// was stored (libevm, `core/types/gen_log_json.go`; `neve_chain` insists on it).
    fn read(text: &[u8]) -> Option<Self> {
        let (address, rest) = hex(text.strip_prefix(b"{\"address\":\"0x")?)?;
        let mut rest = rest.strip_prefix(b"\",\"topics\":[")?;
        let mut event = Self { address, topics: [[0; 32]; 4], topic_count: 0 };
        while !rest.starts_with(b"]") {
            if event.topic_count > 0 {
                rest = rest.strip_prefix(b",")?;
            }
            let (topic, behind) = hex(rest.strip_prefix(b"\"0x")?)?;
            *event.topics.get_mut(event.topic_count)? = topic;
            event.topic_count += 1;
            rest = behind.strip_prefix(b"\"")?;
        }
        Some(event)
    }
}

/// So many bytes in lower-case digits, and what is behind them.
fn hex<const N: usize>(text: &[u8]) -> Option<([u8; N], &[u8])> {
    let (digits, rest) = text.split_at_checked(2 * N)?;
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some((bytes, rest))
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"{\"address\":\"0x00112233445566778899aabbccddeeff01020304\",\
        \"topics\":[\"0x0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a\",\
        \"0x0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b\"],\"data\":\"0x\"}";

    fn takes(addresses: &[[u8; 20]], topics: &[&[[u8; 32]]]) -> bool {
        let topics = topics.iter().map(|topics| topics.to_vec()).collect();
        let filter = LogFilter { addresses: addresses.to_vec(), topics };
        Filter::new(filter).takes(&Event::read(TEXT).unwrap())
    }

    #[test]
    fn a_log_is_taken_as_the_node_says() {
        let address = Event::read(TEXT).unwrap().address;
        assert_eq!(address[..4], [0x00, 0x11, 0x22, 0x33]);
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
            let mut bad = TEXT.to_vec();
            bad[at] = b'G';
            assert!(Event::read(&bad).is_none(), "byte {at}");
            assert!(Event::read(&TEXT[..at]).is_none(), "{at} bytes");
        }
    }
}
