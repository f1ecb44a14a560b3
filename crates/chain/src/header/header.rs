//! Block headers of every fork from genesis to Helicon.

use alloy_primitives::{Address, B64, B256, Bloom, Bytes, U256, keccak256};
use alloy_rlp::{EMPTY_STRING_CODE, Encodable};

use crate::rlp;

/// A header. Fields in the order of their encoding, which is what the hash is taken of
/// (coreth, `plugin/evm/customtypes/header_ext.go`).
///
/// The first sixteen are in every C-chain header. The rest came with the forks named beside them
/// and are left out of the encoding behind the last one that is present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Hash of the block before it.
    pub parent_hash: B256,
    /// Hash of the list of uncles, which is always empty.
    pub sha3_uncles: B256,
    /// A constant: fees go to an address whose key is unknown.
    pub miner: Address,
    /// State after this block; from Helicon on, after the block that this one settles.
    pub state_root: B256,
    /// Root of the transactions.
    pub transactions_root: B256,
    /// Root of this block's receipts; from Helicon on, of those of the blocks that it settles.
    pub receipts_root: B256,
    /// Bloom of the same receipts as [`Self::receipts_root`].
    pub logs_bloom: Bloom,
    /// Always 1, in the genesis 0.
    pub difficulty: U256,
    /// Height of the block.
    pub number: u64,
    /// Greatest sum of the gas limits.
    pub gas_limit: u64,
    /// Gas consumed; from Helicon on, the sum of the gas limits.
    pub gas_used: u64,
    /// Seconds since 1970.
    pub timestamp: u64,
    /// State of the fee rule of its fork, and results of warp predicates.
    pub extra_data: Bytes,
    /// Always zero on the C-chain.
    pub mix_hash: B256,
    /// Always zero on the C-chain.
    pub nonce: B64,
    /// Hash of the atomic transactions; zero before Apricot Phase 1. `None` in the header of a
    /// subnet-evm chain, whose encoding has neither this nor [`Self::ext_data_gas_used`].
    pub ext_data_hash: Option<B256>,

    /// Apricot Phase 3. From Helicon on, an upper bound of the price that was charged.
    pub base_fee_per_gas: Option<U256>,
    /// Apricot Phase 4. Zero from Helicon on.
    pub ext_data_gas_used: Option<u64>,
    /// Apricot Phase 4. Zero from Granite on.
    pub block_gas_cost: Option<u64>,
    /// Etna. Zero: the C-chain has no blobs.
    pub blob_gas_used: Option<u64>,
    /// Since Etna, always zero.
    pub excess_blob_gas: Option<u64>,
    /// Etna. Zero: there is no beacon chain.
    pub parent_beacon_block_root: Option<B256>,
    /// Milliseconds since 1970, since Granite.
    pub timestamp_milliseconds: Option<u64>,
    /// Excess of the minimum block delay (ACP-226), since Granite.
    pub min_delay_excess: Option<u64>,
    /// Exponent of the gas target (ACP-176), since Helicon.
    pub target_exponent: Option<u64>,
    /// Exponent of the minimum price (ACP-283), since Helicon.
    pub min_price_exponent: Option<u64>,
    /// Helicon, ACP-194: the last block whose receipts this header commits to.
    pub settled_height: Option<u64>,
    /// Helicon: gas clock after that block.
    pub settled_gas_unix: Option<u64>,
    /// Helicon: gas clock after that block.
    pub settled_gas_numerator: Option<u64>,
    /// Helicon: gas clock after that block.
    pub settled_excess: Option<u64>,
}

impl Header {
    /// Returns the RLP encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        rlp::list(&mut out, |out| {
            self.encode_required(out);
            self.encode_optional(out);
        });
        out
    }

    /// The block's hash.
    pub fn hash(&self) -> B256 {
        keccak256(self.encode())
    }

    /// Height of the block that this one settles, if it is an asynchronous block (ACP-194).
    ///
    /// `None` for a synchronous block, whose header commits to its own receipts: one without the
    /// four settled fields, or with all of them zero, as the genesis of a chain that starts with
    /// Helicon has them (avalanchego, `vms/saevm/hook/hook.go`, `Synchronous`).
    pub fn settles(&self) -> Option<u64> {
        let height = self.settled_height?;
        let unix = self.settled_gas_unix?;
        let numerator = self.settled_gas_numerator?;
        let excess = self.settled_excess?;
        (height | unix | numerator | excess != 0).then_some(height)
    }

    /// Height up to which receipts are proven once this header is known: the settled one, or its
    /// own, since a synchronous block settles itself.
    pub fn settled_through(&self) -> u64 {
        self.settles().unwrap_or(self.number)
    }

    fn encode_required(&self, out: &mut Vec<u8>) {
        self.parent_hash.encode(out);
        self.sha3_uncles.encode(out);
        self.miner.encode(out);
        self.state_root.encode(out);
        self.transactions_root.encode(out);
        self.receipts_root.encode(out);
        self.logs_bloom.encode(out);
        self.difficulty.encode(out);
        self.number.encode(out);
        self.gas_limit.encode(out);
        self.gas_used.encode(out);
        self.timestamp.encode(out);
        self.extra_data.encode(out);
        self.mix_hash.encode(out);
        self.nonce.encode(out);
        if let Some(hash) = &self.ext_data_hash {
            hash.encode(out);
        }
    }

    /// An absent field is an empty string if a present one follows, else nothing.
    fn encode_optional(&self, out: &mut Vec<u8>) {
        let fields = self.optional();
        let behind_last = fields.iter().rposition(|field| field.1.is_some()).map_or(0, |at| at + 1);
        for (name, field) in fields.iter().take(behind_last) {
            match field {
                Some(value) => value.encode(out),
                // The header of a subnet-evm chain does not have this field at all.
                None if *name == EXT_DATA_GAS_USED && self.ext_data_hash.is_none() => {}
                None => out.push(EMPTY_STRING_CODE),
            }
        }
    }

    /// The optional fields by the names that they have in answers.
    pub(crate) fn optional(&self) -> [(&'static str, Option<&dyn Encodable>); 14] {
        fn field<T: Encodable>(field: Option<&T>) -> Option<&dyn Encodable> {
            field.map(|value| value as &dyn Encodable)
        }
        [
            ("baseFeePerGas", field(self.base_fee_per_gas.as_ref())),
            (EXT_DATA_GAS_USED, field(self.ext_data_gas_used.as_ref())),
            ("blockGasCost", field(self.block_gas_cost.as_ref())),
            ("blobGasUsed", field(self.blob_gas_used.as_ref())),
            ("excessBlobGas", field(self.excess_blob_gas.as_ref())),
            ("parentBeaconBlockRoot", field(self.parent_beacon_block_root.as_ref())),
            ("timestampMilliseconds", field(self.timestamp_milliseconds.as_ref())),
            ("minDelayExcess", field(self.min_delay_excess.as_ref())),
            ("targetExponent", field(self.target_exponent.as_ref())),
            ("minPriceExponent", field(self.min_price_exponent.as_ref())),
            ("settledHeight", field(self.settled_height.as_ref())),
            ("settledGasUnix", field(self.settled_gas_unix.as_ref())),
            ("settledGasNumerator", field(self.settled_gas_numerator.as_ref())),
            ("settledExcess", field(self.settled_excess.as_ref())),
        ]
    }
}

/// The one optional field that the headers of other chains do not have at all.
pub(crate) const EXT_DATA_GAS_USED: &str = "extDataGasUsed";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_are_cut_or_empty() {
        let base = Header { ext_data_hash: Some(B256::ZERO), ..Header::default() };
        let with_fee = Header { base_fee_per_gas: Some(U256::from(7)), ..base.clone() };
        let with_delay = Header { min_delay_excess: Some(7), ..base.clone() };
        let payload = |header: &Header| header.encode()[3..].to_vec();
        assert_eq!(payload(&with_fee), [payload(&base), vec![7]].concat());
        let empty = [0x80; 7].to_vec();
        assert_eq!(payload(&with_delay), [payload(&base), empty, vec![7]].concat());
    }

    #[test]
    fn headers_of_other_chains_lack_two_fields() {
        let cchain = Header {
            ext_data_hash: Some(B256::ZERO),
            block_gas_cost: Some(1),
            ..Header::default()
        };
        let other = Header { ext_data_hash: None, ..cchain.clone() };
        assert_eq!(cchain.encode().len(), other.encode().len() + 33 + 1);
    }

    #[test]
    fn zero_settled_fields_are_a_genesis() {
        let mut header = Header { number: 5, ..Header::default() };
        assert_eq!((header.settles(), header.settled_through()), (None, 5));
        header.settled_height = Some(0);
        header.settled_gas_unix = Some(0);
        header.settled_gas_numerator = Some(0);
        assert_eq!(header.settles(), None, "three of four");
        header.settled_excess = Some(0);
        assert_eq!(header.settles(), None, "all zero");
        header.settled_gas_unix = Some(1);
        assert_eq!((header.settles(), header.settled_through()), (Some(0), 0));
    }
}
