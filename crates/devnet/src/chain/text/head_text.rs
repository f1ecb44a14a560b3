//! The JSON of a header as subscribers to `newHeads` see it: in the struct's order, and null where
//! a block's answer leaves something out.

use alloy_primitives::B256;
use neve_chain::Header;

use super::text::Text;
use super::version::Version;

/// Writes the `result` of a notification.
pub(crate) fn write(header: &Header, hash: B256, version: Version) -> Vec<u8> {
    let mut text = Text::with_capacity(2_048);
    required(&mut text, header);
    granite(&mut text, header);
    if version == Version::V1_15 {
        helicon(&mut text, header);
    }
    text.raw(",\"hash\":").bytes(hash).raw("}");
    text.into_bytes()
}

fn required(text: &mut Text, header: &Header) {
    text.raw("{\"parentHash\":").bytes(header.parent_hash);
    text.raw(",\"sha3Uncles\":").bytes(header.sha3_uncles);
    text.raw(",\"miner\":").bytes(header.miner);
    text.raw(",\"stateRoot\":").bytes(header.state_root);
    text.raw(",\"transactionsRoot\":").bytes(header.transactions_root);
    text.raw(",\"receiptsRoot\":").bytes(header.receipts_root);
    text.raw(",\"logsBloom\":").bytes(header.logs_bloom);
    text.raw(",\"difficulty\":").quantity(header.difficulty.saturating_to::<u128>());
    text.raw(",\"number\":").quantity(header.number);
    text.raw(",\"gasLimit\":").quantity(header.gas_limit);
    text.raw(",\"gasUsed\":").quantity(header.gas_used);
    text.raw(",\"timestamp\":").quantity(header.timestamp);
    text.raw(",\"extraData\":").bytes(&header.extra_data);
    text.raw(",\"mixHash\":").bytes(header.mix_hash);
    text.raw(",\"nonce\":").bytes(header.nonce);
    text.raw(",\"extDataHash\":").bytes(header.ext_data_hash.unwrap_or_default());
}

fn granite(text: &mut Text, header: &Header) {
    optional(text, "baseFeePerGas", header.base_fee_per_gas.map(|fee| fee.saturating_to()));
    optional(text, "extDataGasUsed", header.ext_data_gas_used);
    optional(text, "blockGasCost", header.block_gas_cost);
    optional(text, "blobGasUsed", header.blob_gas_used);
    optional(text, "excessBlobGas", header.excess_blob_gas);
    text.raw(",\"parentBeaconBlockRoot\":");
    match header.parent_beacon_block_root {
        Some(root) => text.bytes(root),
        None => text.raw("null"),
    };
    optional(text, "timestampMilliseconds", header.timestamp_milliseconds);
    optional(text, "minDelayExcess", header.min_delay_excess);
}

fn helicon(text: &mut Text, header: &Header) {
    optional(text, "targetExponent", header.target_exponent);
    optional(text, "minPriceExponent", header.min_price_exponent);
    optional(text, "settledHeight", header.settled_height);
    optional(text, "settledGasUnix", header.settled_gas_unix);
    optional(text, "settledGasNumerator", header.settled_gas_numerator);
    optional(text, "settledExcess", header.settled_excess);
}

fn optional(text: &mut Text, key: &str, value: Option<u64>) {
    text.raw(",\"").raw(key).raw("\":");
    match value {
        Some(value) => text.quantity(value),
        None => text.raw("null"),
    };
}
