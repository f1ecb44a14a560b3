//! The real binary, driven from outside: against recorded nodes, a real node, and the embedded
//! chain with its faults.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod cli;
mod corpus;
mod dev;
mod faults;
mod filters;
mod follow;
mod http_rows;
mod kill;
mod lies;
mod node_feed;
mod real_node;
mod retention;
mod scale;
mod serving;
mod switch;
mod verify;
mod websocket;
mod ws_limits;
mod ws_order;
