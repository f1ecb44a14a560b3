//! Servers, clients and recordings that the tests drive and compare with.

#![allow(dead_code, reason = "not every helper is used by every target")]

pub(crate) mod attackers;
pub(crate) mod client;
pub(crate) mod closed_port;
pub(crate) mod corpus;
pub(crate) mod feed;
pub(crate) mod http2;
pub(crate) mod neve;
pub(crate) mod nginx;
pub(crate) mod node;
pub(crate) mod once;
pub(crate) mod proxy;
pub(crate) mod recorded;
pub(crate) mod replayed;
pub(crate) mod served;
pub(crate) mod ws;
