//! Gas of transactions: roughly as on Ethereum, exactly as the rules of the chain demand.

use super::outline::{Action, Outline};
use crate::chain::rules::Random;

const TRANSACTION: u64 = 21_000;
const CREATION: u64 = 53_000;
const INPUT_BYTE: u64 = 16;
const LOG: u64 = 1_500;
const LOG_BYTE: u64 = 8;
const ACCESS: u64 = 2_400;
/// Gas of other work of a call, at most.
const WORK: u64 = 60_000;
/// A limit that wallets like for plain transfers, and far too high for them.
const GENEROUS: u64 = 100_000;
/// An asynchronous block charges at least this part of the limit, rounded up (ACP-194, lambda).
const LAMBDA: u64 = 2;

/// Parts of a transaction that cost gas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) logs: u64,
    pub(crate) log_bytes: u64,
    pub(crate) accesses: u64,
}

/// The limit of a transaction and what is charged.
pub(crate) fn gas(
    outline: &Outline,
    load: Load,
    asynchronous: bool,
    random: &mut Random,
) -> (u64, u64) {
    let consumed = consumed(outline, load, random);
    let limit = match outline.action {
        Action::Transfer if random.chance(300) => consumed.max(GENEROUS),
        Action::Transfer => consumed,
        _ => consumed + random.below(consumed),
    };
    // Half of those that fail ran out of gas; the others reverted in time.
    let burnt = !outline.succeeds && random.chance(500);
    let used = if burnt { limit } else { consumed };
    let least = if asynchronous { limit.div_ceil(LAMBDA) } else { 0 };
    (limit, used.max(least))
}

fn consumed(outline: &Outline, load: Load, random: &mut Random) -> u64 {
    let base = if outline.action == Action::Create { CREATION } else { TRANSACTION };
    let work = if outline.action == Action::Transfer { 0 } else { random.below(WORK) };
    let logs = LOG * load.logs + LOG_BYTE * load.log_bytes;
    base + work + logs + INPUT_BYTE * outline.input as u64 + ACCESS * load.accesses
}
