//! The real binary, driven from outside: against recorded nodes, a real node, and the embedded
//! chain with its faults.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod cli;
mod clients;
mod corpus;
mod dev;
mod encoding;
mod faults;
mod filters;
mod follow;
mod http_rows;
mod kill;
mod lies;
mod node_feed;
mod real_node;
mod rest;
mod rest_changes;
mod rest_tester;
mod rest_varnish;
mod retention;
mod scale;
mod serving;
mod switch;
mod verify;
mod websocket;
mod ws_limits;
mod ws_order;
