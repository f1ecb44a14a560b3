//! The node's texts, written from facts.

use alloy_primitives::B256;

use crate::read::text::TotalDifficulty;
use crate::stream::derive::{Signature, created};
use crate::stream::facts::{Chunk, Lg, Rx, Tx, Word, address, kind};
use crate::stream::header::{BLOCK_EXTRA_DATA, FIELDS, Kind, SIZE, Values};

/// Appends `name`, then `"0x` and the digits of `bytes`, then a quote.
fn hex(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\"0x");
    let start = out.len();
    out.resize(start + 2 * bytes.len(), 0);
    // The place has exactly the length of the digits.
    let _ = const_hex::encode_to_slice(bytes, &mut out[start..]);
    out.push(b'"');
}

/// Appends `name`, then a quantity in quotes.
fn quantity(out: &mut Vec<u8>, name: &str, value: u128) {
    out.extend_from_slice(name.as_bytes());
    let mut text = *b"\"0x00000000000000000000000000000000\"";
    let (mut at, mut rest) = (text.len() - 1, value);
    loop {
        // Nearly all are of 64 bits, of which shifts are cheaper.
        let mut low = rest as u64;
        rest >>= 64;
        for _ in 0..16 {
            at -= 1;
            text[at] = b"0123456789abcdef"[(low & 15) as usize];
            low >>= 4;
            if low == 0 && rest == 0 {
                break;
            }
        }
        if rest == 0 {
            break;
        }
    }
    text[at - 3..at].copy_from_slice(b"\"0x");
    out.extend_from_slice(&text[at - 3..]);
}

/// Appends `name`, then a big-endian quantity in quotes.
fn wide(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bytes = &bytes[zeros..];
    let Some((first, rest)) = bytes.split_first() else { return quantity(out, name, 0) };
    if *first > 15 {
        return hex(out, name, bytes);
    }
    quantity(out, name, u128::from(*first));
    out.pop();
    let start = out.len();
    out.resize(start + 2 * rest.len(), 0);
    let _ = const_hex::encode_to_slice(rest, &mut out[start..]);
    out.push(b'"');
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// Place of a text in its block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) height: u64,
    pub(crate) block_hash: &'a B256,
    pub(crate) index: usize,
    pub(crate) hash: &'a B256,
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
    hex(out, "{\"blockHash\":", &at.block_hash[..]);
    quantity(out, ",\"blockNumber\":", u128::from(at.height));
    hex(out, ",\"from\":", address(&tx.from));
    quantity(out, ",\"gas\":", u128::from(tx.gas));
    quantity(out, ",\"gasPrice\":", tx.price_at(base_fee));
    if tx.kind == kind::DYNAMIC_FEE {
        quantity(out, ",\"maxFeePerGas\":", tx.price);
        quantity(out, ",\"maxPriorityFeePerGas\":", tx.priority);
    }
    hex(out, ",\"hash\":", &at.hash[..]);
    hex(out, ",\"input\":", chunk.data.get(tx.input.clone()).unwrap_or_default());
    quantity(out, ",\"nonce\":", u128::from(tx.nonce));
    optional(out, ",\"to\":", tx.to.as_ref().map(address));
    quantity(out, ",\"transactionIndex\":", at.index as u128);
    wide(out, ",\"value\":", &tx.value);
    quantity(out, ",\"type\":", u128::from(tx.tx_type()));
    if tx.kind >= kind::ACCESS_LIST {
        put(out, ",\"accessList\":[");
        access_list(out, &tx.access);
    }
    if tx.kind != kind::UNPROTECTED {
        quantity(out, ",\"chainId\":", u128::from(tx.chain_id));
    }
    let signature = Signature::of(signature);
    quantity(out, ",\"v\":", u128::from(signature.v(tx)));
    wide(out, ",\"r\":", &signature.r.to_be_bytes::<32>());
    wide(out, ",\"s\":", &signature.s.to_be_bytes::<32>());
    if tx.kind >= kind::ACCESS_LIST {
        quantity(out, ",\"yParity\":", u128::from(signature.parity));
    }
    out.push(b'}');
}

fn access_list(out: &mut Vec<u8>, access: &[(Word, Vec<Word>)]) {
    for (at, (of, keys)) in access.iter().enumerate() {
        put(out, if at > 0 { "," } else { "" });
        hex(out, "{\"address\":", address(of));
        put(out, ",\"storageKeys\":[");
        for (at, key) in keys.iter().enumerate() {
            hex(out, if at > 0 { "," } else { "" }, key);
        }
        put(out, "]}");
    }
    out.push(b']');
}

fn optional(out: &mut Vec<u8>, name: &str, bytes: Option<&[u8]>) {
    if let Some(bytes) = bytes {
        return hex(out, name, bytes);
    }
    put(out, name);
    put(out, "null");
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
    hex(out, "{\"blockHash\":", &at.block_hash[..]);
    quantity(out, ",\"blockNumber\":", u128::from(at.height));
    let created = tx.to.is_none().then(|| created(tx));
    optional(out, ",\"contractAddress\":", created.as_ref().map(|address| &address[..]));
    quantity(out, ",\"cumulativeGasUsed\":", u128::from(sums.gas));
    let price = receipt.price.unwrap_or_else(|| tx.price_at(sums.paid));
    quantity(out, ",\"effectiveGasPrice\":", price);
    hex(out, ",\"from\":", address(&tx.from));
    quantity(out, ",\"gasUsed\":", u128::from(receipt.gas_used));
    put(out, ",\"logs\":[");
    let logs = chunk.logs.get(receipt.logs.clone()).unwrap_or_default();
    let of_logs = if logs.is_empty() { Vec::new() } else { of_logs(at) };
    for (number, one) in logs.iter().enumerate() {
        put(out, if number > 0 { "," } else { "" });
        log(out, chunk, one, sums.log + number, &of_logs);
    }
    hex(out, "],\"logsBloom\":", sums.bloom);
    quantity(out, ",\"status\":", u128::from(receipt.succeeded));
    optional(out, ",\"to\":", tx.to.as_ref().map(address));
    hex(out, ",\"transactionHash\":", &at.hash[..]);
    quantity(out, ",\"transactionIndex\":", at.index as u128);
    quantity(out, ",\"type\":", u128::from(tx.tx_type()));
    out.push(b'}');
}

/// Text that all logs of a receipt have between their data and their number.
pub(crate) fn of_logs(at: At<'_>) -> Vec<u8> {
    let mut text = Vec::with_capacity(256);
    quantity(&mut text, ",\"blockNumber\":", u128::from(at.height));
    hex(&mut text, ",\"transactionHash\":", &at.hash[..]);
    quantity(&mut text, ",\"transactionIndex\":", at.index as u128);
    hex(&mut text, ",\"blockHash\":", &at.block_hash[..]);
    put(&mut text, ",\"logIndex\":");
    text
}

/// Appends a log, with the text of [`of_logs`].
pub(crate) fn log(out: &mut Vec<u8>, chunk: &Chunk, log: &Lg, number: usize, of_logs: &[u8]) {
    hex(out, "{\"address\":", address(&log.address));
    put(out, ",\"topics\":[");
    for (place, topic) in log.topics().iter().enumerate() {
        hex(out, if place > 0 { "," } else { "" }, topic);
    }
    hex(out, "],\"data\":", chunk.data.get(log.data.clone()).unwrap_or_default());
    out.extend_from_slice(of_logs);
    quantity(out, "", number as u128);
    put(out, ",\"removed\":false}");
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
pub(crate) fn block(out: &mut Vec<u8>, values: &Values, head: Head<'_>, list: Option<&[u8]>) {
    out.push(b'{');
    let mut name = "\"";
    for (at, (key, kind)) in FIELDS.iter().enumerate() {
        for (_, other) in OTHERS.iter().filter(|(before, _)| *before == at) {
            member(out, other, &head, list);
        }
        let only_block = at == SIZE || at == BLOCK_EXTRA_DATA;
        let Some(value) = values.get(at).filter(|_| list.is_some() || !only_block) else {
            continue;
        };
        put(out, name);
        put(out, key);
        // `hash`, the first member that follows from the height, is not the first of all: a node
        // shows `difficulty` always.
        name = ",\"";
        match kind {
            Kind::Quantity => wide(out, "\":", value),
            Kind::Bytes => hex(out, "\":", value),
        }
    }
    put(out, if list.is_some() { ",\"uncles\":[]}" } else { "}" });
}

/// Appends a member without a symbol.
fn member(out: &mut Vec<u8>, name: &str, head: &Head<'_>, list: Option<&[u8]>) {
    match (name, list) {
        ("hash", _) => hex(out, ",\"hash\":", &head.hash[..]),
        ("number", _) => quantity(out, ",\"number\":", u128::from(head.height)),
        ("parentHash", _) => hex(out, ",\"parentHash\":", &head.parent[..]),
        ("totalDifficulty", _) => {
            put(out, ",\"totalDifficulty\":");
            head.total.write(head.height, out);
        }
        (_, Some(list)) => {
            put(out, ",\"transactions\":[");
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
