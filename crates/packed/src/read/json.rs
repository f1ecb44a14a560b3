//! The node's texts, written from facts.

use std::ops::Range;

use alloy_primitives::B256;

use crate::read::digits::{fixed, hex, put, quantity, quantity_128, wide, word};
use crate::read::text::TotalDifficulty;
use crate::stream::derive::{Signature, created};
use crate::stream::facts::{Chunk, Lg, Rx, Tx, Word, address, kind};
use crate::stream::header::{BLOCK_EXTRA_DATA, FIELDS, Kind, SIZE, Values};

/// Place of a text in its block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    /// Text of [`start`].
    pub(crate) start: &'a [u8],
    pub(crate) height: u64,
    pub(crate) block_hash: &'a B256,
    pub(crate) index: usize,
    pub(crate) hash: &'a B256,
}

/// Text that begins all transactions and receipts of a block.
pub(crate) fn start(height: u64, block_hash: &B256) -> Vec<u8> {
    let mut text = Vec::with_capacity(128);
    put(&mut text, b"{\"blockHash\":\"0x");
    fixed(&mut text, &block_hash.0);
    put(&mut text, b"\",\"blockNumber\":\"0x");
    quantity(&mut text, height);
    put(&mut text, b"\",\"");
    text
}

/// Appends a transaction of a block.
pub(crate) fn transaction(
    out: &mut Vec<u8>,
    chunk: &Chunk,
    tx: &Tx,
    signature: &[u8; 64],
    base_fee: Option<u128>,
    at: At<'_>,
) {
    out.extend_from_slice(at.start);
    put(out, b"from\":\"0x");
    fixed(out, address(&tx.from));
    put(out, b"\",\"gas\":\"0x");
    quantity(out, tx.gas);
    put(out, b"\",\"gasPrice\":\"0x");
    quantity_128(out, tx.price_at(base_fee));
    if tx.kind == kind::DYNAMIC_FEE {
        put(out, b"\",\"maxFeePerGas\":\"0x");
        quantity_128(out, tx.price);
        put(out, b"\",\"maxPriorityFeePerGas\":\"0x");
        quantity_128(out, tx.priority);
    }
    put(out, b"\",\"hash\":\"0x");
    fixed(out, &at.hash.0);
    put(out, b"\",\"input\":\"0x");
    hex(out, chunk.data.get(tx.input.clone()).unwrap_or_default());
    put(out, b"\",\"nonce\":\"0x");
    quantity(out, tx.nonce);
    put(out, b"\",\"to\":");
    optional(out, tx.to.as_ref().map(address));
    put(out, b",\"transactionIndex\":\"0x");
    quantity(out, at.index as u64);
    put(out, b"\",\"value\":\"0x");
    word(out, &tx.value);
    put(out, b"\",\"type\":\"0x");
    quantity(out, tx.tx_type().into());
    put(out, b"\"");
    if tx.kind >= kind::ACCESS_LIST {
        put(out, b",\"accessList\":[");
        access_list(out, &tx.access);
    }
    if tx.kind != kind::UNPROTECTED {
        put(out, b",\"chainId\":\"0x");
        quantity(out, tx.chain_id);
        put(out, b"\"");
    }
    signed(out, tx, signature);
}

/// Appends the end of a transaction.
fn signed(out: &mut Vec<u8>, tx: &Tx, signature: &[u8; 64]) {
    let signature = Signature::of(signature);
    put(out, b",\"v\":\"0x");
    quantity(out, signature.v(tx));
    put(out, b"\",\"r\":\"0x");
    word(out, &signature.r);
    put(out, b"\",\"s\":\"0x");
    word(out, &signature.s);
    if tx.kind >= kind::ACCESS_LIST {
        put(out, b"\",\"yParity\":\"0x");
        quantity(out, signature.parity);
    }
    put(out, b"\"}");
}

fn access_list(out: &mut Vec<u8>, access: &[(Word, Vec<Word>)]) {
    for (of, keys) in access {
        put(out, b"{\"address\":\"0x");
        fixed(out, address(of));
        put(out, b"\",\"storageKeys\":[");
        list(out, keys);
        put(out, b"},");
    }
    close(out, !access.is_empty());
}

/// Appends the words of a list, and its end.
fn list(out: &mut Vec<u8>, words: &[Word]) {
    for word in words {
        put(out, b"\"0x");
        fixed(out, word);
        put(out, b"\",");
    }
    close(out, !words.is_empty());
}

/// Ends a list whose entries have a comma behind them.
fn close(out: &mut Vec<u8>, has_entries: bool) {
    if has_entries {
        out.pop();
    }
    out.push(b']');
}

fn optional(out: &mut Vec<u8>, address: Option<&[u8; 20]>) {
    let Some(address) = address else { return put(out, b"null") };
    put(out, b"\"0x");
    fixed(out, address);
    put(out, b"\"");
}

/// Values that a receipt takes from the receipts before it, and from its logs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sums<'a> {
    /// Gas of the block up to and with this receipt.
    pub(crate) gas: u64,
    /// Number of its first log.
    pub(crate) log: usize,
    pub(crate) bloom: &'a [u8; 256],
    /// Base fee that was paid.
    pub(crate) paid: Option<u128>,
}

/// Appends a receipt.
pub(crate) fn receipt(
    out: &mut Vec<u8>,
    chunk: &Chunk,
    tx: &Tx,
    receipt: &Rx,
    sums: Sums<'_>,
    at: At<'_>,
) {
    out.extend_from_slice(at.start);
    put(out, b"contractAddress\":");
    let created = tx.to.is_none().then(|| created(tx));
    optional(out, created.as_ref().map(|address| &address.0.0));
    put(out, b",\"cumulativeGasUsed\":\"0x");
    quantity(out, sums.gas);
    put(out, b"\",\"effectiveGasPrice\":\"0x");
    quantity_128(out, receipt.price.unwrap_or_else(|| tx.price_at(sums.paid)));
    put(out, b"\",\"from\":\"0x");
    fixed(out, address(&tx.from));
    put(out, b"\",\"gasUsed\":\"0x");
    quantity(out, receipt.gas_used);
    put(out, b"\",\"logs\":[");
    let logs = chunk.logs.get(receipt.logs.clone()).unwrap_or_default();
    let mut shared = None;
    for (number, one) in logs.iter().enumerate() {
        log(out, chunk, one, sums.log + number, at, &mut shared);
        out.push(b',');
    }
    close(out, !logs.is_empty());
    put(out, b",\"logsBloom\":\"0x");
    hex(out, sums.bloom);
    put(out, b"\",\"status\":\"0x");
    quantity(out, receipt.succeeded.into());
    put(out, b"\",\"to\":");
    optional(out, tx.to.as_ref().map(address));
    put(out, b",\"transactionHash\":\"0x");
    fixed(out, &at.hash.0);
    put(out, b"\",\"transactionIndex\":\"0x");
    quantity(out, at.index as u64);
    put(out, b"\",\"type\":\"0x");
    quantity(out, tx.tx_type().into());
    put(out, b"\"}");
}

/// Appends the text that all logs of a receipt have between their data and their number.
fn of_logs(out: &mut Vec<u8>, at: At<'_>) {
    put(out, b"\",\"blockNumber\":\"0x");
    quantity(out, at.height);
    put(out, b"\",\"transactionHash\":\"0x");
    fixed(out, &at.hash.0);
    put(out, b"\",\"transactionIndex\":\"0x");
    quantity(out, at.index as u64);
    put(out, b"\",\"blockHash\":\"0x");
    fixed(out, &at.block_hash.0);
    put(out, b"\",\"logIndex\":\"0x");
}

/// Appends a log. `shared` is the place of the text that the logs of its receipt have in common, as soon as
/// there is one.
pub(crate) fn log(
    out: &mut Vec<u8>,
    chunk: &Chunk,
    log: &Lg,
    number: usize,
    at: At<'_>,
    shared: &mut Option<Range<usize>>,
) {
    put(out, b"{\"address\":\"0x");
    fixed(out, address(&log.address));
    put(out, b"\",\"topics\":[");
    list(out, log.topics());
    put(out, b",\"data\":\"0x");
    hex(out, chunk.data.get(log.data.clone()).unwrap_or_default());
    // Logs of one transaction share this text: from the second on it is copied.
    if let Some(place) = shared {
        out.extend_from_within(place.clone());
    } else {
        let start = out.len();
        of_logs(out, at);
        *shared = Some(start..out.len());
    }
    quantity(out, number as u64);
    put(out, b"\",\"removed\":false}");
}

/// Appends the hash of a transaction as a list has it.
pub(crate) fn hash(out: &mut Vec<u8>, hash: &B256) {
    put(out, b"\"0x");
    fixed(out, &hash.0);
    put(out, b"\"");
}

/// Parts of a block's text besides its fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) height: u64,
    pub(crate) hash: &'a B256,
    pub(crate) parent: &'a B256,
    pub(crate) total: TotalDifficulty,
}

/// Appends a header, or a block with the text of its list of transactions.
pub(crate) fn block(out: &mut Vec<u8>, values: &Values<'_>, head: Head<'_>, list: Option<&[u8]>) {
    out.push(b'{');
    let mut name = "\"";
    for (at, (key, kind)) in FIELDS.iter().enumerate() {
        for (_, other) in OTHERS.iter().filter(|(before, _)| *before == at) {
            member(out, other, &head, list);
        }
        // `eth_getHeaderByNumber` of a node shows four members fewer; the other two are in
        // `member`, and at the end.
        let only_block = at == SIZE || at == BLOCK_EXTRA_DATA;
        let Some(value) = values.get(at).filter(|_| list.is_some() || !only_block) else {
            continue;
        };
        text(out, name);
        text(out, key);
        // `hash`, the first member that follows from the height, is not the first of all: a node
        // shows `difficulty` always.
        name = ",\"";
        field(out, *kind, value);
    }
    text(out, if list.is_some() { ",\"uncles\":[]}" } else { "}" });
}

/// Appends the value of a field behind its key.
fn field(out: &mut Vec<u8>, kind: Kind, value: &[u8]) {
    put(out, b"\":\"0x");
    match kind {
        Kind::Quantity => wide(out, value),
        Kind::Bytes => hex(out, value),
    }
    put(out, b"\"");
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// Appends a member without a symbol.
fn member(out: &mut Vec<u8>, name: &str, head: &Head<'_>, list: Option<&[u8]>) {
    match (name, list) {
        ("hash", _) => {
            put(out, b",\"hash\":");
            hash(out, head.hash);
        }
        ("number", _) => {
            put(out, b",\"number\":\"0x");
            quantity(out, head.height);
            put(out, b"\"");
        }
        ("parentHash", _) => {
            put(out, b",\"parentHash\":");
            hash(out, head.parent);
        }
        ("totalDifficulty", _) => {
            put(out, b",\"totalDifficulty\":");
            head.total.write(head.height, out);
        }
        (_, Some(list)) => {
            put(out, b",\"transactions\":[");
            out.extend_from_slice(list);
            out.push(b']');
        }
        (_, None) => {}
    }
}

/// Members without a symbol, with the field that they stand before.
const OTHERS: [(usize, &str); 5] = [
    (11, "hash"),
    (17, "number"),
    (18, "parentHash"),
    (29, "totalDifficulty"),
    (29, "transactions"),
];
