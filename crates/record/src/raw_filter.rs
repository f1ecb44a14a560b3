//! Comparison of a log, as text or unpacked, with the addresses and topics of a filter.

/// A filter as text, like the logs: hexadecimal digits need not be read to be compared. Lists are
/// sorted, so that long ones cost little.
#[derive(Debug)]
pub(crate) struct RawFilter {
    addresses: Vec<Hex<40>>,
    topics: Vec<Vec<Hex<64>>>,
}

/// `N` digits in lower case.
type Hex<const N: usize> = [u8; N];

impl RawFilter {
    pub(crate) fn new(addresses: &[[u8; 20]], topics: &[Vec<[u8; 32]>]) -> Self {
        let topics = topics.iter().map(|topics| sorted(topics));
        Self { addresses: sorted(addresses), topics: topics.collect() }
    }

    /// Bytes that its lists take in memory, approximately.
    pub(crate) fn list_bytes(&self) -> usize {
        let topics = self.topics.iter().map(|list| size_of_val(list) + size_of_val(&list[..]));
        size_of_val(&self.addresses[..]) + topics.sum::<usize>()
    }

    pub(crate) fn takes(&self, event: &Event<'_>) -> bool {
        let Self { addresses, topics } = self;
        let mut places = topics.iter().zip(&event.topics);
        topics.len() <= event.topic_count
            && has(addresses, event.address)
            && places.all(|(wanted, topic)| has(wanted, topic))
    }
}

impl RawFilter {
    /// True if the filter takes a log that is unpacked.
    pub(crate) fn takes_bytes(&self, address: &[u8; 20], topics: &[[u8; 32]]) -> bool {
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

/// Fields of a log that filters compare.
pub(crate) struct Event<'t> {
    address: &'t Hex<40>,
    topics: [&'t Hex<64>; 4],
    topic_count: usize,
}

impl<'t> Event<'t> {
    /// Reads the beginning of a log's text: `{"address":"0x…","topics":["0x…",…],`. Nothing else
    /// was stored (libevm, `core/types/gen_log_json.go`; `neve_chain` insists on it, and on
    /// digits).
    pub(crate) fn read(text: &'t [u8]) -> Option<Self> {
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
