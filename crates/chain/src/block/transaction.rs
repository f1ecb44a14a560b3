//! Transactions, and the encodings that their hashes and signatures are taken of.

use std::ops::Range;

use alloy_primitives::{Address, B256, U256, keccak256};
use alloy_rlp::Encodable;

use crate::json::Hex;
use crate::rlp;

/// A transaction of a block, as the answer has it.
///
/// There are three types. Consensus admits no other: blob transactions (type 3) need blob gas,
/// which a header must not use (coreth, `plugin/evm/wrapped_block.go`, `syntacticVerify`; one
/// without blobs is refused in `core/state_transition.go`), later types are unknown to libevm, and
/// from Helicon on these three are listed by name (saevm, `worstcase/state.go`, `ApplyTx`).
#[derive(Clone, Debug)]
pub struct Transaction<'a> {
    /// The object in the block's text.
    pub span: Range<u32>,
    /// Hash, in an unchecked block the claimed one.
    pub hash: B256,
    /// Type and what comes with it.
    pub kind: Kind,
    /// Sender. Follows from the signature; proven only where senders are checked.
    pub from: Address,
    /// Receiver; `None` creates a contract.
    pub to: Option<Address>,
    /// Sender's count of transactions.
    pub nonce: u64,
    /// Gas limit of the transaction.
    pub gas: u64,
    /// The price that the node shows: for type 2 what the header's base fee makes of the caps.
    pub gas_price: U256,
    /// Value in wei.
    pub value: U256,
    /// Input, or init code of a contract.
    pub input: Hex<'a>,
    /// Signature: parity, perhaps with the chain id in it (EIP-155).
    pub v: u64,
    /// Value `r` of the signature.
    pub r: U256,
    /// Value `s` of the signature.
    pub s: U256,
    /// Place that the response claims.
    pub(crate) links: Links,
}

/// Place that the response claims for a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) block_hash: B256,
    pub(crate) block_number: u64,
    pub(crate) index: u64,
}

/// The three types of transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Type 0. Without a chain id the signature holds on every chain (before EIP-155).
    Legacy {
        /// Chain id in the answer; it follows from `v`.
        chain_id: Option<u64>,
    },
    /// Type 1, EIP-2930.
    AccessList {
        /// The chain it is for.
        chain_id: u64,
        /// Access list (EIP-2930).
        access_list: Vec<Access>,
    },
    /// Type 2, EIP-1559.
    DynamicFee {
        /// The chain it is for.
        chain_id: u64,
        /// Access list (EIP-2930).
        access_list: Vec<Access>,
        /// Highest price of a unit of gas.
        max_fee_per_gas: U256,
        /// Greatest priority fee.
        max_priority_fee_per_gas: U256,
    },
}

/// An entry of an access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Account of these slots.
    pub address: Address,
    /// Storage slots of the account.
    pub storage_keys: Vec<B256>,
}

impl Transaction<'_> {
    /// Type by EIP-2718.
    pub fn tx_type(&self) -> u8 {
        match self.kind {
            Kind::Legacy { .. } => 0,
            Kind::AccessList { .. } => 1,
            Kind::DynamicFee { .. } => 2,
        }
    }

    /// Chain id, if it has one.
    pub fn chain_id(&self) -> Option<u64> {
        match self.kind {
            Kind::Legacy { chain_id } => chain_id,
            Kind::AccessList { chain_id, .. } | Kind::DynamicFee { chain_id, .. } => Some(chain_id),
        }
    }

    /// The price that this transaction pays at a base fee: the lesser of its cap and of base fee
    /// plus priority fee; without a base fee, the cap (coreth, `internal/ethapi/api.go`,
    /// `effectiveGasPrice`).
    pub fn price_at(&self, base_fee: Option<U256>) -> U256 {
        match (&self.kind, base_fee) {
            (Kind::DynamicFee { max_fee_per_gas, max_priority_fee_per_gas, .. }, Some(base)) => {
                base.saturating_add(*max_priority_fee_per_gas).min(*max_fee_per_gas)
            }
            (Kind::DynamicFee { max_fee_per_gas, .. }, None) => *max_fee_per_gas,
            _ => self.gas_price,
        }
    }

    /// Appends the EIP-2718 encoding, whose hash is the transaction's.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.put_type(out);
        rlp::list(out, |out| {
            self.put_fields(out);
            self.v.encode(out);
            self.r.encode(out);
            self.s.encode(out);
        });
    }

    /// The hash that was signed.
    pub fn signing_hash(&self) -> B256 {
        let mut out = Vec::with_capacity(256 + self.input.len());
        self.put_type(&mut out);
        rlp::list(&mut out, |out| {
            self.put_fields(out);
            // EIP-155; the other types have their chain id among the fields.
            if let Kind::Legacy { chain_id: Some(chain_id) } = self.kind {
                chain_id.encode(out);
                out.extend_from_slice(&[0x80, 0x80]);
            }
        });
        keccak256(out)
    }

    fn put_type(&self, out: &mut Vec<u8>) {
        if !matches!(self.kind, Kind::Legacy { .. }) {
            out.push(self.tx_type());
        }
    }

    /// Appends all fields but the signature.
    fn put_fields(&self, out: &mut Vec<u8>) {
        match &self.kind {
            Kind::Legacy { .. } => {
                self.nonce.encode(out);
                self.gas_price.encode(out);
            }
            Kind::AccessList { chain_id, .. } => {
                chain_id.encode(out);
                self.nonce.encode(out);
                self.gas_price.encode(out);
            }
            Kind::DynamicFee { chain_id, max_fee_per_gas, max_priority_fee_per_gas, .. } => {
                chain_id.encode(out);
                self.nonce.encode(out);
                max_priority_fee_per_gas.encode(out);
                max_fee_per_gas.encode(out);
            }
        }
        self.put_call(out);
        self.put_access_list(out);
    }

    /// The fields that all types have in this order.
    fn put_call(&self, out: &mut Vec<u8>) {
        self.gas.encode(out);
        match &self.to {
            Some(to) => to.encode(out),
            // The creation of a contract: the address is the empty string.
            None => out.push(0x80),
        }
        self.value.encode(out);
        self.input.append_rlp(out);
    }

    /// Appends the access list, which type 0 does not have.
    fn put_access_list(&self, out: &mut Vec<u8>) {
        if let Kind::AccessList { access_list, .. } | Kind::DynamicFee { access_list, .. } =
            &self.kind
        {
            rlp::list(out, |out| access_list.iter().for_each(|access| access.encode(out)));
        }
    }
}

impl Access {
    fn encode(&self, out: &mut Vec<u8>) {
        rlp::list(out, |out| {
            self.address.encode(out);
            rlp::list(out, |out| self.storage_keys.iter().for_each(|key| key.encode(out)));
        });
    }
}
