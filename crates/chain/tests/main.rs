//! Tests of the proofs, in one program: it compiles what they share once, and runs them beside each other.

#![cfg(test)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic here is the finding")]

mod corpus;
mod fee_history;
mod hostile;
mod mainnet;
mod mutated_blocks;
mod mutated_receipts;
mod mutated_transactions;
mod new_heads;
mod p_chain;
mod raw;
#[path = "support/rewrite.rs"]
mod rewrite;
#[path = "support/sample.rs"]
mod sample;
mod settlement;
mod support;
