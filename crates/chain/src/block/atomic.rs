//! Atomic transactions: imports from and exports to the other primary chains, which stand in a
//! block's extra data and have no receipts.
//!
//! The linear codec is big-endian and without padding: a u16 version, then values one behind the
//! other, lists with a u32 count before them, interfaces with a u32 type before them (avalanchego,
//! `codec/linearcodec`; types in coreth, `plugin/evm/atomic/codec.go`). From Apricot Phase 5 on the
//! data is a list of transactions, before it is one.

#![expect(clippy::big_endian_bytes, reason = "the codec is big-endian")]

use std::ops::Range;

use alloy_primitives::B256;
use sha2::{Digest, Sha256};

use crate::refusal::Malformed;

/// Gas of a byte of an unsigned transaction (coreth, `plugin/evm/atomic/tx.go`, `TxBytesGas`).
const GAS_PER_BYTE: u64 = 1;
/// Gas of a signature (avalanchego, `vms/secp256k1fx/input.go`, `CostPerSignature`).
const GAS_PER_SIGNATURE: u64 = 1_000;
/// Gas of any atomic transaction from Apricot Phase 5 on (coreth, plugin/evm/upgrade/ap5).
const GAS_BASE: u64 = 10_000;

/// The only version of the codec.
const VERSION: u16 = 0;
const VERSION_LENGTH: usize = 2;

/// Type numbers, by the order of registration in the codec.
const IMPORT: u32 = 0;
const EXPORT: u32 = 1;
const TRANSFER_INPUT: u32 = 5;
const TRANSFER_OUTPUT: u32 = 7;
const CREDENTIAL: u32 = 9;

/// Lengths of the fixed parts.
const ADDRESS: usize = 20;
const HASH: usize = 32;
const SIGNATURE: usize = 65;

/// Direction of an atomic transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicKind {
    /// From another chain to the C-chain.
    Import,
    /// From the C-chain to another.
    Export,
}

/// An atomic transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtomicTx {
    /// Direction of the transfer.
    pub kind: AtomicKind,
    /// Number of the network.
    pub network_id: u32,
    /// The C-chain's id.
    pub blockchain_id: B256,
    /// The chain imported from or exported to.
    pub peer_chain: B256,
    /// Id: SHA-256 of the signed bytes with the codec's version before them.
    pub id: B256,
    /// The signed bytes, without the version, in the extra data.
    pub span: Range<usize>,
    /// Length of the unsigned bytes, with the version.
    unsigned_length: usize,
    signatures: u64,
}

impl AtomicTx {
    /// Gas that it costs, from Apricot Phase 5 on.
    pub fn gas(&self) -> u64 {
        self.gas_before_apricot_5().saturating_add(GAS_BASE)
    }

    /// Gas that it cost in Apricot Phase 4.
    pub fn gas_before_apricot_5(&self) -> u64 {
        let bytes = (self.unsigned_length as u64).saturating_mul(GAS_PER_BYTE);
        bytes.saturating_add(self.signatures.saturating_mul(GAS_PER_SIGNATURE))
    }
}

/// Reads the extra data of a block from Apricot Phase 5 on: none or several transactions.
pub fn parse_batch(ext_data: &[u8]) -> Result<Vec<AtomicTx>, Malformed> {
    if ext_data.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = CodecReader::new(ext_data)?;
    let count = reader.count(MINIMUM)?;
    if count == 0 {
        // An empty batch must be written as no data at all, or hashes would not be unique.
        return Err(reader.expected("transactions"));
    }
    let transactions = (0..count).map(|_| reader.transaction()).collect::<Result<_, _>>()?;
    reader.end()?;
    Ok(transactions)
}

/// Reads the extra data of a block before Apricot Phase 5: none or one transaction.
pub fn parse_single(ext_data: &[u8]) -> Result<Option<AtomicTx>, Malformed> {
    if ext_data.is_empty() {
        return Ok(None);
    }
    let mut reader = CodecReader::new(ext_data)?;
    let transaction = reader.transaction()?;
    reader.end()?;
    Ok(Some(transaction))
}

/// Bytes of the shortest transaction: type, network, two chains and three empty lists.
const MINIMUM: usize = 4 + 4 + 2 * HASH + 3 * 4;

/// Reads the codec. Work is bounded by the data: each count is compared with what is left.
struct CodecReader<'d> {
    data: &'d [u8],
    at: usize,
}

impl<'d> CodecReader<'d> {
    fn new(data: &'d [u8]) -> Result<Self, Malformed> {
        let mut reader = Self { data, at: 0 };
        match reader.take::<VERSION_LENGTH>()? {
            version if u16::from_be_bytes(version) == VERSION => Ok(reader),
            _ => Err(Malformed { at: 0, expected: "version 0" }),
        }
    }

    fn transaction(&mut self) -> Result<AtomicTx, Malformed> {
        let start = self.at;
        let kind = self.kind()?;
        let network_id = self.word()?;
        let blockchain_id = B256::new(self.take()?);
        let peer_chain = B256::new(self.take()?);
        let signatures = self.transfer(kind)?;
        // Before the credentials: the gas of an atomic transaction counts the bytes without them.
        let unsigned_length = VERSION_LENGTH + self.at - start;
        self.list(8, Self::credential)?;
        let span = start..self.at;
        Ok(AtomicTx {
            kind,
            network_id,
            blockchain_id,
            peer_chain,
            id: self.id(span.clone()),
            span,
            unsigned_length,
            signatures,
        })
    }

    fn kind(&mut self) -> Result<AtomicKind, Malformed> {
        let start = self.at;
        match self.word()? {
            IMPORT => Ok(AtomicKind::Import),
            EXPORT => Ok(AtomicKind::Export),
            _ => Err(Malformed { at: start, expected: "an import or export" }),
        }
    }

    /// Id of the transaction with these signed bytes.
    fn id(&self, span: Range<usize>) -> B256 {
        let signed = self.data.get(span).unwrap_or_default();
        let id = Sha256::new().chain_update(VERSION.to_be_bytes()).chain_update(signed).finalize();
        B256::from_slice(&id)
    }

    /// Reads inputs and outputs. Gives the number of signatures.
    fn transfer(&mut self, kind: AtomicKind) -> Result<u64, Malformed> {
        match kind {
            AtomicKind::Import => self.import(),
            AtomicKind::Export => self.export(),
        }
    }

    /// Outputs of the other chain become balances of this one. Gives the number of signatures.
    fn import(&mut self) -> Result<u64, Malformed> {
        let mut signatures = 0;
        self.list(HASH + 4 + HASH + 4 + 8 + 4, |reader| {
            reader.skip(HASH + 4 + HASH)?; // output's transaction and index, asset
            reader.expect(TRANSFER_INPUT, "a transfer input")?;
            reader.skip(8)?; // amount
            let signers = reader.count(4)?;
            signatures += signers as u64;
            reader.skip(signers * 4)
        })?;
        // Balances: address, amount and asset. Signatures are of the inputs alone.
        self.list(ADDRESS + 8 + HASH, |reader| reader.skip(ADDRESS + 8 + HASH))?;
        Ok(signatures)
    }

    /// Balances of this chain become outputs of the other. Gives the number of signatures.
    fn export(&mut self) -> Result<u64, Malformed> {
        let input = ADDRESS + 8 + HASH + 8;
        // Each input is of one account, which signs once.
        let signatures = self.list(input, |reader| reader.skip(input))?;
        self.list(HASH + 4 + 8 + 8 + 4 + 4, |reader| {
            reader.skip(HASH)?; // asset
            reader.expect(TRANSFER_OUTPUT, "a transfer output")?;
            reader.skip(8 + 8 + 4)?; // amount, lock time, threshold
            reader.list(ADDRESS, |reader| reader.skip(ADDRESS)).map(drop)
        })?;
        Ok(signatures as u64)
    }

    fn credential(&mut self) -> Result<(), Malformed> {
        self.expect(CREDENTIAL, "a credential")?;
        self.list(SIGNATURE, |reader| reader.skip(SIGNATURE)).map(drop)
    }

    /// Reads a list and gives its length.
    fn list(
        &mut self,
        minimum: usize,
        mut item: impl FnMut(&mut Self) -> Result<(), Malformed>,
    ) -> Result<usize, Malformed> {
        let count = self.count(minimum)?;
        (0..count).try_for_each(|_| item(self))?;
        Ok(count)
    }

    /// A count of items of at least `minimum` bytes each.
    fn count(&mut self, minimum: usize) -> Result<usize, Malformed> {
        let count = self.word()? as usize;
        let left = self.data.len() - self.at;
        if count > left / minimum { Err(self.expected("as many items")) } else { Ok(count) }
    }

    fn expect(&mut self, word: u32, expected: &'static str) -> Result<(), Malformed> {
        let at = self.at;
        if self.word()? == word { Ok(()) } else { Err(Malformed { at, expected }) }
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_be_bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.data.get(self.at..).and_then(<[u8]>::first_chunk);
        let bytes = *bytes.ok_or_else(|| self.expected("more bytes"))?;
        self.at += N;
        Ok(bytes)
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Malformed> {
        // A length in the data may be any number: it must not carry the cursor beyond the end.
        if bytes > self.data.len() - self.at {
            return Err(self.expected("more bytes"));
        }
        self.at += bytes;
        Ok(())
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.at == self.data.len() { Ok(()) } else { Err(self.expected("the end")) }
    }

    fn expected(&self, expected: &'static str) -> Malformed {
        Malformed { at: self.at, expected }
    }
}
