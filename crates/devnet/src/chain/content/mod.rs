//! Contents of blocks: transactions, receipts, accounts.

pub(crate) mod atomic;
mod body;
mod sign;
mod transaction;
mod world;

pub(crate) use body::{Body, Log, Outcome, Receipt};
pub(crate) use sign::ACCOUNTS;
pub(crate) use transaction::{Kind, Span, Transaction};
pub(crate) use world::{Entry, Event, Indexed, World};
