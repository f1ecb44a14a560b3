//! The order of a chunk's fields in its two streams. [`crate::stream::unwalk`] reads the same order.

use crate::stream::facts::{Chunk, Lg, Rx, Tx, Word, kind};

/// Words that a stream can refer to by their duty.
pub(crate) mod slot {
    pub(crate) const FROM: usize = 0;
    pub(crate) const TO: usize = 1;
    pub(crate) const VALUE: usize = 2;
    pub(crate) const ADDRESS: usize = 3;
    pub(crate) const LAST_ADDRESS: usize = 4;
    pub(crate) const COUNT: usize = 5;
}

/// Shape of a transaction: the fields that repeat together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TxShape {
    /// Kind, plus [`Self::OTHER_CHAIN`], plus [`Self::HAS_TO`].
    pub(crate) flags: u8,
    pub(crate) to: Word,
    pub(crate) selector: [u8; 4],
    pub(crate) input_bytes: u64,
}

impl TxShape {
    /// Flag: the transaction names another chain id than the file's.
    pub(crate) const OTHER_CHAIN: u8 = 4;
    /// Flag: the transaction creates no contract.
    pub(crate) const HAS_TO: u8 = 8;

    pub(crate) fn of(tx: &Tx, input: &[u8], chain_id: u64) -> Self {
        // A signature from before EIP-155 names no chain.
        let other = tx.kind != kind::UNPROTECTED && tx.chain_id != chain_id;
        let flags = tx.kind
            | if other { Self::OTHER_CHAIN } else { 0 }
            | if tx.to.is_some() { Self::HAS_TO } else { 0 };
        let selector = input.first_chunk().copied().unwrap_or_default();
        let input_bytes = input.len() as u64;
        Self { flags, to: tx.to.unwrap_or_default(), selector, input_bytes }
    }

    pub(crate) fn kind(&self) -> u8 {
        self.flags & 3
    }
}

/// Shape of a log: the fields that repeat together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LogShape {
    pub(crate) address: Word,
    pub(crate) topic_count: u8,
    /// The first topic, zero if there is none.
    pub(crate) topic: Word,
    pub(crate) data_bytes: u64,
}

impl LogShape {
    pub(crate) fn of(log: &Lg) -> Self {
        Self {
            address: log.address,
            topic_count: log.topic_count as u8,
            topic: log.topics[0],
            data_bytes: log.data.len() as u64,
        }
    }
}

/// Receives the fields of a chunk in their order: counts them, or writes them.
pub(crate) trait Sink {
    fn word(&mut self, word: &Word);
    fn number(&mut self, number: u128);
    fn flag(&mut self, flag: u8);
    fn raw(&mut self, bytes: &[u8]);
    fn tx_shape(&mut self, shape: &TxShape);
    /// The next log of a receipt, or its end.
    fn log_shape(&mut self, shape: Option<&LogShape>);
    /// Begins the receipt of a transaction of this shape.
    fn begin_receipt(&mut self, shape: &TxShape);
    fn set(&mut self, slot: usize, word: Word);
}

/// Walks over the transactions of a chunk.
pub(crate) fn transactions(chunk: &Chunk, chain_id: u64, sink: &mut impl Sink) {
    for tx in &chunk.txs {
        let input = chunk.data.get(tx.input.clone()).unwrap_or_default();
        let shape = TxShape::of(tx, input, chain_id);
        sink.tx_shape(&shape);
        if shape.flags & TxShape::OTHER_CHAIN != 0 {
            sink.number(u128::from(tx.chain_id));
        }
        // The places of `set` belong to the format: the reader sets the same slots there.
        sink.set(slot::TO, shape.to);
        sink.word(&tx.from);
        sink.set(slot::FROM, tx.from);
        numbers(tx, sink);
        sink.word(&tx.value);
        sink.set(slot::VALUE, tx.value);
        // The shape has the first four bytes.
        body(if input.len() >= 4 { &input[4..] } else { input }, sink);
        if tx.kind >= kind::ACCESS_LIST {
            access_list(&tx.access, sink);
        }
    }
}

/// Walks over nonce, gas and prices of a transaction.
fn numbers(tx: &Tx, sink: &mut impl Sink) {
    sink.number(u128::from(tx.nonce));
    sink.number(u128::from(tx.gas));
    sink.number(tx.price);
    if tx.kind == kind::DYNAMIC_FEE {
        sink.number(tx.priority);
    }
}

fn access_list(access: &[(Word, Vec<Word>)], sink: &mut impl Sink) {
    sink.number(access.len() as u128);
    for (address, keys) in access {
        sink.word(address);
        sink.number(keys.len() as u128);
        keys.iter().for_each(|key| sink.word(key));
    }
}

/// Walks over the receipts of a chunk, behind its transactions.
pub(crate) fn receipts(chunk: &Chunk, chain_id: u64, sink: &mut impl Sink) {
    for (tx, receipt) in chunk.txs.iter().zip(&chunk.receipts) {
        let input = chunk.data.get(tx.input.clone()).unwrap_or_default();
        let shape = TxShape::of(tx, input, chain_id);
        sink.set(slot::FROM, tx.from);
        sink.set(slot::TO, shape.to);
        sink.set(slot::VALUE, tx.value);
        sink.flag(u8::from(receipt.succeeded) | u8::from(receipt.price.is_some()) << 1);
        if let Some(price) = receipt.price {
            sink.number(price);
        }
        sink.number(u128::from(receipt.gas_used));
        sink.begin_receipt(&shape);
        logs(chunk, receipt, sink);
    }
}

/// Walks over the logs of a receipt, and their end.
fn logs(chunk: &Chunk, receipt: &Rx, sink: &mut impl Sink) {
    let mut last = [0; 32];
    for log in chunk.logs.get(receipt.logs.clone()).unwrap_or_default() {
        sink.log_shape(Some(&LogShape::of(log)));
        sink.set(slot::LAST_ADDRESS, last);
        sink.set(slot::ADDRESS, log.address);
        log.topics().iter().skip(1).for_each(|topic| sink.word(topic));
        body(chunk.data.get(log.data.clone()).unwrap_or_default(), sink);
        last = log.address;
    }
    sink.log_shape(None);
}

/// Words, then the bytes that make no word.
fn body(bytes: &[u8], sink: &mut impl Sink) {
    let (words, tail) = bytes.as_chunks::<32>();
    words.iter().for_each(|word| sink.word(word));
    sink.raw(tail);
}
