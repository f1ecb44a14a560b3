//! The real binary, driven from outside: against recorded nodes, a real node, and the embedded
//! chain with its faults.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod access;
mod answers;
#[cfg(feature = "archive")]
mod archive;
mod clients;
mod following;
mod mirror;
mod node;
mod program;
mod relay;
mod rest;
mod store;
mod ws;
