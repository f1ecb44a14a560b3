//! Keys, and transactions of types 0, 1 and 2 signed with them.

use alloy_consensus::{SignableTransaction, TxEip1559, TxEip2930, TxLegacy};
use alloy_eips::eip2718::Encodable2718;
use alloy_eips::eip2930::AccessList;
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, b256};
use k256::ecdsa::SigningKey;
use k256::sha2::{Digest as _, Sha256};

use super::kinds::Kind;

/// The key that every local avalanchego network funds; it is printed in avalanchego's sources.
const LOCAL_KEY: B256 = b256!("56289e99c94b6912bfc12adc093c9b51124f0dc54ac7a766b2bc5ccf558d8027");
/// Price of types 0 and 1, and the cap of type 2: far above any base fee seen here (1 wei).
const MAX_FEE: u128 = 100_000_000_000;

/// A private key and what it can sign.
pub(crate) struct Account {
    key: SigningKey,
}

/// Form of a transaction on the wire.
pub(crate) enum Wire {
    /// Type 0 with the chain id in its signature.
    Legacy,
    /// Type 0 valid on every chain (before EIP-155).
    Unprotected,
    /// Type 1, with an access list (EIP-2930).
    AccessList(AccessList),
    /// Type 2, with a dynamic fee (EIP-1559).
    Dynamic(AccessList),
}

/// A transaction before it has a nonce.
pub(crate) struct Draft {
    /// Kind, in the feeder's words.
    pub(crate) kind: Kind,
    /// Type on the wire.
    pub(crate) wire: Wire,
    /// Whom it calls, or a creation.
    pub(crate) to: TxKind,
    /// Value of the transaction in wei.
    pub(crate) value: U256,
    /// Call data or init code.
    pub(crate) input: Bytes,
    /// Gas limit of the transaction.
    pub(crate) gas: u64,
    /// Tip in wei for type 2.
    pub(crate) tip: u128,
}

/// A transaction as the node takes it.
pub(crate) struct Signed {
    /// Kind, in the feeder's words.
    pub(crate) kind: Kind,
    /// Hash of the transaction.
    pub(crate) hash: B256,
    /// Bytes for `eth_sendRawTransaction`.
    pub(crate) raw: Bytes,
}

impl Account {
    /// The account that a local network funds, on all three chains.
    pub(crate) fn local() -> Self {
        Self::from_secret(LOCAL_KEY)
    }

    /// Another account, the same one each time for the same name.
    pub(crate) fn named(name: &str) -> Self {
        Self::from_secret(sha256(name.as_bytes()))
    }

    /// The account of a secret.
    fn from_secret(secret: B256) -> Self {
        let key = SigningKey::from_slice(secret.as_slice());
        Self { key: key.expect("a hash is outside the curve's order once in 2^128") }
    }

    /// The C-chain address.
    pub(crate) fn address(&self) -> Address {
        let point = self.key.verifying_key().to_encoded_point(false);
        Address::from_raw_public_key(&point.as_bytes()[1..])
    }

    /// r, s and the recovery bit over a hash: the form of Avalanche's own transactions.
    pub(crate) fn sign_bytes(&self, hash: B256) -> [u8; 65] {
        let signed = self.key.sign_prehash_recoverable(hash.as_slice());
        let (signature, recovery) = signed.expect("signing a 32-byte hash cannot fail");
        let mut bytes = [0; 65];
        bytes[..64].copy_from_slice(&signature.to_bytes());
        bytes[64] = recovery.to_byte();
        bytes
    }

    /// Signs a draft under the nonce.
    pub(crate) fn sign(&self, draft: Draft, nonce: u64, chain_id: u64) -> Signed {
        let kind = draft.kind;
        let Draft { wire, to, value, input, gas: gas_limit, tip, .. } = draft;
        let (hash, raw) = match wire {
            Wire::Legacy | Wire::Unprotected => {
                let chain_id = matches!(wire, Wire::Legacy).then_some(chain_id);
                let gas_price = MAX_FEE;
                self.seal(TxLegacy { chain_id, nonce, gas_price, gas_limit, to, value, input })
            }
            Wire::AccessList(access_list) => self.seal(TxEip2930 {
                chain_id,
                nonce,
                gas_price: MAX_FEE,
                gas_limit,
                to,
                value,
                access_list,
                input,
            }),
            Wire::Dynamic(access_list) => self.seal(TxEip1559 {
                chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: MAX_FEE,
                max_priority_fee_per_gas: tip,
                to,
                value,
                access_list,
                input,
            }),
        };
        Signed { kind, hash, raw }
    }

    /// Signature, hash and bytes of any type.
    fn seal<T>(&self, tx: T) -> (B256, Bytes)
    where
        T: SignableTransaction<Signature>,
        alloy_consensus::Signed<T>: Encodable2718,
    {
        let bytes = self.sign_bytes(tx.signature_hash());
        let signature = Signature::from_bytes_and_parity(&bytes[..64], bytes[64] == 1);
        let signed = tx.into_signed(signature);
        (signed.trie_hash(), signed.encoded_2718().into())
    }
}

/// Avalanche's hash for signatures, transaction ids and checksums.
pub(crate) fn sha256(bytes: &[u8]) -> B256 {
    B256::new(Sha256::digest(bytes).into())
}
