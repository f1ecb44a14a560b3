//! The kinds of transaction that the feeder makes, and a draft of each.

use alloy_eips::eip2930::{AccessList, AccessListItem};
use alloy_primitives::{Address, B256, Bytes, TxKind, U256, keccak256};

use super::code::{self, Event};
use super::sign::{Draft, Wire};

/// A plain transfer's gas with room for an access list.
const GAS_TRANSFER: u64 = 60_000;
/// Enough for the largest constructor here; also for the calls.
const GAS_CONTRACT: u64 = 800_000;
/// Gas that the endless loop may burn.
const GAS_BURNED: u64 = 70_000;
/// The sizes that log data is drawn from: none, around one word, several words.
const DATA_SIZES: [u16; 8] = [0, 1, 31, 32, 33, 64, 320, 1024];

/// Kind of transaction. Each is made once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Type 0 with a chain id, a transfer.
    Legacy,
    /// Type 0 without one.
    LegacyUnprotected,
    /// Type 1 with an empty list.
    AccessListEmpty,
    /// Type 1 with two entries.
    AccessList,
    /// Type 2 with an access list, a transfer.
    DynamicFee,
    /// Creation of a contract; the constructor emits LOG0 to LOG4.
    CreateWithLogs,
    /// Creation without logs.
    Create,
    /// Creation whose constructor reverts.
    CreateReverted,
    /// Creation of an account without code.
    CreateEmpty,
    /// A call that emits LOG0 to LOG4.
    CallWithLogs,
    /// A call that reverts with data.
    CallReverted,
    /// A call that runs out of gas.
    OutOfGas,
    /// Type 2 transfer to a fresh address, one of many.
    Transfer,
    /// Atomic: AVAX leaves the C-chain for the X-chain.
    Export,
    /// Atomic: AVAX comes from the X-chain.
    Import,
}

/// A transaction that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    /// Kind of the transaction.
    pub(crate) kind: Kind,
    /// The height of its block.
    pub(crate) block: u64,
    /// Hash; for atomic ones their id, the sha256 of their bytes.
    pub(crate) hash: B256,
    /// The id of an atomic one as the `avax` API writes it.
    pub(crate) cb58: Option<String>,
}

/// Pseudo-random numbers that are the same for the same seed (the splitmix64 sequence).
pub(crate) struct Seed(pub(crate) u64);

impl Seed {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next word.
    pub(crate) fn word(&mut self) -> B256 {
        keccak256(B256::from(U256::from(self.next())))
    }

    /// The next address, whose key is unknown.
    pub(crate) fn address(&mut self) -> Address {
        Address::from_word(self.word())
    }

    /// The next amount, below four gwei.
    fn wei(&mut self) -> U256 {
        U256::from(self.next() >> 32)
    }

    /// Five events, with none to four topics.
    fn events(&mut self) -> Vec<Event> {
        (0..=4).map(|count| self.event(count)).collect()
    }

    /// Makes an event with so many topics.
    fn event(&mut self, count: usize) -> Event {
        let size = DATA_SIZES[self.next() as usize % DATA_SIZES.len()];
        Event { topics: (0..count).map(|_| self.word()).collect(), size }
    }

    /// Two entries, one with keys and one without.
    fn access_list(&mut self) -> AccessList {
        let keys = vec![self.word(), self.word()];
        let with = AccessListItem { address: self.address(), storage_keys: keys };
        let without = AccessListItem { address: self.address(), storage_keys: Vec::new() };
        AccessList(vec![with, without])
    }
}

/// A transfer without logs, in the oldest form.
pub(crate) fn legacy(seed: &mut Seed) -> Draft {
    transfer(seed, Kind::Legacy, Wire::Legacy)
}

/// `count` transfers to as many addresses.
pub(crate) fn transfers(seed: &mut Seed, count: usize) -> Vec<Draft> {
    let plain = || Wire::Dynamic(AccessList::default());
    (0..count).map(|_| transfer(seed, Kind::Transfer, plain())).collect()
}

/// Makes a draft of each other kind that is no atomic one. `created(i)` is the address that the i-th of
/// them creates, should it be a creation.
pub(crate) fn one_of_each(seed: &mut Seed, created: impl Fn(u64) -> Address) -> Vec<Draft> {
    let (emitter, trap) = (TxKind::Call(created(0)), TxKind::Call(created(1)));
    let reason = Bytes::from(seed.word());
    let list = Wire::AccessList(seed.access_list());
    let dynamic = Wire::Dynamic(seed.access_list());
    vec![
        // These two first: `emitter` and `trap` say so.
        create(seed, Kind::CreateWithLogs, emitting_contract),
        create(seed, Kind::Create, |_| code::constructor(&[], &code::TRAP)),
        transfer(seed, Kind::LegacyUnprotected, Wire::Unprotected),
        transfer(seed, Kind::AccessListEmpty, Wire::AccessList(AccessList::default())),
        transfer(seed, Kind::AccessList, list),
        transfer(seed, Kind::DynamicFee, dynamic),
        create(seed, Kind::CreateReverted, |_| code::REVERTING_CONSTRUCTOR.to_vec()),
        create(seed, Kind::CreateEmpty, |_| code::EMPTY_CONSTRUCTOR.to_vec()),
        call(seed, Kind::CallWithLogs, emitter, Bytes::new(), GAS_CONTRACT),
        call(seed, Kind::CallReverted, trap, reason, GAS_CONTRACT),
        call(seed, Kind::OutOfGas, trap, Bytes::new(), GAS_BURNED),
    ]
}

/// A transfer to a named address.
pub(crate) fn payment(seed: &mut Seed, to: Address, value: U256) -> Draft {
    let wire = Wire::Dynamic(AccessList::default());
    Draft { to: TxKind::Call(to), value, ..transfer(seed, Kind::Transfer, wire) }
}

/// A transfer of a small amount to an address whose key is unknown.
fn transfer(seed: &mut Seed, kind: Kind, wire: Wire) -> Draft {
    let to = TxKind::Call(seed.address());
    let value = seed.wei();
    Draft { kind, wire, to, value, input: Bytes::new(), gas: GAS_TRANSFER, tip: tip(seed) }
}

/// A creation of a contract, with the init code that `init` makes.
fn create(seed: &mut Seed, kind: Kind, init: impl Fn(&mut Seed) -> Vec<u8>) -> Draft {
    let input = Bytes::from(init(seed));
    call(seed, kind, TxKind::Create, input, GAS_CONTRACT)
}

/// A call or creation without value.
fn call(seed: &mut Seed, kind: Kind, to: TxKind, input: Bytes, gas: u64) -> Draft {
    let wire = Wire::Dynamic(AccessList::default());
    Draft { kind, wire, to, value: U256::ZERO, input, gas, tip: tip(seed) }
}

/// Between one and about four gwei.
fn tip(seed: &mut Seed) -> u128 {
    1_000_000_000 + u128::from(seed.next() >> 32) * 3 / 4
}

/// A contract that emits five events when made and five others at each call.
fn emitting_contract(seed: &mut Seed) -> Vec<u8> {
    let body = code::emit(seed.word(), &seed.events());
    let runtime = code::emit(seed.word(), &seed.events());
    code::constructor(&body, &runtime)
}
