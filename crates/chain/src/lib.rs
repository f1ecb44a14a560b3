//! Blocks and receipts of the Avalanche C-chain, from genesis to Helicon: read from a node's
//! answers, and proven.
//!
//! Input is the exact text of a `result`: of `eth_getBlockByNumber(n, true)` for a [`Block`], of
//! `eth_getBlockReceipts` for [`Receipts`]. Reading says where in the text each piece is, so that
//! other answers can be cut from it, and checking makes a type of its own:
//!
//! ```text
//! Block::parse    .check(&Checks) -> CheckedBlock
//! Receipts::parse .check(&CheckedBlock) -> CheckedReceipts .unsettled -> Settlement
//! ```
//!
//! [`Form::Node`], the form that these two take, is that of a node's answer to the byte: whatever
//! came from an upstream is read in no other.
//!
//! From what was proven and stored, other answers are made without a node: [`raw_block`] and its
//! like, [`new_head()`], and [`FeeHistory`].
//!
//! The upstream is not trusted: nothing here panics on any text, and all work is bounded by its
//! length. No I/O, no clock, no global state.
//!
//! # What nothing binds
//!
//! - Members that this crate does not know, if a later node adds some.
//! - `totalDifficulty`, which may be the number or zero: no hash has it.
//! - The extra data of blocks before Apricot Phase 1: the header's hash of it is zero.
//! - A transaction's `from`, unless [`Checks::senders`] is set: only the signature says it.
//! - In receipts of an asynchronous block, until a later header settles them ([`Settlement`]):
//!   status, gas between half of the limit and the limit, and logs.
//! - In such receipts `effectiveGasPrice`, for ever: it is in no encoding. It lies within what the
//!   header's base fee allows, and all prices of a block agree on one base fee.
//! - Whether the block is on the chain: compare parent hashes.

#![forbid(unsafe_code)]

pub mod atomic;
mod block;
mod bloom;
mod check_block;
mod check_header;
mod check_receipts;
mod cursor;
mod fee_history;
mod fee_request;
mod fees;
mod gas_clock;
mod header;
mod header_json;
mod hex;
mod json;
mod json_float;
mod new_head;
mod next_fee;
mod raw;
mod receipt;
mod receipt_json;
mod refusal;
mod rlp;
mod roots;
mod settle;
mod skip;
mod transaction;
mod transaction_json;

pub use block::{Block, BlockLayout};
pub use check_block::{CheckedBlock, Checks};
pub use check_header::{CheckedHeader, HeaderAnswer, TotalDifficulty};
pub use check_receipts::CheckedReceipts;
pub use fee_history::{EMPTY_FEE_HISTORY, FeeHistory};
pub use fee_request::{FEE_BLOCKS_MAX, FEE_DEPTH_MAX, FeeRefusal, FeeRequest, NewestBlock};
pub use fees::{BlockFees, FeeRule};
pub use gas_clock::{GasClock, gas_excess, gas_price, gas_target};
pub use header::Header;
pub use hex::Hex;
pub use json::Form;
pub use new_head::{HeadForm, new_head};
pub use next_fee::next_base_fee;
pub use raw::{raw_block, raw_header, raw_receipts, raw_transaction};
pub use receipt::{Log, LogBody, LogData, Receipt, ReceiptBody, Receipts, Topics};
pub use refusal::{Place, Refusal};
pub use rlp::{encode_block, ext_data_hash};
pub use roots::{Encodings, ordered_root};
pub use settle::{Disproof, Proof, Settlement, Unsettled};
pub use transaction::{Access, Kind, Transaction};
