//! The object by which logs are asked for: `FilterCriteria` of coreth's and libevm's
//! eth/filters/api.go.

use crate::arguments::{
    DecodeError, Decoded, LogBound, LogFilter, LogRange, block_number, decoded_hex, hash, kind,
    not_finite,
};
use crate::error::{NoQuery, RpcError};
use crate::json::{SyntaxScanner, elements, is_key, members};
use crate::method::Rules;

/// Filter of logs, and the blocks to search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    /// Blocks to search.
    pub range: LogRange,
    /// Filter of logs.
    pub filter: LogFilter,
}

/// Highest number of positions of topics.
pub(crate) const TOPICS_MAX: usize = 4;
/// Highest number of addresses, before Helicon.
const ADDRESSES_MAX: usize = 1000;

/// Checks of `eth_getLogs` that do not need the head.
pub(crate) fn get_logs(query: LogQuery) -> Result<LogQuery, NoQuery> {
    if query.filter.topics.len() > TOPICS_MAX {
        return Err(RpcError::TOO_MANY_TOPICS.into());
    }
    if query.range.is_inverted() {
        return Err(RpcError::INVALID_RANGE.into());
    }
    Ok(query)
}

/// The members as Go reads them, before they are understood.
#[derive(Default)]
struct Input<'a> {
    block_hash: Option<[u8; 32]>,
    from: Option<LogBound>,
    to: Option<LogBound>,
    address: Option<&'a [u8]>,
    topics: Option<&'a [u8]>,
    /// The first wrong thing that Go reads on after.
    passed_over: Option<DecodeError>,
}

/// Decodes a query. Null is an object without members.
pub(crate) fn log_query(value: &[u8], rules: Rules) -> Decoded<LogQuery> {
    if !matches!(value.first(), Some(b'{' | b'n')) {
        return Err(DecodeError::kind(kind(value), "filters.input"));
    }
    let mut input = Input::default();
    for (key, value) in members(value) {
        input.set(key, value, rules)?;
    }
    // Go decodes the whole object first, and then returns the first of these errors.
    if let Some(wrong) = input.passed_over {
        return Err(wrong);
    }
    let range = input.range()?;
    let addresses = input.address.map_or_else(|| Ok(Vec::new()), |value| addresses(value, rules));
    let topics = |addresses| Ok(LogFilter { addresses, topics: topics(input.topics)? });
    Ok(LogQuery { range, filter: addresses.and_then(topics)? })
}

impl<'a> Input<'a> {
    fn set(&mut self, key: &[u8], value: &'a [u8], rules: Rules) -> Decoded<()> {
        let is_null = value == b"null";
        let bound = |value| block_number(value, rules).map(LogBound::new);
        if is_key(key, "blockhash") {
            let hash = |value| hash(value).map_err(|wrong| wrong.in_field("input", "blockHash"));
            self.block_hash = if is_null { None } else { Some(hash(value)?) };
        } else if is_key(key, "fromblock") {
            self.from = if is_null { None } else { bound(value)? };
        } else if is_key(key, "toblock") {
            self.to = if is_null { None } else { bound(value)? };
        } else if is_key(key, "address") {
            // Go's field takes any value: numbers in it become `float64`, addresses are looked for
            // later.
            self.passed_over("address", overflow(value));
            self.address = Some(value).filter(|_| !is_null);
        } else if is_key(key, "topics") {
            self.set_topics(value);
        }
        Ok(())
    }

    fn set_topics(&mut self, value: &'a [u8]) {
        let is_list = value.first() == Some(&b'[');
        let wrong = if is_list || value == b"null" {
            overflow(value)
        } else {
            Some(DecodeError::kind(kind(value), "[]interface {}"))
        };
        self.passed_over("topics", wrong);
        self.topics = Some(value).filter(|_| is_list);
    }

    fn passed_over(&mut self, field: &str, wrong: Option<DecodeError>) {
        let wrong = wrong.map(|wrong| wrong.in_field("input", field));
        self.passed_over = self.passed_over.take().or(wrong);
    }

    fn range(&self) -> Decoded<LogRange> {
        match (self.block_hash, self.from, self.to) {
            (Some(hash), None, None) => Ok(LogRange::Block(hash)),
            // A hash names one block, so bounds beside it can only contradict it.
            (Some(_), ..) => {
                let what = "cannot specify both BlockHash and FromBlock/ToBlock";
                Err(format!("{what}, choose one or the other").into())
            }
            (None, from, to) => Ok(LogRange::Range {
                from: from.unwrap_or(LogBound::Absent),
                to: to.unwrap_or(LogBound::Absent),
            }),
        }
    }
}

/// A number, anywhere in a value of any kind, that is too large for Go's `float64`. Goes from
/// left to right, not down: the depth is the sender's.
fn overflow(value: &[u8]) -> Option<DecodeError> {
    let mut scanner = SyntaxScanner::new(value);
    while let Some(number) = scanner.next_number() {
        let text = String::from_utf8_lossy(number);
        if !text.parse::<f64>().is_ok_and(f64::is_finite) {
            return Some(not_finite(number));
        }
    }
    None
}

fn addresses(value: &[u8], rules: Rules) -> Decoded<Vec<[u8; 20]>> {
    match value.first() {
        Some(b'"') => match address(value) {
            Ok(address) => Ok(vec![address]),
            Err(why) => Err(format!("invalid address: {why}").into()),
        },
        Some(b'[') => {
            // Only coreth has this limit.
            let too_many = elements(value).nth(ADDRESSES_MAX).is_some();
            if too_many && rules == Rules::BeforeHelicon {
                return Err("exceed max addresses".into());
            }
            elements(value).enumerate().map(|(at, value)| address_at(at, value)).collect()
        }
        _ => Err("invalid addresses in query".into()),
    }
}

fn address_at(at: usize, value: &[u8]) -> Decoded<[u8; 20]> {
    if value.first() != Some(&b'"') {
        return Err(format!("non-string address at index {at}").into());
    }
    address(value).map_err(|why| format!("invalid address at index {at}: {why}").into())
}

fn address(value: &[u8]) -> Decoded<[u8; 20]> {
    decoded_hex(value, "address")
}

fn topics(value: Option<&[u8]>) -> Decoded<Vec<Vec<[u8; 32]>>> {
    let mut topics = Vec::new();
    for position in value.into_iter().flat_map(elements).map(position) {
        let position = position?;
        if topics.len() <= TOPICS_MAX {
            topics.push(position); // one more than may be asked for says that there are too many
        }
    }
    Ok(topics)
}

/// The topics of one position: none are all.
fn position(value: &[u8]) -> Decoded<Vec<[u8; 32]>> {
    match value.first() {
        Some(b'n') => Ok(Vec::new()),
        Some(b'"') => Ok(vec![topic(value)?]),
        Some(b'[') => {
            let mut topics = Vec::new();
            for value in elements(value) {
                if value == b"null" {
                    return Ok(Vec::new()); // anything, and Go looks no further
                }
                topics.push(topic(value)?);
            }
            Ok(topics)
        }
        _ => Err("invalid topic(s)".into()),
    }
}

fn topic(value: &[u8]) -> Decoded<[u8; 32]> {
    if value.first() != Some(&b'"') {
        return Err("invalid topic(s)".into());
    }
    decoded_hex(value, "topic")
}
