//! Tests of packed files, in one program: it compiles what they share once, and runs them beside each other.

#![cfg(test)]
#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

mod answers;
mod changing;
mod hostile;
mod mainnet;
mod memory;
mod recorded;
mod support;
