//! The JSON of a block: keys of the block sorted, those of a transaction in their struct's order.

use std::ops::Range;

use alloy_primitives::B256;
use neve_chain::Header;

use super::text::Text;
use crate::chain::content::{Body, Kind, Transaction};

/// Place where the fields are that other answers about the block lack or show otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// Byte range of the value of `hash`; the next three fields are those of other members.
    pub(crate) hash: Range<usize>,
    pub(crate) miner: Range<usize>,
    pub(crate) nonce: Range<usize>,
    pub(crate) total_difficulty: Range<usize>,
    /// The list of transactions, with its brackets.
    pub(crate) list: Range<usize>,
    /// Members, each with one of the commas beside it.
    pub(crate) ext_data: Range<usize>,
    pub(crate) size: Range<usize>,
    pub(crate) transactions: Range<usize>,
    pub(crate) uncles: Range<usize>,
    /// Byte range of each transaction.
    pub(crate) each: Vec<Range<usize>>,
}

/// A block to be written down.
pub(crate) struct Sealed<'b> {
    pub(crate) header: &'b Header,
    pub(crate) hash: B256,
    pub(crate) size: usize,
    pub(crate) body: &'b Body,
    pub(crate) chain_id: u64,
}

/// Text of a transaction besides its input, in the mean.
const TRANSACTION_BYTES: usize = 850;
const HEADER_BYTES: usize = 3_000;

impl Sealed<'_> {
    /// Writes `eth_getBlockByNumber(.., true)` as before Helicon.
    pub(crate) fn write(&self) -> (Vec<u8>, Layout) {
        let transactions = TRANSACTION_BYTES * self.body.transactions.len();
        let room = HEADER_BYTES + transactions + 2 * self.body.bytes.len();
        let (mut text, mut layout) = (Text::with_capacity(room), Layout::default());
        self.until_hash(&mut text, &mut layout);
        self.until_settled(&mut text, &mut layout);
        self.until_transactions(&mut text, &mut layout);
        self.end(&mut text, &mut layout);
        (text.into_bytes(), layout)
    }

    fn until_hash(&self, text: &mut Text, layout: &mut Layout) {
        let header = self.header;
        text.raw("{");
        optional(text, "baseFeePerGas", header.base_fee_per_gas.map(|fee| fee.saturating_to()));
        optional(text, "blobGasUsed", header.blob_gas_used);
        layout.ext_data =
            text.span(|text| text.raw("\"blockExtraData\":").bytes(&self.body.ext_data).raw(","));
        optional(text, "blockGasCost", header.block_gas_cost);
        text.raw("\"difficulty\":").quantity(header.difficulty.saturating_to::<u128>()).raw(",");
        optional(text, "excessBlobGas", header.excess_blob_gas);
        optional(text, "extDataGasUsed", header.ext_data_gas_used);
        text.raw("\"extDataHash\":").bytes(header.ext_data_hash.unwrap_or_default());
        text.raw(",\"extraData\":").bytes(&header.extra_data);
        text.raw(",\"gasLimit\":").quantity(header.gas_limit);
        text.raw(",\"gasUsed\":").quantity(header.gas_used).raw(",\"hash\":");
        layout.hash = text.span(|text| text.bytes(self.hash));
    }

    fn until_settled(&self, text: &mut Text, layout: &mut Layout) {
        let header = self.header;
        text.raw(",\"logsBloom\":").bytes(header.logs_bloom).raw(",");
        optional(text, "minDelayExcess", header.min_delay_excess);
        optional(text, "minPriceExponent", header.min_price_exponent);
        text.raw("\"miner\":");
        layout.miner = text.span(|text| text.bytes(header.miner));
        text.raw(",\"mixHash\":").bytes(header.mix_hash).raw(",\"nonce\":");
        layout.nonce = text.span(|text| text.bytes(header.nonce));
        text.raw(",\"number\":").quantity(header.number).raw(",");
        if let Some(root) = header.parent_beacon_block_root {
            text.raw("\"parentBeaconBlockRoot\":").bytes(root).raw(",");
        }
        text.raw("\"parentHash\":").bytes(header.parent_hash);
        text.raw(",\"receiptsRoot\":").bytes(header.receipts_root).raw(",");
        optional(text, "settledExcess", header.settled_excess);
        optional(text, "settledGasNumerator", header.settled_gas_numerator);
        optional(text, "settledGasUnix", header.settled_gas_unix);
        optional(text, "settledHeight", header.settled_height);
    }

    fn until_transactions(&self, text: &mut Text, layout: &mut Layout) {
        let header = self.header;
        text.raw("\"sha3Uncles\":").bytes(header.sha3_uncles).raw(",");
        layout.size = text.span(|text| text.raw("\"size\":").quantity(self.size as u64).raw(","));
        text.raw("\"stateRoot\":").bytes(header.state_root).raw(",");
        optional(text, "targetExponent", header.target_exponent);
        text.raw("\"timestamp\":").quantity(header.timestamp).raw(",");
        optional(text, "timestampMilliseconds", header.timestamp_milliseconds);
        text.raw("\"totalDifficulty\":");
        layout.total_difficulty = text.span(|text| text.quantity(header.number));
        text.raw(",");
    }

    fn end(&self, text: &mut Text, layout: &mut Layout) {
        let mut each = Vec::with_capacity(self.body.transactions.len());
        layout.transactions = text.span(|text| {
            text.raw("\"transactions\":");
            layout.list = text.span(|text| {
                text.list(self.body.transactions.iter().enumerate(), |text, (index, one)| {
                    each.push(text.span(|text| self.transaction(text, index, one)));
                    text
                })
            });
            text.raw(",")
        });
        layout.each = each;
        text.raw("\"transactionsRoot\":").bytes(self.header.transactions_root);
        layout.uncles = text.span(|text| text.raw(",\"uncles\":[]"));
        text.raw("}");
    }

    fn transaction<'t>(&self, text: &'t mut Text, index: usize, one: &Transaction) -> &'t mut Text {
        text.raw("{\"blockHash\":").bytes(self.hash);
        text.raw(",\"blockNumber\":").quantity(self.header.number);
        text.raw(",\"from\":").bytes(one.from).raw(",\"gas\":").quantity(one.gas);
        text.raw(",\"gasPrice\":").quantity(one.price_at(self.body.header_fee));
        if one.kind == Kind::DynamicFee {
            text.raw(",\"maxFeePerGas\":").quantity(one.max_fee);
            text.raw(",\"maxPriorityFeePerGas\":").quantity(one.priority_fee);
        }
        text.raw(",\"hash\":").bytes(one.hash);
        text.raw(",\"input\":").bytes(self.body.at(&one.input));
        text.raw(",\"nonce\":").quantity(one.nonce).raw(",\"to\":");
        match one.to {
            Some(to) => text.bytes(to),
            None => text.raw("null"),
        };
        text.raw(",\"transactionIndex\":").quantity(index as u64);
        text.raw(",\"value\":").quantity(one.value);
        text.raw(",\"type\":").quantity(one.kind.number());
        self.signature(text, one);
        text.raw("}")
    }

    fn signature(&self, text: &mut Text, one: &Transaction) {
        if one.kind.is_typed() {
            text.raw(",\"accessList\":").list(&one.access_list, |text, access| {
                text.raw("{\"address\":").bytes(access.address).raw(",\"storageKeys\":");
                text.list(&access.storage_keys, Text::bytes).raw("}")
            });
        }
        if one.kind != Kind::Unprotected {
            text.raw(",\"chainId\":").quantity(self.chain_id);
        }
        text.raw(",\"v\":").quantity(one.v);
        text.raw(",\"r\":").word_quantity(&one.r.0).raw(",\"s\":").word_quantity(&one.s.0);
        if one.kind.is_typed() {
            text.raw(",\"yParity\":").quantity(one.v);
        }
    }
}

/// A member that is left out when the header lacks it, with the comma behind it.
fn optional(text: &mut Text, key: &str, value: Option<u64>) {
    if let Some(value) = value {
        text.raw("\"").raw(key).raw("\":").quantity(value).raw(",");
    }
}
