//! Tests of requests and queries, in one program: it compiles what they share once, and runs them beside each other.

#![cfg(test)]

mod arguments;
mod batches;
mod corpus;
mod decoding;
mod hostile;
mod recorded;
mod subscriptions;
