//! Blocks and receipts of the Avalanche C-chain, from genesis to Helicon: read from a node's
//! answers, and proven.
//!
//! Input is the exact text of a `result`: of `eth_getBlockByNumber(n, true)` for a [`Block`], of
//! `eth_getBlockReceipts` for [`Receipts`]. Reading says where in the text each field is, so that
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
//! - Members with an admitted key, see [`AdmittedKeys`]. Without one, a text has the members that
//!   are listed here, and no others.
//! - `totalDifficulty`, which may be the number or zero: no hash has it.
//! - The extra data of blocks before Apricot Phase 1: the header's hash of it is zero.
//! - A transaction's `from`, unless [`Checks::senders`] is set: only the signature says it.
//! - In receipts of an asynchronous block, until a later header settles them ([`Settlement`]):
//!   status, gas between half of the limit and the limit, and logs.
//! - In such receipts `effectiveGasPrice`, for ever: it is in no encoding. It lies within what the
//!   header's base fee allows, and all prices of a block agree on one base fee.
//! - Whether the block is on the chain: compare parent hashes.

#![forbid(unsafe_code)]

mod block;
mod derived;
mod header;
mod json;
mod receipts;
mod refusal;
mod rlp;

pub use block::{Access, Block, BlockLayout, CheckedBlock, Checks, Kind, Transaction, atomic};
pub use derived::{
    BlockFees, EMPTY_FEE_HISTORY, FEE_BLOCKS_MAX, FEE_DEPTH_MAX, FeeHistory, FeeRefusal,
    FeeRequest, FeeRule, GasClock, HeaderForm, NewestBlock, gas_excess, gas_price, gas_target,
    new_head, next_base_fee, raw_block, raw_header, raw_receipts, raw_transaction,
};
pub use header::{CheckedHeader, ClaimedHeader, Header, TotalDifficulty};
pub use json::{AdmittedKeys, Form, Hex};
pub use receipts::{
    CheckedReceipts, Disproof, Log, LogBody, LogData, Proof, Receipt, ReceiptBody, Receipts,
    Settlement, Topics, Unsettled,
};
pub use refusal::{Malformed, Place, ProofError};
pub use rlp::{Encodings, encode_block, ext_data_hash, ordered_root};
