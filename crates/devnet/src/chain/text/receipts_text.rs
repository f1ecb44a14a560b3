//! The JSON of a block's receipts: keys of a receipt sorted, those of a log in their struct's order.

use std::ops::Range;

use alloy_primitives::Address;

use super::block_text::Sealed;
use super::text::Text;
use crate::chain::content::{Log, Receipt, Transaction};

/// Text of a receipt, and of a log without its data.
const RECEIPT_BYTES: usize = 1_100;
const LOG_BYTES: usize = 600;

impl Sealed<'_> {
    /// Writes `eth_getBlockReceipts`, and says where each receipt is.
    pub(crate) fn write_receipts(&self) -> (Vec<u8>, Vec<Range<usize>>) {
        let body = self.body;
        let logs = LOG_BYTES * body.logs.len() + 2 * body.bytes.len();
        let mut text = Text::with_capacity(2 + RECEIPT_BYTES * body.receipts.len() + logs);
        let mut spans = Vec::with_capacity(body.receipts.len());
        text.list(
            body.receipts.iter().zip(&body.transactions).enumerate(),
            |text, (index, pair)| {
                spans.push(text.span(|text| self.receipt(text, index, pair)));
                text
            },
        );
        (text.into_bytes(), spans)
    }

    fn receipt<'t>(
        &self,
        text: &'t mut Text,
        index: usize,
        (receipt, of): (&Receipt, &Transaction),
    ) -> &'t mut Text {
        text.raw("{\"blockHash\":").bytes(self.hash);
        text.raw(",\"blockNumber\":").quantity(self.header.number);
        address(text.raw(",\"contractAddress\":"), receipt.contract);
        text.raw(",\"cumulativeGasUsed\":").quantity(receipt.cumulative_gas_used);
        text.raw(",\"effectiveGasPrice\":").quantity(receipt.price);
        text.raw(",\"from\":").bytes(of.from);
        text.raw(",\"gasUsed\":").quantity(receipt.gas_used).raw(",\"logs\":");
        let logs = self.body.logs_of(receipt).iter().zip(receipt.logs.start..);
        text.list(logs, |text, (log, at)| self.log(text, at, log, (index, of)));
        text.raw(",\"logsBloom\":").bytes(receipt.bloom);
        text.raw(",\"status\":").quantity(u64::from(receipt.succeeded));
        address(text.raw(",\"to\":"), of.to);
        text.raw(",\"transactionHash\":").bytes(of.hash);
        text.raw(",\"transactionIndex\":").quantity(index as u64);
        text.raw(",\"type\":").quantity(of.kind.number()).raw("}")
    }

    fn log<'t>(
        &self,
        text: &'t mut Text,
        at: usize,
        log: &Log,
        (index, of): (usize, &Transaction),
    ) -> &'t mut Text {
        text.raw("{\"address\":").bytes(log.address).raw(",\"topics\":");
        text.list(log.topics(), Text::bytes);
        text.raw(",\"data\":").bytes(self.body.at(&log.data));
        text.raw(",\"blockNumber\":").quantity(self.header.number);
        text.raw(",\"transactionHash\":").bytes(of.hash);
        text.raw(",\"transactionIndex\":").quantity(index as u64);
        text.raw(",\"blockHash\":").bytes(self.hash);
        text.raw(",\"logIndex\":").quantity(at as u64).raw(",\"removed\":false}")
    }
}

fn address(text: &mut Text, address: Option<Address>) {
    match address {
        Some(address) => text.bytes(address),
        None => text.raw("null"),
    };
}
