//! Facts of a block: what its two texts say, without what follows from something else.

use std::ops::Range;

use alloy_primitives::U256;
use neve_chain::{Access, Block, Hex, Kind, Log, Receipt, Receipts, Transaction};

use crate::error::Reason;

/// A word: 32 bytes; addresses are padded on the left.
pub(crate) type Word = [u8; 32];

/// Most transactions and logs of a block in the form of fields.
pub(crate) const TRANSACTIONS_MAX: usize = 65_534;
pub(crate) const LOGS_MAX: usize = 1 << 20;

/// Form of a transaction: its type, and the way in which it names a chain.
pub(crate) mod kind {
    /// Legacy, without a chain id in `v`.
    pub(crate) const UNPROTECTED: u8 = 0;
    /// Legacy, with a chain id in `v` (EIP-155).
    pub(crate) const LEGACY: u8 = 1;
    /// Type of a transaction with an access list (EIP-2930).
    pub(crate) const ACCESS_LIST: u8 = 2;
    /// Type of a transaction with a dynamic fee (EIP-1559).
    pub(crate) const DYNAMIC_FEE: u8 = 3;
}

/// Facts of a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tx {
    pub(crate) kind: u8,
    pub(crate) chain_id: u64,
    pub(crate) from: Word,
    pub(crate) to: Option<Word>,
    pub(crate) nonce: u64,
    pub(crate) gas: u64,
    /// Greatest price of type 2, else the price.
    pub(crate) price: u128,
    /// Greatest priority fee of type 2.
    pub(crate) priority: u128,
    pub(crate) value: Word,
    /// Place of the input in the chunk's data.
    pub(crate) input: Range<usize>,
    pub(crate) access: Vec<(Word, Vec<Word>)>,
}

/// Facts of a receipt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rx {
    pub(crate) succeeded: bool,
    pub(crate) gas_used: u64,
    /// Price paid, if the base fee does not explain it.
    pub(crate) price: Option<u128>,
    /// Place of its logs in the chunk's logs.
    pub(crate) logs: Range<usize>,
}

/// Facts of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lg {
    pub(crate) address: Word,
    pub(crate) topics: [Word; 4],
    pub(crate) topic_count: usize,
    /// Place of the data in the chunk's data.
    pub(crate) data: Range<usize>,
    /// Names of the address and the topics, by which equal words are known; 0 is none.
    pub(crate) names: [u32; 5],
}

/// Consecutive transactions of a block, with their receipts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) txs: Vec<Tx>,
    pub(crate) receipts: Vec<Rx>,
    pub(crate) logs: Vec<Lg>,
    pub(crate) data: Vec<u8>,
    /// Bytes of memory of all access lists.
    pub(crate) access_bytes: usize,
}

impl Chunk {
    /// Returns the bytes that its fields take in memory.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        let lists = self.txs.len() * size_of::<Tx>() + self.logs.len() * size_of::<Lg>();
        lists + self.data.len() + self.access_bytes
    }

    /// Returns the bytes of memory that it takes, with places that its lists do not use.
    pub(crate) fn memory(&self) -> usize {
        self.txs.capacity() * size_of::<Tx>()
            + self.receipts.capacity() * size_of::<Rx>()
            + self.logs.capacity() * size_of::<Lg>()
            + self.data.capacity()
            + self.access_bytes
    }

    /// Makes space for usual counts.
    pub(crate) fn reserve(&mut self, txs: usize, logs: usize) {
        // A forged frame may name far more than it holds.
        self.txs.reserve(txs.min(32));
        self.receipts.reserve(if logs > 0 { txs.min(32) } else { 0 });
        self.logs.reserve(logs.min(256));
        self.data.reserve(8 << 10);
    }
}

impl Lg {
    pub(crate) fn topics(&self) -> &[Word] {
        self.topics.get(..self.topic_count).unwrap_or_default()
    }
}

impl Tx {
    pub(crate) fn tx_type(&self) -> u8 {
        self.kind.saturating_sub(1)
    }

    /// Price at a base fee, as the node shows it.
    pub(crate) fn price_at(&self, base_fee: Option<u128>) -> u128 {
        match base_fee {
            Some(base) if self.kind == kind::DYNAMIC_FEE => {
                base.saturating_add(self.priority).min(self.price)
            }
            _ => self.price,
        }
    }
}

pub(crate) fn pad(address: &[u8; 20]) -> Word {
    let mut word = [0; 32];
    word[12..].copy_from_slice(address);
    word
}

/// Returns the low 20 bytes of a word.
pub(crate) fn address(word: &Word) -> &[u8; 20] {
    word.last_chunk().unwrap_or(&[0; 20]) // a word is longer
}

pub(crate) fn narrow(value: U256) -> Result<u128, Reason> {
    u128::try_from(value).map_err(|_| Reason::Quantity)
}

/// Signature of a transaction: `r`, then `s` with the parity in its highest bit.
pub(crate) fn signature(tx: &Transaction<'_>) -> Result<[u8; 64], Reason> {
    let parity = match tx.kind {
        Kind::Legacy { chain_id: None } => tx.v.checked_sub(27),
        Kind::Legacy { chain_id: Some(id) } => {
            id.checked_mul(2).and_then(|twice| tx.v.checked_sub(35)?.checked_sub(twice))
        }
        _ => Some(tx.v),
    };
    let parity = parity.filter(|parity| *parity <= 1).ok_or(Reason::Signature)?;
    let mut out = [0; 64];
    out[..32].copy_from_slice(&tx.r.to_be_bytes::<32>());
    out[32..].copy_from_slice(&tx.s.to_be_bytes::<32>());
    // The bit is free in signatures of the chain (EIP-2: a low s): the parity takes it.
    if out[32] >> 7 == 1 {
        return Err(Reason::Signature);
    }
    out[32] |= (parity as u8) << 7;
    Ok(out)
}

/// Takes the facts of transactions `range` and of their receipts.
pub(crate) fn chunk(
    block: &Block<'_>,
    receipts: &Receipts<'_>,
    range: Range<usize>,
    paid: Option<u128>,
) -> Result<Chunk, Reason> {
    let mut chunk = Chunk::default();
    let transactions = block.transactions.get(range.clone()).unwrap_or_default();
    for transaction in transactions {
        let tx = tx(transaction, &mut chunk.data)?;
        chunk.txs.push(tx);
    }
    let found = receipts.receipts.get(range).ok_or(Reason::ReceiptsText)?;
    for (receipt, tx) in found.iter().zip(&chunk.txs) {
        let start = chunk.logs.len();
        let logs = receipts.logs_of(receipt).iter();
        chunk.logs.extend(logs.map(|log| lg(log, &mut chunk.data)));
        chunk.receipts.push(rx(receipt, tx.price_at(paid), start..chunk.logs.len())?);
    }
    chunk.access_bytes = access_bytes(&chunk.txs);
    Ok(chunk)
}

fn access_bytes(txs: &[Tx]) -> usize {
    let access = txs.iter().flat_map(|tx| &tx.access);
    access.map(|(_, keys)| size_of::<(Word, Vec<Word>)>() + size_of_val(&keys[..])).sum()
}

fn append(data: &mut Vec<u8>, hex: Hex<'_>) -> Range<usize> {
    let start = data.len();
    data.resize(start + hex.len(), 0);
    // The digits were checked when the text was read.
    let _ = const_hex::decode_to_slice(hex.digits(), &mut data[start..]);
    start..data.len()
}

fn tx(transaction: &Transaction<'_>, data: &mut Vec<u8>) -> Result<Tx, Reason> {
    let (price, priority) = prices(transaction);
    Ok(Tx {
        kind: form(&transaction.kind),
        chain_id: transaction.chain_id().unwrap_or_default(),
        from: pad(&transaction.from.0.0),
        to: transaction.to.map(|to| pad(&to.0.0)),
        nonce: transaction.nonce,
        gas: transaction.gas,
        price: narrow(price)?,
        priority: narrow(priority)?,
        value: transaction.value.to_be_bytes(),
        input: append(data, transaction.input),
        access: access_list(&transaction.kind),
    })
}

/// Returns the form of a transaction, see [`kind`].
fn form(kind: &Kind) -> u8 {
    match kind {
        Kind::Legacy { chain_id: None } => kind::UNPROTECTED,
        Kind::Legacy { chain_id: Some(_) } => kind::LEGACY,
        Kind::AccessList { .. } => kind::ACCESS_LIST,
        Kind::DynamicFee { .. } => kind::DYNAMIC_FEE,
    }
}

/// Returns the greatest price and the greatest priority fee of type 2, else the price and zero.
fn prices(transaction: &Transaction<'_>) -> (U256, U256) {
    match &transaction.kind {
        Kind::DynamicFee { max_fee_per_gas: price, max_priority_fee_per_gas: priority, .. } => {
            (*price, *priority)
        }
        _ => (transaction.gas_price, U256::ZERO),
    }
}

fn access_list(kind: &Kind) -> Vec<(Word, Vec<Word>)> {
    let list = match kind {
        Kind::Legacy { .. } => return Vec::new(),
        Kind::AccessList { access_list, .. } | Kind::DynamicFee { access_list, .. } => access_list,
    };
    let entry = |entry: &Access| {
        (pad(&entry.address.0.0), entry.storage_keys.iter().map(|key| key.0).collect())
    };
    list.iter().map(entry).collect()
}

/// Takes the facts of a receipt. `explained` is the price by the base fee that was paid.
fn rx(receipt: &Receipt, explained: u128, logs: Range<usize>) -> Result<Rx, Reason> {
    let price = narrow(receipt.effective_gas_price)?;
    if receipt.status > 1 {
        return Err(Reason::ReceiptsText);
    }
    Ok(Rx {
        succeeded: receipt.status == 1,
        gas_used: receipt.gas_used,
        price: (price != explained).then_some(price),
        logs,
    })
}

/// Takes the facts of a log.
fn lg(log: &Log<'_>, data: &mut Vec<u8>) -> Lg {
    let mut topics = [[0; 32]; 4];
    topics.iter_mut().zip(&*log.topics).for_each(|(to, topic)| *to = topic.0);
    let data = append(data, log.data);
    let (address, topic_count) = (pad(&log.address.0.0), log.topics.len());
    Lg { address, topics, topic_count, data, names: [0; 5] }
}
