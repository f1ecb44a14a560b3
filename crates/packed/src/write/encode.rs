//! From the texts of a height to its groups, and the comparison of what a frame gives back.

use std::ops::Range;

use alloy_primitives::Bloom;
use neve_chain::{Block, Kind, Receipts};

use crate::error::{PackError, PackedError, Reason};
use crate::frames::compress::Compressor;
use crate::frames::frame::{
    self, CHUNK_TRANSACTIONS, CHUNK_WEIGHT, GROUP_WEIGHT, GROUPS_WEIGHT, Group, Streams,
};
use crate::read::fields::{PAID_AS_SHOWN, PAID_BYTES};
use crate::read::height::{Form, PackedHeight};
use crate::read::log_out::LogOut;
use crate::read::text::{self, TotalDifficulty};
use crate::stream::count::Counter;
use crate::stream::facts::{self, Chunk, LOGS_MAX, TRANSACTIONS_MAX, narrow};
use crate::stream::header::Values;
use crate::stream::lanes::{Lane, Places, Writer};
use crate::stream::tables::put_number;
use crate::stream::walk;

#[cfg(test)]
#[path = "../../tests/support/mod.rs"]
mod support;

/// Exactly the node's texts of a height.
#[derive(Debug, Clone, Copy)]
pub struct HeightTexts<'t> {
    /// The `result` of `eth_getBlockByNumber(n, true)`, under either release.
    pub block: &'t [u8],
    /// The `result` of `eth_getBlockReceipts(n)`.
    pub receipts: &'t [u8],
}

/// Facts of a height.
pub(crate) struct Height {
    pub(crate) values: Values<'static>,
    bloom: Bloom,
    paid: Option<u128>,
    /// Chunks, each with its weight.
    chunks: Vec<(Chunk, usize)>,
    signatures: Vec<[u8; 64]>,
}

impl Height {
    pub(crate) fn of(block: &Block<'_>, receipts: &Receipts<'_>) -> Result<Self, Reason> {
        TotalDifficulty::of(block).ok_or(Reason::TotalDifficulty)?;
        if block.uncles > 0 || block.transactions.len() > TRANSACTIONS_MAX {
            return Err(Reason::BlockForm);
        }
        if receipts.receipts.len() != block.transactions.len() || receipts.logs.len() > LOGS_MAX {
            return Err(Reason::ReceiptsText);
        }
        let values = Values::of(block);
        let shown = block.header.base_fee_per_gas.map(narrow).transpose()?;
        let paid = paid(block, receipts, shown)?;
        let chunks = chunks(block, receipts, paid)?;
        let bloom = receipts.receipts.iter().fold(Bloom::ZERO, |all, one| all | one.logs_bloom);
        let signatures = block.transactions.iter().map(facts::signature);
        let signatures = signatures.collect::<Result<_, _>>()?;
        Ok(Self { values, bloom, paid: paid.filter(|_| paid != shown), chunks, signatures })
    }

    /// Returns the bytes that it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|(chunk, _)| chunk.memory()).sum();
        chunks + self.values.memory() + size_of_val(&self.signatures[..])
    }

    pub(crate) fn count(&self, chain_id: u64, counter: &mut Counter) {
        counter.begin_block();
        for (chunk, _) in &self.chunks {
            walk::transactions(chunk, chain_id, counter);
            walk::receipts(chunk, chain_id, counter);
        }
    }
}

/// Takes the facts in chunks, each with its weight.
fn chunks(
    block: &Block<'_>,
    receipts: &Receipts<'_>,
    paid: Option<u128>,
) -> Result<Vec<(Chunk, usize)>, Reason> {
    let mut chunks = Vec::new();
    let (mut start, mut weight) = (0, 0);
    let weights = weights(block, receipts);
    for (at, one) in weights.iter().enumerate() {
        let full = at - start == CHUNK_TRANSACTIONS || weight + one > CHUNK_WEIGHT;
        // A transaction over the bound is a chunk alone.
        if full && at > start {
            chunks.push((facts::chunk(block, receipts, start..at, paid)?, weight));
            (start, weight) = (at, 0);
        }
        weight += one;
    }
    chunks.push((facts::chunk(block, receipts, start..weights.len(), paid)?, weight));
    Ok(chunks)
}

/// Bytes of each transaction and its receipt, roughly: they bound chunks and groups.
fn weights(block: &Block<'_>, receipts: &Receipts<'_>) -> Vec<usize> {
    let both = block.transactions.iter().zip(&receipts.receipts);
    let logs =
        |receipt| receipts.logs_of(receipt).iter().map(|log| 100 + log.data.len()).sum::<usize>();
    both.map(|(tx, receipt)| {
        let access = match &tx.kind {
            Kind::Legacy { .. } => 0,
            Kind::AccessList { access_list, .. } | Kind::DynamicFee { access_list, .. } => {
                access_list.iter().map(|entry| 32 + 32 * entry.storage_keys.len()).sum()
            }
        };
        200 + tx.input.len() + access + logs(receipt)
    })
    .collect()
}

/// Finds the base fee that explains the prices of the receipts: the header's, or the one that the
/// first price names which the header's does not explain (from Helicon on).
fn paid(
    block: &Block<'_>,
    receipts: &Receipts<'_>,
    shown: Option<u128>,
) -> Result<Option<u128>, Reason> {
    for (tx, receipt) in block.transactions.iter().zip(&receipts.receipts) {
        let Kind::DynamicFee { max_priority_fee_per_gas: priority, .. } = &tx.kind else {
            // Other kinds pay their own price: it tells nothing of the base fee.
            continue;
        };
        let price = receipt.effective_gas_price;
        if price != tx.price_at(block.header.base_fee_per_gas) {
            return Ok(Some(narrow(price)?.saturating_sub(narrow(*priority)?)));
        }
    }
    Ok(shown)
}

/// A height whose groups wait for the dictionary.
pub(crate) struct Encoded {
    pub(crate) groups: Vec<Group>,
    head_literals: Vec<u8>,
    signatures: Vec<[u8; 64]>,
}

/// Writes the streams of a height.
pub(crate) fn groups(
    height: Height,
    template: &Values<'_>,
    number: u64,
    chain_id: u64,
    places: &Places<'_>,
) -> Encoded {
    let mut head = Lane::default();
    height.values.write(template, number, &height.bloom[..], &mut head);
    match height.paid {
        None => head.symbols.push(PAID_AS_SHOWN),
        Some(paid) => {
            let bytes = put_number(&mut head.literals, paid);
            head.symbols.push(PAID_BYTES + bytes);
        }
    }
    let groups = pack_chunks(&height.chunks, &head.symbols, chain_id, places);
    Encoded { groups, head_literals: head.literals, signatures: height.signatures }
}

/// Writes the streams of chunks into groups. The first one has the symbols of the header.
fn pack_chunks(
    chunks: &[(Chunk, usize)],
    mut symbols: &[u8],
    chain_id: u64,
    places: &Places<'_>,
) -> Vec<Group> {
    let (mut groups, mut open, mut sum) = (Vec::new(), Vec::new(), 0);
    // A read of a later group reads the first one too, for the header.
    let all: usize = chunks.iter().map(|(_, weight)| weight).sum();
    let most = if all > GROUP_WEIGHT { GROUPS_WEIGHT } else { GROUP_WEIGHT };
    for (chunk, weight) in chunks {
        if sum + weight > most && !open.is_empty() {
            // Only the first group has the header.
            groups.push(Group::write(std::mem::take(&mut symbols), &open));
            open.clear();
            sum = 0;
        }
        sum += weight;
        open.push(streams(chunk, chain_id, places));
    }
    groups.push(Group::write(symbols, &open));
    groups
}

fn streams(chunk: &Chunk, chain_id: u64, places: &Places<'_>) -> Streams {
    let mut writer = Writer::new(places);
    walk::transactions(chunk, chain_id, &mut writer);
    let transactions = std::mem::take(&mut writer.lane);
    walk::receipts(chunk, chain_id, &mut writer);
    Streams::of(chunk, [transactions, writer.lane])
}

impl Encoded {
    /// Returns the bytes that it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let groups: usize = self.groups.iter().map(|group| group.content.capacity()).sum();
        groups + self.head_literals.capacity() + size_of_val(&self.signatures[..])
    }

    pub(crate) fn frame(self, compressor: &mut Compressor) -> Result<Vec<u8>, PackError> {
        let pack = |group: Group| {
            let packed = compressor.frame(&group.content)?;
            Ok((group, packed))
        };
        let groups: Vec<_> = self.groups.into_iter().map(pack).collect::<Result<_, _>>()?;
        let mut out = vec![Form::Fields as u8];
        frame::write(&mut out, &groups, &self.head_literals, &self.signatures);
        Ok(out)
    }
}

/// Reads both texts of a frame in text form back and compares them with the node's. Other texts are parts of these.
pub(crate) fn compare_texts(
    frame: &[u8],
    block: &Block<'_>,
    texts: &HeightTexts<'_>,
) -> Result<(), PackedError> {
    let total = TotalDifficulty::of(block).unwrap_or(TotalDifficulty::Zero);
    let frame = frame.split_first().map_or(frame, |(_, frame)| frame);
    let found = text::Texts::read(frame, block.header.number, total)?;
    if found.block == texts.block && found.receipts == texts.receipts {
        return Ok(());
    }
    Err(PackedError::malformed("frame in text form", "it does not read back"))
}

/// Reads all texts of a height back and compares them with the node's.
pub(crate) fn compare(
    height: &PackedHeight<'_>,
    block: &Block<'_>,
    texts: &HeightTexts<'_>,
) -> Result<(), Reason> {
    // Of the two forms of totalDifficulty the text has one; without one it has the value itself.
    let total = TotalDifficulty::of(block).unwrap_or(TotalDifficulty::Zero);
    let mut read = ReadBack(Vec::with_capacity(texts.receipts.len().max(texts.block.len())));
    read.compare(texts.block, Reason::BlockDiffers, |out| height.block(total, out))?;
    read.compare(texts.receipts, Reason::ReceiptsDiffer, |out| height.receipts(out))?;
    let mut text = Vec::new();
    text::header(texts.block, block, &mut text);
    read.compare(&text, Reason::BlockDiffers, |out| height.header(total, out))?;
    text.clear();
    text::with_hashes(texts.block, block, &mut text);
    read.compare(&text, Reason::BlockDiffers, |out| height.block_with_hashes(total, out))?;
    let receipts = Receipts::parse(texts.receipts).map_err(|_| Reason::ReceiptsText)?;
    compare_ones(height, block, &receipts, texts)?;
    compare_logs(height, &receipts, texts)
}

/// Buffer of a text that is read back.
struct ReadBack(Vec<u8>);

impl ReadBack {
    /// Reads a text back and compares it. The error is `reason`.
    fn compare(
        &mut self,
        text: &[u8],
        reason: Reason,
        read: impl FnOnce(&mut Vec<u8>) -> Result<(), PackedError>,
    ) -> Result<(), Reason> {
        self.0.clear();
        let same = read(&mut self.0).is_ok() && self.0[..] == *text;
        if same { Ok(()) } else { Err(reason) }
    }
}

/// Texts of the transactions of a height, each with that of its receipt, as the node's lists have them.
struct NodeTexts<'t>(Vec<[&'t [u8]; 2]>);

impl<'t> NodeTexts<'t> {
    fn of(block: &Block<'_>, receipts: &Receipts<'_>, texts: &HeightTexts<'t>) -> Self {
        let both = block.transactions.iter().zip(&receipts.receipts);
        let texts =
            both.map(|(tx, rx)| [cut(texts.block, &tx.span), cut(texts.receipts, &rx.span)]);
        Self(texts.collect())
    }

    /// Compares the texts of transaction `at` that were read alone.
    fn compare(&self, at: usize, transaction: &[u8], receipt: &[u8]) -> Result<(), Reason> {
        let [tx, rx] = self.0.get(at).ok_or(Reason::BlockDiffers)?;
        if transaction != *tx {
            return Err(Reason::BlockDiffers);
        }
        if receipt == *rx { Ok(()) } else { Err(Reason::ReceiptsDiffer) }
    }
}

/// Cuts the text of an entry out of a list.
fn cut<'t>(text: &'t [u8], span: &Range<u32>) -> &'t [u8] {
    text.get(span.start as usize..span.end as usize).unwrap_or_default()
}

/// Compares each transaction and each receipt, read alone. Such a read has a way of its own through a frame.
fn compare_ones(
    height: &PackedHeight<'_>,
    block: &Block<'_>,
    receipts: &Receipts<'_>,
    texts: &HeightTexts<'_>,
) -> Result<(), Reason> {
    let expected = NodeTexts::of(block, receipts, texts);
    let mut count = 0;
    let found = height.ones(|at, transaction, receipt| {
        count += 1;
        expected.compare(at, transaction, receipt)
    });
    found.map_err(|_| Reason::ReceiptsDiffer)??;
    if count != expected.0.len() {
        return Err(Reason::BlockDiffers);
    }
    compare_last_ones(height, &expected)
}

/// Compares the last of each sixteen as a client reads it: such a read finds its chunk and reads it to its end.
fn compare_last_ones(height: &PackedHeight<'_>, expected: &NodeTexts<'_>) -> Result<(), Reason> {
    let Some(last) = expected.0.len().checked_sub(1) else { return Ok(()) };
    for at in (CHUNK_TRANSACTIONS - 1..last).step_by(CHUNK_TRANSACTIONS).chain([last]) {
        let (mut transaction, mut receipt) = (Vec::new(), Vec::new());
        height.transaction(at, &mut transaction).map_err(|_| Reason::BlockDiffers)?;
        height.receipt(at, &mut receipt).map_err(|_| Reason::ReceiptsDiffer)?;
        expected.compare(at, &transaction, &receipt)?;
    }
    Ok(())
}

/// Compares the text of each log, as a search finds it.
fn compare_logs(
    height: &PackedHeight<'_>,
    receipts: &Receipts<'_>,
    texts: &HeightTexts<'_>,
) -> Result<(), Reason> {
    let mut out = LogOut::default();
    let mut met = receipts.logs.iter();
    let is_next = |address: &[u8; 20], topics: &[[u8; 32]]| {
        met.next().is_some_and(|log| {
            log.address.0.0 == *address && log.topics.iter().map(|topic| &topic.0).eq(topics)
        })
    };
    height.logs(is_next, &mut out).map_err(|_| Reason::ReceiptsDiffer)?;
    let found = out.found.iter().map(|(place, index)| (out.text.get(place.clone()), *index));
    let expected = (0..).zip(&receipts.logs);
    let expected = expected.map(|(index, log)| (Some(cut(texts.receipts, &log.span)), index));
    if found.eq(expected) { Ok(()) } else { Err(Reason::ReceiptsDiffer) }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use neve_chain::Receipts;

    use super::support::{packed, read_all, recorded};
    use crate::error::Reason;
    use crate::read::one::wrong;

    /// No byte of a file makes a text that is read alone another one than the list has: the reads themselves are made wrong.
    #[test]
    fn text_that_is_wrong_only_if_it_is_read_alone_is_noticed_while_packing() {
        // One of them has 250 transactions.
        let texts = &recorded("v1.15.0")[196..212];
        let right = packed(texts, 16);
        assert!(right.stored_as_came.is_empty());
        let counts = texts.iter().map(|texts| {
            let receipts = Receipts::parse(texts.receipts.as_bytes()).unwrap();
            (receipts.receipts.len(), receipts.logs.len())
        });
        let counts: Vec<_> = counts.collect();
        let cases = [
            ("receipt", 0, Reason::ReceiptsDiffer),
            ("receipt", 117, Reason::ReceiptsDiffer),
            ("transaction", 1, Reason::BlockDiffers),
            ("transaction", 118, Reason::BlockDiffers),
            ("log", 0, Reason::ReceiptsDiffer),
            ("log", 2, Reason::ReceiptsDiffer),
        ];
        let is_noticed = |(kind, at, reason): (&'static str, usize, Reason)| {
            wrong::TEXT.set(Some((kind, at)));
            let found = packed(texts, 16);
            wrong::TEXT.set(None);
            let has = |&&(txs, logs): &&(usize, usize)| at < if kind == "log" { logs } else { txs };
            let heights = counts.iter().filter(has).count() as u64;
            assert!(heights > 0, "no height has {kind} {at}");
            let stored: Vec<_> = found.stored_as_came.into_iter().collect();
            assert_eq!(stored, [(reason, heights)], "{kind} {at}");
            assert!(read_all(&found.bytes) == read_all(&right.bytes), "{kind} {at}");
        };
        // Each in a thread of its own, for which alone the reads are wrong.
        thread::scope(|scope| {
            let is_noticed = &is_noticed;
            cases.into_iter().for_each(|case| _ = scope.spawn(move || is_noticed(case)));
        });
    }
}
