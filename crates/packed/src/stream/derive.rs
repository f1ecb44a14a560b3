//! Values that follow from others: transaction hashes, addresses of contracts, blooms.

use alloy_primitives::{Address, B256};
use alloy_rlp::{Encodable, Header};
use neve_keccak::keccak256_all;

use crate::stream::facts::{Chunk, Tx, Word, address, kind};
use crate::stream::tables::BloomBits;
use crate::stream::unwalk::{RECENT_NAME, SHAPE_NAME};

/// Signature in its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signature {
    pub(crate) r: Word,
    pub(crate) s: Word,
    pub(crate) parity: u64,
}

impl Signature {
    pub(crate) fn of(bytes: &[u8; 64]) -> Self {
        let [r, mut s] = [0, 1].map(|half| bytes.as_chunks::<32>().0[half]);
        // The top bit is free for it: by EIP-2 each valid `s` is below 2^255.
        let parity = u64::from(s[0] >> 7);
        s[0] &= 0x7f;
        Self { r, s, parity }
    }

    pub(crate) fn v(&self, tx: &Tx) -> u64 {
        match tx.kind {
            kind::UNPROTECTED => 27 + self.parity,
            kind::LEGACY => {
                // EIP-155. A forged chain id saturates, and then the hash differs.
                tx.chain_id.saturating_mul(2).saturating_add(35).saturating_add(self.parity)
            }
            _ => self.parity,
        }
    }
}

/// Hashes of the transactions of a chunk: Keccak-256 of their EIP-2718 encodings.
pub(crate) fn hashes(chunk: &Chunk, signatures: &[[u8; 64]]) -> Vec<B256> {
    let mut messages = Messages::default();
    for (tx, signature) in chunk.txs.iter().zip(signatures) {
        messages.transaction(chunk, tx, signature);
    }
    messages.hashes()
}

/// Messages that are hashed together, because eight take little longer than one: encodings of transactions
/// of several chunks, and words of their blooms.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// Buffer that is used again.
    fields: Vec<u8>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Messages {
    /// Bytes of the messages.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the encoding of a transaction.
    pub(crate) fn transaction(&mut self, chunk: &Chunk, tx: &Tx, signature: &[u8; 64]) {
        if self.ends.is_empty() {
            self.bytes.reserve(12 << 10); // those of a usual block
            self.ends.reserve(64);
            self.fields.reserve(1 << 10);
        }
        encode(chunk, tx, signature, &mut self.fields, &mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    fn word(&mut self, word: &Word, is_topic: bool) {
        let bytes = if is_topic { &word[..] } else { address(word) };
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }

    /// Returns the hashes in the order of the messages, and has no more of them.
    pub(crate) fn hashes(&mut self) -> Vec<B256> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let pieces = starts.zip(&self.ends).map(|(from, to)| &self.bytes[from..*to]);
        let hashes = keccak256_all(&pieces.collect::<Vec<_>>());
        self.bytes.clear();
        self.ends.clear();
        hashes
    }
}

/// Appends the encoding of a transaction. `fields` is a buffer that is used again.
fn encode(chunk: &Chunk, tx: &Tx, signature: &[u8; 64], fields: &mut Vec<u8>, out: &mut Vec<u8>) {
    fields.clear();
    let input = chunk.data.get(tx.input.clone()).unwrap_or_default();
    if tx.kind >= kind::ACCESS_LIST {
        small(fields, tx.chain_id);
    }
    small(fields, tx.nonce);
    if tx.kind == kind::DYNAMIC_FEE {
        wide(fields, tx.priority);
    }
    wide(fields, tx.price);
    small(fields, tx.gas);
    match &tx.to {
        Some(to) => {
            fields.push(0x80 + 20);
            fields.extend_from_slice(address(to));
        }
        // The creation of a contract: the address is the empty string.
        None => fields.push(0x80),
    }
    word(fields, &tx.value);
    input.encode(fields);
    if tx.kind >= kind::ACCESS_LIST {
        encode_access(&tx.access, fields);
    }
    let signature = Signature::of(signature);
    small(fields, signature.v(tx));
    word(fields, &signature.r);
    word(fields, &signature.s);
    // EIP-2718: the type stands before the list.
    if tx.kind >= kind::ACCESS_LIST {
        out.push(tx.tx_type());
    }
    Header { list: true, payload_length: fields.len() }.encode(out);
    out.extend_from_slice(fields);
}

/// Appends a number in RLP.
#[expect(clippy::big_endian_bytes, reason = "the order of RLP")]
fn small(out: &mut Vec<u8>, value: u64) {
    let zeros = value.leading_zeros() / 8;
    if value < 0x80 {
        return out.push(if value == 0 { 0x80 } else { value as u8 });
    }
    let end = out.len() + 1 + 8 - zeros as usize;
    // Eight bytes are copied and the rest is cut off: a copy of fixed length needs no loop.
    out.push(0x80 + 8 - zeros as u8);
    out.extend_from_slice(&(value << (8 * zeros)).to_be_bytes());
    out.truncate(end);
}

/// Appends a number in RLP.
#[expect(clippy::big_endian_bytes, reason = "the order of RLP")]
fn wide(out: &mut Vec<u8>, value: u128) {
    match u64::try_from(value) {
        Ok(value) => small(out, value),
        Err(_) => long(out, &value.to_be_bytes()),
    }
}

/// Appends a number of 32 bytes in RLP.
#[expect(clippy::big_endian_bytes, reason = "the order of RLP")]
fn word(out: &mut Vec<u8>, word: &Word) {
    if word[0] != 0 {
        out.push(0x80 + 32);
        return out.extend_from_slice(word);
    }
    match word.split_last_chunk() {
        Some((high, low)) if *high == [0; 24] => small(out, u64::from_be_bytes(*low)),
        _ => long(out, word),
    }
}

/// Appends a big-endian number of more than one byte in RLP.
fn long(out: &mut Vec<u8>, bytes: &[u8]) {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    out.push(0x80 + (bytes.len() - zeros) as u8);
    out.extend_from_slice(&bytes[zeros..]);
}

fn encode_access(access: &[(Word, Vec<Word>)], out: &mut Vec<u8>) {
    let mut list = Vec::new();
    for (of, keys) in access {
        // A string of 32 bytes, or of 20, has a head of one byte.
        let keys_length = keys.len() * 33;
        let keys_head = Header { list: true, payload_length: keys_length };
        let payload_length = 21 + keys_head.length() + keys_length;
        Header { list: true, payload_length }.encode(&mut list);
        address(of).encode(&mut list);
        keys_head.encode(&mut list);
        keys.iter().for_each(|key| key[..].encode(&mut list));
    }
    Header { list: true, payload_length: list.len() }.encode(out);
    out.extend_from_slice(&list);
}

/// Address of the contract that a transaction creates.
pub(crate) fn created(tx: &Tx) -> Address {
    Address::new(*address(&tx.from)).create(tx.nonce)
}

/// Bits of words in blooms, by table, by shape and by chunk.
#[derive(Debug)]
pub(crate) struct KnownBits {
    pub(crate) words: BloomBits,
    pub(crate) shapes: BloomBits,
}

impl KnownBits {
    fn table(&self, name: u32) -> Option<(&BloomBits, usize)> {
        match name {
            0 | RECENT_NAME.. => None,
            SHAPE_NAME.. => Some((&self.shapes, (name - SHAPE_NAME) as usize)),
            _ => Some((&self.words, name as usize - 1)),
        }
    }

    /// Blooms of the receipts of a chunk.
    pub(crate) fn blooms(&self, chunk: &Chunk) -> Vec<[u8; 256]> {
        let mut messages = Messages::default();
        let begun = self.begin(chunk, &mut messages);
        self.finish(begun, &messages.hashes())
    }

    /// Begins the blooms of the receipts of a chunk. Words whose bits are not known become messages.
    pub(crate) fn begin(&self, chunk: &Chunk, messages: &mut Messages) -> Blooms {
        let blooms = vec![[0; 256]; chunk.receipts.len()];
        let uses = Vec::with_capacity(chunk.logs.len());
        let mut begun = Blooms { bits: blooms, unknown: Vec::new(), uses, met: Vec::new() };
        for (at, receipt) in chunk.receipts.iter().enumerate() {
            for log in chunk.logs.get(receipt.logs.clone()).unwrap_or_default() {
                let [of_address, of_topics @ ..] = &log.names;
                self.add(&mut begun, messages, at, (&log.address, *of_address), false);
                for (topic, name) in log.topics().iter().zip(of_topics) {
                    self.add(&mut begun, messages, at, (topic, *name), true);
                }
            }
        }
        begun
    }

    /// Adds a word with its name to the bloom of receipt `at`.
    #[inline]
    fn add(
        &self,
        begun: &mut Blooms,
        messages: &mut Messages,
        at: usize,
        (word, name): (&Word, u32),
        topic: bool,
    ) {
        if let Some((table, id)) = self.table(name)
            && let Some(bits) = table.get(id, topic)
        {
            return set(&mut begun.bits[at], bits);
        }
        let next = begun.unknown.len();
        let first = begun.first_use(name, topic, next);
        if first == next {
            messages.word(word, topic);
            begun.unknown.push((name, topic));
        }
        begun.uses.push((at as u32, first as u32));
    }

    /// Ends the blooms with the hashes of their unknown words.
    pub(crate) fn finish(&self, begun: Blooms, hashes: &[B256]) -> Vec<[u8; 256]> {
        let Blooms { bits: mut blooms, unknown, uses, .. } = begun;
        for ((name, topic), hash) in unknown.iter().zip(hashes) {
            if let Some((table, id)) = self.table(*name) {
                table.set(id, *topic, bits(hash));
            }
        }
        for (at, word) in uses {
            let bloom = blooms.get_mut(at as usize);
            if let (Some(bloom), Some(hash)) = (bloom, hashes.get(word as usize)) {
                set(bloom, bits(hash));
            }
        }
        blooms
    }
}

/// Blooms of a chunk's receipts that lack the bits of unknown words.
#[derive(Debug)]
pub(crate) struct Blooms {
    bits: Vec<[u8; 256]>,
    /// Name of each unknown word, and whether it is a topic.
    unknown: Vec<(u32, bool)>,
    /// Receipt and unknown word of each use.
    uses: Vec<(u32, u32)>,
    /// Unknown word of each recent one, as an address and as a topic, plus one.
    met: Vec<[u32; 2]>,
}

impl Blooms {
    /// Number of words that became messages.
    pub(crate) fn unknown(&self) -> usize {
        self.unknown.len()
    }

    /// Returns the number of the unknown word with this name: `next`, unless it was met. Words of tables are
    /// known from their first use on.
    fn first_use(&mut self, name: u32, topic: bool, next: usize) -> usize {
        // Words of tables keep their bits from one chunk to the next: see `finish`.
        let Some(recent) = name.checked_sub(RECENT_NAME) else { return next };
        let recent = recent as usize;
        if self.met.len() <= recent {
            self.met.resize((recent + 1).next_multiple_of(64), [0; 2]);
        }
        let place = &mut self.met[recent][usize::from(topic)];
        if *place == 0 {
            *place = next as u32 + 1;
        }
        *place as usize - 1
    }
}

/// The low eleven bits of each of the first three pairs of bytes.
fn bits(hash: &B256) -> [u16; 3] {
    [0, 2, 4].map(|at| (u16::from(hash[at]) << 8 | u16::from(hash[at + 1])) & 0x7ff)
}

/// Bit 0 is the lowest of the last byte.
fn set(bloom: &mut [u8; 256], bits: [u16; 3]) {
    for bit in bits {
        bloom[255 - usize::from(bit >> 3)] |= 1 << (bit & 7);
    }
}
