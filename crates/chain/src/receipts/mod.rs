//! Receipts: read, encoded, proven, settled.

mod admit;
mod bloom;
mod check_receipts;
mod receipt;
mod receipt_json;
mod settle;

pub use check_receipts::CheckedReceipts;
pub use receipt::{Log, LogBody, LogData, Receipt, ReceiptBody, Receipts, Topics};
pub use settle::{Disproof, Proof, Settlement, Unsettled};
