//! Calls about heights below the served range, which another place has.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use neve_jsonrpc::{BlockId, LogQuery, LogRange, Message, Query, Request, Tag};
use neve_record::log_matcher::LogMatcher;
use neve_store::{ArchivedPlace, ArchivedSegment, WithoutLogs};

use super::call::Rpc;
use super::cursors::FilterKind;
use super::missing::Missing;
use crate::rpc::methods::{FEE_BLOCKS_MAX, Fetched, Lent, LogsAt, Miss, Want};
use crate::shared::Serving;

impl Rpc {
    /// True if the miss of a call may be an answer once another place has lent what it has.
    pub(super) fn is_below(&self, why: &Missing) -> bool {
        matches!(why, Missing::Data(miss) if self.want_of(*miss).is_some())
    }

    /// Height or hash that was missed, if another place may have it.
    pub(crate) fn want_of(&self, miss: Miss) -> Option<Want> {
        // Once: what was not lent the first time is a miss.
        let below = self.below.as_ref().filter(|_| !self.fetched.has_lent)?;
        let want = match miss {
            Miss::Height(height) if height < self.first()? => Want::Height(height),
            Miss::Hash(hash) => Want::Hash(hash),
            _ => return None,
        };
        below.may_lend(&want).then_some(want)
    }

    /// First height of the served range.
    fn first(&self) -> Option<u64> {
        self.serving.reader.range().map(|range| *range.start())
    }

    /// Blocks that the calls of a body name and the served range may not have.
    pub(crate) fn wants(&self, body: &[u8]) -> Vec<Want> {
        let mut wants = Vec::new();
        match self.parse(body) {
            Request::Single(message) => wants.extend(self.want(&message)),
            Request::Batch(messages) => {
                wants.extend(messages.iter().filter_map(|message| self.want(message)));
            }
            Request::Empty | Request::Malformed => {}
        }
        wants
    }

    fn want(&self, message: &Message<'_>) -> Option<Want> {
        let (_, query) = message.query(self.serving.rules()).ok()?;
        let range = self.serving.reader.range()?;
        match query {
            Query::Logs(LogQuery { range: of, filter }) => {
                // A list of topics of 4.9 MB takes long, and most ranges are here.
                let matcher = || LogMatcher::new(&filter.addresses, &filter.topics);
                self.want_logs(of, || matcher().criteria().lists().to_vec(), &range)
            }
            Query::FilterLogs(id) => match &self.filters.get(&id, Instant::now())?.topic {
                FilterKind::Logs(of, matcher) => {
                    self.want_logs(*of, || matcher.criteria().lists().to_vec(), &range)
                }
                FilterKind::Blocks => None,
            },
            Query::FeeHistory { count, newest, .. } => want_fees(count, newest, &range),
            query => named(&query)
                .filter(|want| !matches!(want, Want::Height(height) if height >= range.start())),
        }
    }

    fn want_logs(
        &self,
        of: LogRange,
        keys: impl FnOnce() -> Vec<Vec<u64>>,
        served: &RangeInclusive<u64>,
    ) -> Option<Want> {
        let at = match of {
            LogRange::Block(hash) => LogsAt::Block(hash),
            LogRange::Range { from, to } => {
                let to = to.number().unwrap_or(*served.end());
                let heights = below(from.number()?..=to, served)?;
                // Such a call is an error, which needs no logs.
                if to - heights.start() >= self.limits.logs_blocks_max {
                    return None;
                }
                LogsAt::Heights(heights)
            }
        };
        Some(Want::Logs(at, keys()))
    }

    /// Answers also from heights that another place has lent. What they do not have is a miss.
    pub(crate) fn with_lent(&self, lent: Lent) -> Self {
        let serving = serving_with(&self.serving, lent.segments, lent.places, lent.without);
        let fetched = Fetched {
            prices_since: self.fetched.prices_since,
            has_lent: true,
            try_again: lent.try_again,
            beyond: lent.beyond.into(),
        };
        Self { serving, fetched, ..self.clone() }
    }
}

/// Serves what is lent beside what is served now.
fn serving_with(
    serving: &Arc<Serving>,
    segments: Vec<ArchivedSegment>,
    places: Vec<ArchivedPlace>,
    without: Vec<WithoutLogs>,
) -> Arc<Serving> {
    // The archive lends nothing for an unknown hash, such as that of a transaction that a wallet waits for.
    if segments.is_empty() && places.is_empty() && without.is_empty() {
        return Arc::clone(serving);
    }
    Arc::new(serving.over(serving.reader.with_archived(segments, places, without)))
}

/// Heights below the served range; `None` if there are none.
fn below(
    heights: RangeInclusive<u64>,
    served: &RangeInclusive<u64>,
) -> Option<RangeInclusive<u64>> {
    let end = served.start().checked_sub(1)?.min(*heights.end());
    (*heights.start() <= end).then(|| *heights.start()..=end)
}

/// Blocks of a fee history, and the one behind them.
fn want_fees(count: u64, newest: BlockId, served: &RangeInclusive<u64>) -> Option<Want> {
    let newest = match newest {
        BlockId::Number(height) => height.min(*served.end()),
        BlockId::Tag(Tag::Earliest) => 0,
        _ => *served.end(),
    };
    let first = (newest + 1).saturating_sub(count.min(FEE_BLOCKS_MAX));
    below(first..=newest.saturating_add(1), served).map(Want::Heights)
}

/// Block or transaction that a query names.
fn named(query: &Query) -> Option<Want> {
    match *query {
        Query::Block(at, _)
        | Query::Header(at)
        | Query::TransactionCount(at)
        | Query::TransactionAt(at, _)
        | Query::Receipts(at)
        | Query::RawTransactionAt(at, _)
        | Query::UncleCount(at)
        | Query::Uncle(at, _)
        | Query::RawHeader(at)
        | Query::RawBlock(at)
        | Query::RawReceipts(at) => match at {
            BlockId::Number(height) => Some(Want::Height(height)),
            BlockId::Hash(hash) => Some(Want::Hash(hash)),
            BlockId::Tag(Tag::Earliest) => Some(Want::Height(0)),
            BlockId::Tag(_) => None,
        },
        Query::NewFilter(LogQuery { range: LogRange::Block(hash), .. }) => Some(Want::Hash(hash)),
        Query::Transaction(hash) | Query::Receipt(hash) | Query::RawTransaction(hash) => {
            Some(Want::Hash(hash))
        }
        // `Rpc::want` reads the blocks of logs and fee histories itself.
        Query::Logs(_)
        | Query::FilterLogs(_)
        | Query::FeeHistory { .. }
        // These name no block. They are named so that the compiler names a new query without an arm.
        | Query::NewFilter(_)
        | Query::NewBlockFilter
        | Query::NewPendingTransactionFilter
        | Query::FilterChanges(_)
        | Query::UninstallFilter(_)
        | Query::BlockNumber
        | Query::ChainId
        | Query::NetVersion
        | Query::Sha3(_)
        | Query::ClientVersion
        | Query::Listening
        | Query::PeerCount
        | Query::Syncing
        | Query::ChainConfig
        | Query::Modules
        | Query::GasPrice
        | Query::BaseFee
        | Query::MaxPriorityFeePerGas
        | Query::SuggestPriceOptions => None,
    }
}

#[cfg(test)]
mod tests {
    use neve_store::{Hash, Options};

    use super::*;

    /// A view of a large store has tens of thousands of segments.
    #[test]
    fn request_that_is_lent_nothing_reads_the_same_view() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let options =
            Options { segment_bytes: 1 << 20, disk_reserve_bytes: 0, ..Options::default() };
        let opened = neve_store::open(dir.path(), options).expect("an empty store");
        let serving = Arc::new(Serving::new(opened.reader));
        let lent = |places| serving_with(&serving, Vec::new(), places, Vec::new());
        assert!(Arc::ptr_eq(&serving, &lent(Vec::new())));
        let place = ArchivedPlace { hash: Hash([7; 32]), height: 3, position: None };
        assert!(!Arc::ptr_eq(&serving, &lent(vec![place])), "it is lent one");
    }
}
