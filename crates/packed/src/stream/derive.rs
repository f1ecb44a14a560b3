//! Values that follow from others: transaction hashes, addresses of contracts, blooms.

use alloy_primitives::{Address, B256, U256};
use alloy_rlp::{Encodable, Header};
use neve_keccak::keccak256_all;

use crate::stream::facts::{Chunk, Tx, Word, address, kind};
use crate::stream::fold_map::FoldMap;
use crate::stream::tables::BloomBits;
use crate::stream::unwalk::{RECENT_NAME, SHAPE_NAME};

/// Signature in its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signature {
    pub(crate) r: U256,
    pub(crate) s: U256,
    pub(crate) parity: u64,
}

impl Signature {
    pub(crate) fn of(bytes: &[u8; 64]) -> Self {
        let (r, s) = bytes.split_at(32);
        let mut s = crate::stream::tables::left(s, 0);
        let parity = u64::from(s[0] >> 7);
        s[0] &= 0x7f;
        Self { r: U256::from_be_slice(r), s: U256::from_be_bytes(s), parity }
    }

    pub(crate) fn v(&self, tx: &Tx) -> u64 {
        match tx.kind {
            kind::UNPROTECTED => 27 + self.parity,
            kind::LEGACY => {
                tx.chain_id.saturating_mul(2).saturating_add(35).saturating_add(self.parity)
            }
            _ => self.parity,
        }
    }
}

/// Hashes of the transactions of a chunk: Keccak-256 of their EIP-2718 encodings.
pub(crate) fn hashes(chunk: &Chunk, signatures: &[[u8; 64]]) -> Vec<B256> {
    let mut encodings = Encodings::default();
    for (tx, signature) in chunk.txs.iter().zip(signatures) {
        encodings.push(chunk, tx, signature);
    }
    encodings.hashes()
}

/// Encodings of transactions of several chunks, which are hashed together: eight take little longer than one.
#[derive(Debug, Default)]
pub(crate) struct Encodings {
    /// Room that is used again.
    fields: Vec<u8>,
    encoded: Vec<u8>,
    ends: Vec<usize>,
}

impl Encodings {
    /// Bytes of the encodings.
    pub(crate) fn bytes(&self) -> usize {
        self.encoded.len()
    }

    pub(crate) fn push(&mut self, chunk: &Chunk, tx: &Tx, signature: &[u8; 64]) {
        if self.ends.is_empty() {
            self.encoded.reserve(8 << 10); // those of a usual block
        }
        encode(chunk, tx, signature, &mut self.fields, &mut self.encoded);
        self.ends.push(self.encoded.len());
    }

    /// Returns the hashes in the order of the transactions, and has no more of them.
    pub(crate) fn hashes(&mut self) -> Vec<B256> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let pieces = starts.zip(&self.ends).map(|(from, to)| &self.encoded[from..*to]);
        let hashes = keccak256_all(&pieces.collect::<Vec<_>>());
        self.encoded.clear();
        self.ends.clear();
        hashes
    }
}

/// Appends the encoding of a transaction. `fields` is room that is used again.
fn encode(chunk: &Chunk, tx: &Tx, signature: &[u8; 64], fields: &mut Vec<u8>, out: &mut Vec<u8>) {
    fields.clear();
    let input = chunk.data.get(tx.input.clone()).unwrap_or_default();
    if tx.kind >= kind::ACCESS_LIST {
        tx.chain_id.encode(fields);
    }
    tx.nonce.encode(fields);
    if tx.kind == kind::DYNAMIC_FEE {
        tx.priority.encode(fields);
    }
    tx.price.encode(fields);
    tx.gas.encode(fields);
    match &tx.to {
        Some(to) => address(to).encode(fields),
        None => fields.push(0x80),
    }
    U256::from_be_bytes(tx.value).encode(fields);
    input.encode(fields);
    if tx.kind >= kind::ACCESS_LIST {
        encode_access(&tx.access, fields);
    }
    let signature = Signature::of(signature);
    signature.v(tx).encode(fields);
    signature.r.encode(fields);
    signature.s.encode(fields);
    if tx.kind >= kind::ACCESS_LIST {
        out.push(tx.tx_type());
    }
    Header { list: true, payload_length: fields.len() }.encode(out);
    out.extend_from_slice(fields);
}

fn encode_access(access: &[(Word, Vec<Word>)], out: &mut Vec<u8>) {
    let mut list = Vec::new();
    for (of, keys) in access {
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
    Address::from_slice(address(&tx.from)).create(tx.nonce)
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
        let mut blooms = vec![[0; 256]; chunk.receipts.len()];
        // Places of the words that are not known: receipt, name, topic or address.
        let (mut messages, mut uses) = (Vec::new(), Vec::new());
        let mut met: FoldMap<(u32, bool), usize> = FoldMap::default();
        for (bloom, receipt) in blooms.iter_mut().zip(&chunk.receipts) {
            for log in chunk.logs.get(receipt.logs.clone()).unwrap_or_default() {
                let words = std::iter::once(&log.address).chain(log.topics());
                for ((word, name), topic) in
                    words.zip(log.names).zip([false, true, true, true, true])
                {
                    let known = self.table(name).and_then(|(bits, id)| bits.get(id, topic));
                    if let Some(bits) = known {
                        set(bloom, bits);
                        continue;
                    }
                    let message = if topic { &word[..] } else { address(word) };
                    let next = messages.len();
                    let at =
                        if name == 0 { next } else { *met.entry((name, topic)).or_insert(next) };
                    if at == next {
                        messages.push((message, name, topic));
                    }
                    uses.push((receipt.logs.start, at));
                }
            }
        }
        self.finish(chunk, &messages, &uses, &mut blooms);
        blooms
    }

    fn finish(
        &self,
        chunk: &Chunk,
        messages: &[(&[u8], u32, bool)],
        uses: &[(usize, usize)],
        blooms: &mut [[u8; 256]],
    ) {
        let texts: Vec<&[u8]> = messages.iter().map(|(message, ..)| *message).collect();
        let bits: Vec<[u16; 3]> = keccak256_all(&texts).iter().map(bits).collect();
        for ((_, name, topic), bits) in messages.iter().zip(&bits) {
            if let Some((table, id)) = self.table(*name) {
                table.set(id, *topic, *bits);
            }
        }
        let mut uses = uses.iter().peekable();
        for (bloom, receipt) in blooms.iter_mut().zip(&chunk.receipts) {
            if receipt.logs.is_empty() {
                continue;
            }
            while let Some((_, at)) = uses.next_if(|(start, _)| *start == receipt.logs.start) {
                bits.get(*at).into_iter().for_each(|bits| set(bloom, *bits));
            }
        }
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
