//! Heads as subscribers to `newHeads` get them, made from a block or header answer.

use std::fmt::Display;

use alloy_primitives::{B256, hex};

use crate::header::{ClaimedHeader, Header};
use crate::refusal::ProofError;

/// Keys of a head. The form follows from its release, not from the
/// height: v1.15 writes the Helicon keys before Helicon too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderForm {
    /// 25 keys: avalanchego v1.14, whose header ends with Granite.
    V1_14,
    /// 31 keys: avalanchego v1.15, whose header has six more of Helicon, `null` in a synchronous
    /// block.
    V1_15,
}

/// The `result` of an `eth_subscription` notification of `newHeads`, from a stored answer about the
/// block or its header.
///
/// A head is the header itself in the order of its fields, hash last, where the answers are sorted
/// maps; a field that its fork lacks is `null`, where they leave it out; `size`, `totalDifficulty`,
/// transactions and uncles are not in it (coreth, `plugin/evm/customtypes/header_ext.go` and its
/// generated `HeaderSerializable.MarshalJSON`; the place of the Helicon keys as recorded).
///
/// The hash is the answer's: stored answers are proven.
pub fn new_head(json: &[u8], form: HeaderForm) -> Result<Vec<u8>, ProofError> {
    let answer = ClaimedHeader::parse(json)?;
    let header = &answer.header;
    let mut members = Members::new();
    members.required(header);
    members.until_granite(header);
    if form == HeaderForm::V1_15 {
        members.helicon(header);
    }
    members.add("hash", Some(answer.hash));
    Ok(members.finish())
}

/// An object that is being written.
struct Members(String);

impl Members {
    fn new() -> Self {
        // A bloom and a dozen hashes; more only for the results of warp predicates.
        Self(String::with_capacity(2048))
    }

    /// Appends a member; every value is a string of hex or `null`.
    fn add(&mut self, key: &str, value: Option<impl Display>) {
        let opening = if self.0.is_empty() { "{\"" } else { ",\"" };
        let value = value.map(|value| format!("\":\"{value}\""));
        for piece in [opening, key, value.as_deref().unwrap_or("\":null")] {
            self.0.push_str(piece);
        }
    }

    /// Appends a quantity.
    fn quantity(&mut self, key: &str, value: Option<u64>) {
        self.add(key, value.map(|value| format!("{value:#x}")));
    }

    /// The fields of every header. Addresses are not checksummed.
    fn required(&mut self, header: &Header) {
        self.add("parentHash", Some(header.parent_hash));
        self.add("sha3Uncles", Some(header.sha3_uncles));
        self.add("miner", Some(hex::encode_prefixed(header.miner)));
        self.add("stateRoot", Some(header.state_root));
        self.add("transactionsRoot", Some(header.transactions_root));
        self.add("receiptsRoot", Some(header.receipts_root));
        self.add("logsBloom", Some(header.logs_bloom));
        self.add("difficulty", Some(format!("{:#x}", header.difficulty)));
        self.quantity("number", Some(header.number));
        self.quantity("gasLimit", Some(header.gas_limit));
        self.quantity("gasUsed", Some(header.gas_used));
        self.quantity("timestamp", Some(header.timestamp));
        self.add("extraData", Some(&header.extra_data));
        self.add("mixHash", Some(header.mix_hash));
        self.add("nonce", Some(header.nonce));
        self.add("extDataHash", Some(header.ext_data_hash.unwrap_or(B256::ZERO)));
    }

    /// Appends the keys of the forks up to Granite.
    fn until_granite(&mut self, header: &Header) {
        self.add("baseFeePerGas", header.base_fee_per_gas.map(|fee| format!("{fee:#x}")));
        self.quantity("extDataGasUsed", header.ext_data_gas_used);
        self.quantity("blockGasCost", header.block_gas_cost);
        self.quantity("blobGasUsed", header.blob_gas_used);
        self.quantity("excessBlobGas", header.excess_blob_gas);
        self.add("parentBeaconBlockRoot", header.parent_beacon_block_root);
        self.quantity("timestampMilliseconds", header.timestamp_milliseconds);
        self.quantity("minDelayExcess", header.min_delay_excess);
    }

    /// Appends the keys of Helicon.
    fn helicon(&mut self, header: &Header) {
        self.quantity("targetExponent", header.target_exponent);
        self.quantity("minPriceExponent", header.min_price_exponent);
        self.quantity("settledHeight", header.settled_height);
        self.quantity("settledGasUnix", header.settled_gas_unix);
        self.quantity("settledGasNumerator", header.settled_gas_numerator);
        self.quantity("settledExcess", header.settled_excess);
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.push('}');
        self.0.into_bytes()
    }
}
