//! The real binary, driven from outside: against recorded nodes, a real node, and the embedded
//! chain with its faults.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod backfill;
mod cli;
mod clients;
mod cold;
mod corpus;
mod dev;
mod encoding;
mod faults;
mod filters;
mod follow;
mod http_rows;
mod kill;
mod lies;
mod mirror;
mod newest;
mod node_feed;
mod plain;
mod quiet;
mod real_node;
mod rest;
mod rest_changes;
mod rest_tester;
mod rest_varnish;
mod retention;
mod scale;
mod serving;
mod spread;
mod switch;
mod unruly;
mod upstreams;
mod verify;
mod websocket;
mod ws_limits;
mod ws_metrics;
mod ws_order;
