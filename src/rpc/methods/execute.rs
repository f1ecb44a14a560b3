//! From a query to its result: an index look-up and slices of the store.

use alloy_primitives::keccak256;
use neve_jsonrpc::{BlockId, Query, Transactions};
use neve_record::parts::{FLAG_ZERO_DIFFICULTY, FULL, HASHES, HEADER, RECEIPTS};
use neve_store::{Found, Hash, RecordRef, Wanted, residency};

use super::block_form::{BlockForm, block_of};
use super::miss::{Miss, NotRead, QueryError};
use super::query_context::QueryContext;
use super::stored::{
    Named, by_transaction, fresh, named, part, receipt_of, record, transaction_of,
};
use super::{fees, filters, logs, node, raw};
use crate::body::BodyBuilder;
use crate::rpc::cursors::FilterKind;
use crate::shared::Serving;

/// Appends the result of `query`, or returns the reason why there is none. Then nothing was appended.
pub(crate) fn result(
    context: &QueryContext<'_>,
    query: Query,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    let serving = context.serving;
    match query {
        Query::BlockNumber => quantity(head(serving)?, out),
        Query::ChainId => text(&serving.chain().ok_or(Miss::Empty)?.hex, out),
        Query::NetVersion => text(&serving.chain().ok_or(Miss::Empty)?.decimal, out),
        Query::Block(at, Transactions::Hashes) => block(serving, at, HASHES, out)?,
        Query::Block(at, Transactions::Full) => block(serving, at, FULL, out)?,
        Query::Header(at) => block(serving, at, HEADER, out)?,
        Query::TransactionCount(at) => {
            let count = transaction_count(serving, at)?;
            quantity(count, out);
        }
        Query::TransactionAt(at, index) => transaction_at_index(serving, at, index, out)?,
        Query::Transaction(hash) => {
            if let (Found::Stored(record), index) = read_transaction(serving, hash, FULL, out)? {
                out.stored(transaction_of(record, index)?)?;
            }
        }
        Query::Receipt(hash) => {
            if let (Found::Stored(record), index) = read_transaction(serving, hash, RECEIPTS, out)?
            {
                out.stored(receipt_of(record, index)?)?;
            }
        }
        // A packed height is appended here as text. A stored one stays a slice of the map, in any
        // coding that it has.
        Query::Receipts(at) => {
            let wanted = Wanted::Part { part: RECEIPTS, flags: 0 };
            if let Found::Stored(record) = read(serving, at, wanted, out.text())? {
                out.part(&record, RECEIPTS, part(&record, RECEIPTS)?)?;
            }
        }
        Query::UncleCount(at) => {
            // The answer is the same for all blocks, but an unknown block must be a miss.
            read(serving, at, Wanted::Count, out.text())?;
            text("\"0x0\"", out); // Avalanche's consensus has none
        }
        Query::Uncle(at, _) => {
            read(serving, at, Wanted::Count, out.text())?;
            text("null", out);
        }
        Query::Logs(query) => {
            let wanted = logs::wanted(context, &query.filter, out)?;
            return logs::logs(context, query.range, wanted, out);
        }
        Query::FeeHistory { count, newest, percentiles } => {
            return fees::history(context, count, newest, &percentiles, out);
        }
        query => return rare(context, query, out),
    }
    Ok(())
}

/// Answers the rare queries, apart from the others so that the common match stays small.
fn rare(context: &QueryContext<'_>, query: Query, out: &mut BodyBuilder) -> Result<(), QueryError> {
    // An attempt that is given up half-way would change a filter twice. So these go to another thread
    // before they begin.
    if changes_something(&query) {
        residency::not_here()?;
    }
    match query {
        Query::RawTransaction(hash) => {
            let (record, index) = by_transaction(context.serving, hash)?;
            raw::transaction(context, &record, index, out)
        }
        Query::RawTransactionAt(at, index) => raw_transaction_at(context, at, index, out),
        Query::RawHeader(at) => raw::header(context, at, out),
        Query::RawBlock(at) => raw::block(context, at, out),
        Query::RawReceipts(at) => raw::receipts(context, at, out),
        Query::Sha3(bytes) => {
            raw::hex(keccak256(bytes).as_slice(), out.text());
            Ok(())
        }
        Query::NewFilter(query) => {
            let wanted = logs::wanted(context, &query.filter, out)?;
            filters::open(context, FilterKind::Logs(query.range, wanted), out)
        }
        Query::NewBlockFilter => filters::open(context, FilterKind::Blocks, out),
        Query::FilterChanges(id) => filters::changes(context, &id, out),
        Query::FilterLogs(id) => filters::all_logs(context, &id, out),
        Query::UninstallFilter(id) => filters::close(context, &id, out),
        query => of_node(context, &query, out),
    }
}

/// Answers the queries about the node itself.
fn of_node(
    context: &QueryContext<'_>,
    query: &Query,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    match query {
        Query::Listening => {
            text("true", out);
            Ok(())
        }
        Query::Syncing => {
            fresh(context.serving)?; // a node that lags may be syncing
            text("false", out);
            Ok(())
        }
        Query::PeerCount => node::peers(context, out),
        Query::ClientVersion => node::constant(context, "web3_clientVersion", out),
        Query::ChainConfig => node::constant(context, "eth_getChainConfig", out),
        Query::Modules => node::constant(context, "rpc_modules", out),
        Query::GasPrice => node::price(context, "eth_gasPrice", out),
        Query::BaseFee => node::price(context, "eth_baseFee", out),
        Query::MaxPriorityFeePerGas => node::price(context, "eth_maxPriorityFeePerGas", out),
        Query::SuggestPriceOptions => node::price(context, "eth_suggestPriceOptions", out),
        // `Rpc::call` asks for no filter of the pool, and `result` and `rare` have answered the others. They are
        // named so that the compiler names a new query without an arm.
        Query::NewPendingTransactionFilter
        | Query::BlockNumber
        | Query::ChainId
        | Query::NetVersion
        | Query::Block(..)
        | Query::Header(_)
        | Query::TransactionCount(_)
        | Query::TransactionAt(..)
        | Query::Transaction(_)
        | Query::Receipt(_)
        | Query::Receipts(_)
        | Query::UncleCount(_)
        | Query::Uncle(..)
        | Query::Logs(_)
        | Query::FeeHistory { .. }
        | Query::RawTransaction(_)
        | Query::RawTransactionAt(..)
        | Query::RawHeader(_)
        | Query::RawBlock(_)
        | Query::RawReceipts(_)
        | Query::Sha3(_)
        | Query::NewFilter(_)
        | Query::NewBlockFilter
        | Query::FilterChanges(_)
        | Query::FilterLogs(_)
        | Query::UninstallFilter(_) => {
            debug_assert!(false, "{query:?} has no answer");
            Err(Miss::Empty.into())
        }
    }
}

/// True if a second execution gives another answer.
fn changes_something(query: &Query) -> bool {
    matches!(
        query,
        Query::NewFilter(_)
            | Query::NewBlockFilter
            | Query::FilterChanges(_)
            | Query::FilterLogs(_)
            | Query::UninstallFilter(_)
    )
}

fn text(text: &str, out: &mut BodyBuilder) {
    out.text().extend_from_slice(text.as_bytes());
}

fn quantity(number: u64, out: &mut BodyBuilder) {
    out.text().extend_from_slice(format!("\"{number:#x}\"").as_bytes());
}

fn head(serving: &Serving) -> Result<u64, Miss> {
    fresh(serving)?;
    serving.reader.range().map(|range| *range.end()).ok_or(Miss::Empty)
}

/// Reads a height: returns its record, or appends the wanted part of a packed one to `out`.
fn read(
    serving: &Serving,
    at: BlockId,
    wanted: Wanted<'_>,
    out: &mut Vec<u8>,
) -> Result<Found, NotRead> {
    let reader = serving.reader.resident();
    Ok(match named(serving, at)? {
        Named::Hash(hash) => {
            reader.read_block(&Hash(hash), wanted, out)?.ok_or(Miss::Hash(hash))?
        }
        Named::Head => reader.read_head(wanted, out)?.ok_or(Miss::Empty)?,
        Named::Height(height) => reader.read(height, wanted, out)?.ok_or(Miss::Height(height))?,
    })
}

/// Reads the height of a transaction. For a packed height it appends the transaction's slice of `part`.
fn read_transaction(
    serving: &Serving,
    hash: [u8; 32],
    part: usize,
    out: &mut BodyBuilder,
) -> Result<(Found, usize), NotRead> {
    let found = serving.reader.resident().read_transaction(&Hash(hash), part, out.text())?;
    Ok(found.ok_or(Miss::Hash(hash))?)
}

fn transaction_count(serving: &Serving, at: BlockId) -> Result<u64, NotRead> {
    let found = read(serving, at, Wanted::Count, &mut Vec::new())?;
    Ok(match found {
        Found::Stored(record) => record.header()?.transactions.into(),
        Found::Unpacked { transactions, .. } => transactions as u64,
    })
}

/// A transaction by its position; `null` if the height has fewer.
fn transaction_at_index(
    serving: &Serving,
    at: BlockId,
    index: u64,
    out: &mut BodyBuilder,
) -> Result<(), NotRead> {
    let before = out.text().len();
    let wanted = Wanted::Transaction { part: FULL, at: index as usize, hash: None };
    match read(serving, at, wanted, out.text())? {
        Found::Stored(record) if index < record.header()?.transactions.into() => {
            // An index below the number of transactions fits.
            out.stored(transaction_of(record, index as usize)?)?;
        }
        Found::Unpacked { .. } if out.text().len() > before => {} // it was appended
        _ => text("null", out),
    }
    Ok(())
}

/// Appends the bytes of a transaction by its position; none if the height has fewer.
fn raw_transaction_at(
    context: &QueryContext<'_>,
    at: BlockId,
    index: u64,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    if let Some(record) = transaction_at(context.serving, at, index)? {
        return raw::transaction(context, &record, index as usize, out);
    }
    text("\"0x\"", out);
    Ok(())
}

/// Returns the record if it has a transaction at this index.
fn transaction_at(
    serving: &Serving,
    at: BlockId,
    index: u64,
) -> Result<Option<RecordRef>, NotRead> {
    let record = record(serving, at)?;
    let has_one = index < record.header()?.transactions.into();
    Ok(has_one.then_some(record))
}

/// Appends a block or header in the form of the upstream's rules.
fn block(
    serving: &Serving,
    at: BlockId,
    which: usize,
    out: &mut BodyBuilder,
) -> Result<(), NotRead> {
    let form = BlockForm::of(serving, at);
    // Its values are those of no stored flag: it is made from the record.
    if form == BlockForm::Pending {
        return block_of(&record(serving, at)?, which, form, out);
    }
    let flags = if form == BlockForm::Helicon { FLAG_ZERO_DIFFICULTY } else { 0 };
    match read(serving, at, Wanted::Part { part: which, flags }, out.text())? {
        Found::Stored(record) => block_of(&record, which, form, out),
        Found::Unpacked { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use neve_devnet::{Chain, Config, Helicon, Part};
    use neve_jsonrpc::Rules;
    use neve_packed::{HeightTexts, Identity, pack};
    use neve_record::packed::Codec;
    use neve_store::{ArchivedSegment, Options, PackedBytes, PackedCodec, PackedPages};

    use super::*;

    /// Pages of a packed file that count the reads of heights.
    #[derive(Default)]
    struct Counting {
        file: Vec<u8>,
        from: AtomicU64,
        reads: AtomicUsize,
    }

    impl PackedPages for Counting {
        fn bytes(&self) -> u64 {
            self.file.len() as u64
        }

        fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
            let is_of_height = offset >= self.from.load(Ordering::Relaxed);
            self.reads.fetch_add(usize::from(is_of_height), Ordering::Relaxed);
            Some(self.file.get(offset as usize..offset as usize + len)?.to_vec())
        }
    }

    /// A packed file of the first heights of a chain, and one of them with transactions.
    fn packed_file() -> (Vec<u8>, u64) {
        let mut chain = Chain::new(Config::test().with_helicon(Helicon::Never).chain);
        let blocks: Vec<_> = (0..4).map(|_| chain.next_block()).collect();
        let full = |at: usize| blocks[at].answer(Part::Full, Rules::BeforeHelicon);
        let texts: Vec<_> = (0..4).map(|at| (full(at), blocks[at].receipts().to_vec())).collect();
        let texts: Vec<_> =
            texts.iter().map(|(block, receipts)| HeightTexts { block, receipts }).collect();
        let identity = Identity { chain_id: 43_112, genesis: blocks[0].hash() };
        let packed = pack(identity, 4, &texts, &mut || ControlFlow::Continue(()));
        let filled = (0..4).find(|at| full(*at).windows(17).any(|w| w == b"\"transactions\":[{"));
        (packed.expect("it can be packed").bytes, filled.expect("some have transactions") as u64)
    }

    /// A height in text form is unpacked by each read, and may be in another form at the next one.
    #[test]
    fn transaction_at_a_position_of_a_packed_height_takes_one_read() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let options =
            Options { segment_bytes: 1 << 20, disk_reserve_bytes: 0, ..Options::default() };
        let reader = neve_store::open(dir.path(), options).expect("an empty store").reader;
        let (file, height) = packed_file();
        let pages = Arc::new(Counting { file, ..Counting::default() });
        let source: Arc<dyn PackedPages> = pages.clone();
        let codec: Arc<dyn PackedCodec> = Arc::new(Codec::default());
        let segment = ArchivedSegment::open(PackedBytes::paged(source), &codec);
        let segment = segment.expect("it is whole");
        let offsets = (0..4).map(|at| segment.extent(at).expect("it is there").0);
        pages.from.store(offsets.min().expect("there are some"), Ordering::Relaxed);
        let reader = reader.with_archived(vec![segment], Vec::new(), Vec::new());
        let serving = Serving::new(reader);
        for (index, start) in [(0, "{\"blockHash\":"), (999, "null"), (u64::MAX, "null")] {
            pages.reads.store(0, Ordering::Relaxed);
            let mut out = BodyBuilder::default();
            let found = transaction_at_index(&serving, BlockId::Number(height), index, &mut out);
            assert!(found.is_ok() && out.text().starts_with(start.as_bytes()), "{index}");
            assert_eq!(pages.reads.load(Ordering::Relaxed), 1, "{index}");
        }
    }
}
