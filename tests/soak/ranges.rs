//! Calls about several heights: logs of a range, filters, and fees.

use std::ops::ControlFlow;

use neve_devnet::Part;
use serde_json::Value;

use crate::traffic::{Asker, call, logs};

/// Heights of a call.
const HEIGHTS: u64 = 8;
/// Heights that may be evicted while a filter is open: more than a segment.
const SOON: u64 = 100;

impl Asker<'_> {
    /// First and last height of a call, as the upstream has them.
    fn heights(&mut self, range: (u64, u64)) -> (u64, u64) {
        let last = self.height(range);
        (last.saturating_sub(HEIGHTS - 1).max(range.0), last)
    }

    /// The answer with all logs of these heights.
    fn logs_of(&self, (first, last): (u64, u64)) -> String {
        let each = (first..=last).map(|height| logs(self.block(height).receipts()));
        let some: Vec<_> = each.filter(|logs| !logs.is_empty()).collect();
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[{}]}}\n", some.join(","))
    }

    pub(crate) fn ask_log_range(&mut self, range: (u64, u64)) -> ControlFlow<()> {
        let heights = self.heights(range);
        let body = call(&format!("\"eth_getLogs\",\"params\":[{}]", filter(heights)));
        let Some(ours) = self.ask(&body, heights.0) else { return ControlFlow::Continue(()) };
        let expected = self.logs_of(heights);
        self.compare(&body, &ours, expected.as_bytes())
    }

    /// Makes a filter, asks for its logs and ends it.
    pub(crate) fn ask_filter(&mut self, (first, head): (u64, u64)) -> ControlFlow<()> {
        // A filter ends with its first height, so those that are evicted soon are left out.
        let heights = self.heights(((first + SOON).min(head), head));
        let made = call(&format!("\"eth_newFilter\",\"params\":[{}]", filter(heights)));
        let made = self.ask_of_filter(&made, heights.0);
        let Some(made) = made else { return ControlFlow::Continue(()) };
        let made: Value = serde_json::from_slice(&made.body).unwrap_or_default();
        let Some(id) = made["result"].as_str().map(str::to_owned) else {
            return ControlFlow::Continue(()); // its memory is used up by an attacker with its address
        };
        let body = call(&format!("\"eth_getFilterLogs\",\"params\":[\"{id}\"]"));
        let found = self.ask_of_filter(&body, heights.0);
        let end = call(&format!("\"eth_uninstallFilter\",\"params\":[\"{id}\"]"));
        self.ask_of_filter(&end, heights.0);
        let Some(ours) = found else { return ControlFlow::Continue(()) };
        let expected = self.logs_of(heights);
        self.compare(&body, &ours, expected.as_bytes())
    }

    /// Base fees of some heights, each of which its header has.
    pub(crate) fn ask_fees(&mut self, range: (u64, u64)) -> ControlFlow<()> {
        // Not at the head: the fee behind it depends on the clock, and is a miss while blocks come late.
        let (first, last) = self.heights((range.0, range.1.saturating_sub(1).max(range.0)));
        let count = last - first + 1;
        let body =
            call(&format!("\"eth_feeHistory\",\"params\":[\"{count:#x}\",\"{last:#x}\",[10,90]]"));
        let Some(ours) = self.ask(&body, first) else { return ControlFlow::Continue(()) };
        let fees: Value = serde_json::from_slice(&ours.body).unwrap_or_default();
        let fees = &fees["result"];
        let expected: Vec<Value> = (first..=last).map(|height| self.base_fee(height)).collect();
        let found = fees["baseFeePerGas"].as_array().map_or(&[][..], Vec::as_slice);
        let rewards = fees["reward"].as_array().map_or(0, Vec::len);
        // One more is the fee of the next block.
        let is_right = found.starts_with(&expected)
            && (found.len(), rewards) == (expected.len() + 1, expected.len())
            && fees["oldestBlock"] == format!("{first:#x}");
        let expected = if is_right { ours.body.clone() } else { format!("{expected:?}").into() };
        self.compare(&body, &ours, &expected)
    }

    fn base_fee(&self, height: u64) -> Value {
        let text = self.block(height).answer(Part::Full, self.stage.devnet.rules());
        let block: Value = serde_json::from_slice(&text).expect("a block is JSON");
        block["baseFeePerGas"].clone()
    }
}

fn filter((first, last): (u64, u64)) -> String {
    format!("{{\"fromBlock\":\"{first:#x}\",\"toBlock\":\"{last:#x}\"}}")
}
