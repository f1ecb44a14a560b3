//! Transactions and the encodings that their hashes and signatures are taken of (EIP-2718).

use std::ops::Range;

use alloy_primitives::{Address, B256, keccak256};
use alloy_rlp::{EMPTY_STRING_CODE, Encodable, Header};
use neve_chain::Access;

use super::sign::Signature;

/// A place in a body's bytes.
pub(crate) type Span = Range<usize>;

/// A transaction of a block that is being made.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) kind: Kind,
    pub(crate) from: Address,
    pub(crate) nonce: u64,
    /// `None` creates a contract.
    pub(crate) to: Option<Address>,
    pub(crate) value: u128,
    /// Place in the bytes of the body.
    pub(crate) input: Span,
    pub(crate) gas: u64,
    /// The price of types 0 and 1, the cap of type 2.
    pub(crate) max_fee: u128,
    /// Priority fee, of type 2.
    pub(crate) priority_fee: u128,
    /// Access list, of types 1 and 2.
    pub(crate) access_list: Vec<Access>,
    pub(crate) v: u64,
    pub(crate) r: B256,
    pub(crate) s: B256,
    pub(crate) hash: B256,
}

/// The types of transaction that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With the chain id in the signature.
    Legacy,
    /// Valid on every chain (before EIP-155).
    Unprotected,
    AccessList,
    DynamicFee,
}

impl Kind {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Legacy | Self::Unprotected => 0,
            Self::AccessList => 1,
            Self::DynamicFee => 2,
        }
    }

    pub(crate) fn is_typed(self) -> bool {
        self.number() > 0
    }

    /// `v`: the parity, in legacy transactions with what EIP-155 adds.
    pub(crate) fn v(self, odd: bool, chain_id: u64) -> u64 {
        let parity = u64::from(odd);
        match self {
            Self::Legacy => chain_id.saturating_mul(2).saturating_add(35 + parity),
            Self::Unprotected => 27 + parity,
            Self::AccessList | Self::DynamicFee => parity,
        }
    }
}

impl Transaction {
    /// Price that it pays for a unit of gas at a base fee.
    pub(crate) fn price_at(&self, base_fee: u128) -> u128 {
        match self.kind {
            Kind::DynamicFee => self.max_fee.min(base_fee + self.priority_fee),
            _ => self.max_fee,
        }
    }

    /// Writes all fields but the signature.
    pub(crate) fn encode_fields(&self, chain_id: u64, input: &[u8], out: &mut Vec<u8>) {
        if self.kind.is_typed() {
            chain_id.encode(out);
        }
        self.nonce.encode(out);
        if self.kind == Kind::DynamicFee {
            self.priority_fee.encode(out);
        }
        self.max_fee.encode(out);
        self.gas.encode(out);
        match &self.to {
            Some(to) => to.encode(out),
            None => out.push(EMPTY_STRING_CODE),
        }
        self.value.encode(out);
        input.encode(out);
        if self.kind.is_typed() {
            encode_access_list(&self.access_list, out);
        }
    }

    /// The hash that is signed, of fields that were encoded.
    pub(crate) fn signing_hash(&self, chain_id: u64, fields: &mut Vec<u8>) -> B256 {
        let length = fields.len();
        if self.kind == Kind::Legacy {
            chain_id.encode(fields);
            // EIP-155: the chain id and two zeros stand where the signature will be.
            fields.extend([EMPTY_STRING_CODE; 2]);
        }
        let mut encoding = Vec::with_capacity(fields.len() + 8);
        self.wrap(fields, &mut encoding);
        fields.truncate(length);
        keccak256(encoding)
    }

    /// Takes a signature. Appends the encoding to `out` and computes the hash.
    pub(crate) fn finish(
        &mut self,
        signature: Signature,
        chain_id: u64,
        fields: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) {
        self.v = self.kind.v(signature.odd, chain_id);
        (self.r, self.s) = (signature.r, signature.s);
        self.v.encode(fields);
        for word in [&self.r, &self.s] {
            let zeros = word.iter().take_while(|byte| **byte == 0).count();
            word[zeros..].encode(fields);
        }
        let start = out.len();
        self.wrap(fields, out);
        self.hash = keccak256(out.get(start..).unwrap_or_default());
    }

    /// The type, and a list around the fields.
    fn wrap(&self, fields: &[u8], out: &mut Vec<u8>) {
        if self.kind.is_typed() {
            out.push(self.kind.number());
        }
        list(fields, out);
    }
}

/// Appends a list of items that are encoded already.
fn list(items: &[u8], out: &mut Vec<u8>) {
    Header { list: true, payload_length: items.len() }.encode(out);
    out.extend_from_slice(items);
}

fn encode_access_list(access_list: &[Access], out: &mut Vec<u8>) {
    let mut entries = Vec::new();
    for access in access_list {
        let (mut entry, mut keys) = (Vec::new(), Vec::new());
        access.storage_keys.iter().for_each(|key| key.encode(&mut keys));
        access.address.encode(&mut entry);
        list(&keys, &mut entry);
        list(&entry, &mut entries);
    }
    list(&entries, out);
}
