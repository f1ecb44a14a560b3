//! Transactions in a block's answer.

use std::ops::Range;

use alloy_primitives::{Address, B256, U256};

use super::transaction::{Access, Kind, Links, Transaction};
use crate::json::{Cursor, Hex, Key, Object, Presence};
use crate::refusal::ProofError;

/// A struct: its order is that of the fields (coreth, `internal/ethapi/api.go`, `RPCTransaction`).
/// The two members of blob transactions are not listed: there are none.
pub(crate) static TRANSACTION: Object = Object { name: "transaction", sorted: false, keys: &KEYS };

static KEYS: [Key; 20] = [
    ("blockHash", Presence::Always),
    ("blockNumber", Presence::Always),
    ("from", Presence::Always),
    ("gas", Presence::Always),
    ("gasPrice", Presence::Always),
    ("maxFeePerGas", Presence::Optional),
    ("maxPriorityFeePerGas", Presence::Optional),
    ("hash", Presence::Always),
    ("input", Presence::Always),
    ("nonce", Presence::Always),
    ("to", Presence::Always),
    ("transactionIndex", Presence::Always),
    ("value", Presence::Always),
    ("type", Presence::Always),
    ("accessList", Presence::Optional),
    ("chainId", Presence::Optional),
    ("v", Presence::Always),
    ("r", Presence::Always),
    ("s", Presence::Always),
    ("yParity", Presence::Optional),
];

static ACCESS: Object = Object {
    name: "access list entry",
    sorted: false,
    keys: &[("address", Presence::Always), ("storageKeys", Presence::Always)],
};

/// A transaction that is being read.
#[derive(Default)]
struct TransactionReader<'a> {
    block_hash: B256,
    block_number: u64,
    index: u64,
    from: Address,
    gas: u64,
    gas_price: U256,
    max_fee_per_gas: Option<U256>,
    max_priority_fee_per_gas: Option<U256>,
    hash: B256,
    input: Hex<'a>,
    nonce: u64,
    to: Option<Address>,
    value: U256,
    tx_type: u64,
    access_list: Option<Vec<Access>>,
    chain_id: Option<u64>,
    v: u64,
    r: U256,
    s: U256,
    y_parity: Option<u64>,
}

/// Reads the transaction at `index`.
pub(crate) fn read<'a>(c: &mut Cursor<'a>, index: usize) -> Result<Transaction<'a>, ProofError> {
    let mut reader = TransactionReader::default();
    let ((), span) =
        c.spanned(|c| c.object(&TRANSACTION, |cursor, key, _| reader.member(cursor, key)))?;
    let kind = reader.kind(index)?;
    Ok(reader.finish(span, kind))
}

impl<'a> TransactionReader<'a> {
    fn member(&mut self, c: &mut Cursor<'a>, key: &str) -> Result<(), ProofError> {
        match key {
            "blockHash" => self.block_hash = c.fixed()?,
            "blockNumber" => self.block_number = c.quantity()?,
            "from" => self.from = c.fixed()?,
            "gas" => self.gas = c.quantity()?,
            "gasPrice" => self.gas_price = c.quantity_256()?,
            "maxFeePerGas" => self.max_fee_per_gas = Some(c.quantity_256()?),
            "maxPriorityFeePerGas" => self.max_priority_fee_per_gas = Some(c.quantity_256()?),
            "hash" => self.hash = c.fixed()?,
            "input" => self.input = c.bytes()?,
            "nonce" => self.nonce = c.quantity()?,
            "to" => self.to = optional_address(c)?,
            "transactionIndex" => self.index = c.quantity()?,
            "value" => self.value = c.quantity_256()?,
            "type" => self.tx_type = c.quantity()?,
            "accessList" => self.access_list = Some(access_list(c)?),
            "chainId" => self.chain_id = Some(c.quantity()?),
            "v" => self.v = c.quantity()?,
            "r" => self.r = c.quantity_256()?,
            "s" => self.s = c.quantity_256()?,
            "yParity" => self.y_parity = Some(c.quantity()?),
            _ => c.skip()?,
        }
        Ok(())
    }

    fn finish(self, span: Range<u32>, kind: Kind) -> Transaction<'a> {
        let Self { block_hash, block_number, index, .. } = self;
        Transaction {
            span,
            hash: self.hash,
            kind,
            from: self.from,
            to: self.to,
            nonce: self.nonce,
            gas: self.gas,
            gas_price: self.gas_price,
            value: self.value,
            input: self.input,
            v: self.v,
            r: self.r,
            s: self.s,
            links: Links { block_hash, block_number, index },
        }
    }

    /// Exactly the members of its type: one too many would be served unproven.
    fn kind(&mut self, index: usize) -> Result<Kind, ProofError> {
        self.check_parity(index)?;
        let caps = (self.max_fee_per_gas, self.max_priority_fee_per_gas);
        match (self.tx_type, self.access_list.take(), caps, self.chain_id) {
            (0, None, (None, None), _) => self.legacy(index),
            (1, Some(access_list), (None, None), Some(chain_id)) => {
                Ok(Kind::AccessList { chain_id, access_list })
            }
            (2, Some(access_list), (Some(max_fee), Some(max_priority_fee)), Some(chain_id)) => {
                Ok(Kind::DynamicFee {
                    chain_id,
                    access_list,
                    max_fee_per_gas: max_fee,
                    max_priority_fee_per_gas: max_priority_fee,
                })
            }
            (0..=2, ..) => form(index, "a member of another type, or one too few"),
            (found, ..) => Err(ProofError::TransactionType { index, found }),
        }
    }

    /// Checks both members with the parity of types 1 and 2.
    fn check_parity(&self, index: usize) -> Result<(), ProofError> {
        // The node shows both; for these types both are the bare parity (EIP-2718, EIP-2930).
        let typed = matches!(self.tx_type, 1 | 2);
        if typed && !(self.v <= 1 && self.y_parity == Some(self.v)) {
            return form(index, "v and yParity are not the same bit");
        }
        Ok(())
    }

    /// `chainId` is shown iff `v` holds one (EIP-155: 35 or 36 plus twice the id).
    fn legacy(&self, index: usize) -> Result<Kind, ProofError> {
        let in_v = match self.v {
            // Signed before EIP-155, or without its protection: valid on any chain.
            27 | 28 => None,
            v if v >= 35 => Some((v - 35) / 2),
            _ => return form(index, "v of no legacy signature"),
        };
        if self.chain_id != in_v || self.y_parity.is_some() {
            return form(index, "chainId or yParity does not fit v");
        }
        Ok(Kind::Legacy { chain_id: in_v })
    }
}

/// Refuses a transaction whose members do not fit its type.
fn form<T>(index: usize, what: &'static str) -> Result<T, ProofError> {
    Err(ProofError::TransactionForm { index, what })
}

/// An address or `null`.
pub(crate) fn optional_address(c: &mut Cursor<'_>) -> Result<Option<Address>, ProofError> {
    if c.null()? { Ok(None) } else { c.fixed().map(Some) }
}

fn access_list(c: &mut Cursor<'_>) -> Result<Vec<Access>, ProofError> {
    let mut list = Vec::new();
    c.list(|c| {
        let mut access = Access { address: Address::ZERO, storage_keys: Vec::new() };
        c.object(&ACCESS, |c, key, _| {
            match key {
                "address" => access.address = c.fixed()?,
                _ => c.list(|c| {
                    access.storage_keys.push(c.fixed()?);
                    Ok(())
                })?,
            }
            Ok(())
        })?;
        list.push(access);
        Ok(())
    })?;
    Ok(list)
}
