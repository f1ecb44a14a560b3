//! Draws the contents of a block.

use std::ops::Range;

use alloy_primitives::{Address, B256, Bloom};
use neve_chain::Access;

use super::draw_logs;
use super::gas::{Load, gas};
use super::outline::{Action, Outline, outlines};
use super::scene::Scene;
use crate::chain::content::{ACCOUNTS, Body, Receipt, Span, Transaction, World, atomic};
use crate::chain::rules::{ChainConfig, Fees, Purpose, Random, Schedule};

/// Entries of an access list, and slots of an entry, at most.
const ACCESSES_MAX: u64 = 3;
/// Greatest priority fee, and greatest margin between a cap and the base fee: a careful one, which
/// often cuts the priority fee, and a generous one.
const PRIORITY_FEE_MAX: u64 = 2_000_000_000;
const ROOM_CAREFUL: u64 = 1_000_000_000;
const ROOM_GENEROUS: u64 = 30_000_000_000;
const GWEI: u128 = 1_000_000_000;

/// Gas that is left for atomic transactions.
const ATOMIC_GAS: u64 = 200_000;

/// Draws the body of a height whose gas is limited and whose header says this base fee.
pub(crate) fn draw(
    config: &ChainConfig,
    schedule: &Schedule,
    world: &World,
    height: u64,
    (gas_limit, base_fee): (u64, u64),
) -> Body {
    let fees = schedule.fees(height, base_fee.into());
    let mut draw = Draw {
        config,
        world,
        fees,
        height,
        asynchronous: schedule.is_asynchronous(height),
        gas_left: gas_limit.saturating_sub(ATOMIC_GAS),
        random: Random::new(config.seed_at(height), Purpose::Body, height),
        body: Body { header_fee: fees.header, ..Body::default() },
        fields: Vec::new(),
    };
    draw.all();
    draw.body
}

struct Draw<'c> {
    config: &'c ChainConfig,
    world: &'c World,
    fees: Fees,
    height: u64,
    asynchronous: bool,
    gas_left: u64,
    random: Random,
    body: Body,
    /// Scratch: the encoded fields of a transaction.
    fields: Vec<u8>,
}

impl Draw<'_> {
    fn all(&mut self) {
        let outlines = outlines(&self.config.profile, &mut self.random);
        for (index, outline) in outlines.iter().enumerate() {
            self.transaction(index, outline);
            if self.gas_left == 0 {
                break;
            }
        }
        let shares = &self.config.profile.shares;
        let atomic = if outlines.is_empty() { 500 } else { shares.atomic };
        if self.random.chance(atomic) {
            (self.body.ext_data, self.body.ext_data_gas) = atomic::batch(&mut self.random);
        }
    }

    fn transaction(&mut self, index: usize, outline: &Outline) {
        let turn = turn(self.height, index);
        let scene = Scene::new(self.world, turn.0, &mut self.random);
        let mut transaction = self.draft(turn, outline, scene);
        self.execute(&mut transaction, outline, scene);
        if !self.fits(&transaction) {
            return;
        }
        self.sign(turn.0, &mut transaction);
        self.body.gas_limits += transaction.gas;
        self.body.transactions.push(transaction);
    }

    /// Draws a transaction that is neither executed nor signed yet. `turn` has its sender and nonce.
    fn draft(&mut self, turn: (usize, u64), outline: &Outline, scene: Scene<'_>) -> Transaction {
        let (account, nonce) = turn;
        let (max_fee, priority_fee) = self.caps();
        Transaction {
            kind: outline.kind,
            from: self.world.signer.addresses()[account],
            nonce,
            to: self.receiver(outline, scene),
            value: self.value(outline),
            input: self.input(outline, scene),
            gas: 0,
            max_fee,
            priority_fee,
            access_list: self.access_list(outline),
            v: 0,
            r: B256::ZERO,
            s: B256::ZERO,
            hash: B256::ZERO,
        }
    }

    /// Takes the gas of a transaction that was executed, or takes back its logs and its receipt and
    /// lets it end the block.
    fn fits(&mut self, transaction: &Transaction) -> bool {
        let used = self.body.receipts.last().map_or(0, |receipt| receipt.gas_used);
        // ACP-194: a block is accepted before it is executed, so its limit counts what may be used.
        let gas = if self.asynchronous { transaction.gas } else { used };
        if let Some(left) = self.gas_left.checked_sub(gas) {
            self.gas_left = left;
            return true;
        }
        self.gas_left = 0;
        if let Some(receipt) = self.body.receipts.pop() {
            self.body.logs.truncate(receipt.logs.start);
        }
        false
    }

    fn receiver(&mut self, outline: &Outline, scene: Scene<'_>) -> Option<Address> {
        match outline.action {
            Action::Create => None,
            Action::Transfer => Some(scene.account(&mut self.random).as_address()),
            Action::Call => Some(scene.called().as_address()),
        }
    }

    /// Value: up to a thousand AVAX, mostly less; calls mostly send none.
    fn value(&mut self, outline: &Outline) -> u128 {
        if outline.action != Action::Transfer && self.random.chance(900) {
            return 0;
        }
        let bits = 30 + self.random.below(40);
        (u128::from(self.random.next()) << 6) >> (70 - bits)
    }

    /// Cap and priority fee. Many wallets offer round numbers.
    fn caps(&mut self) -> (u128, u128) {
        let room = if self.random.chance(700) { ROOM_GENEROUS } else { ROOM_CAREFUL };
        let cap = self.fees.header + u128::from(self.random.below(room));
        let priority_fee = u128::from(self.random.below(PRIORITY_FEE_MAX));
        if self.random.chance(500) {
            return (cap, priority_fee);
        }
        (cap.next_multiple_of(GWEI), priority_fee.next_multiple_of(GWEI))
    }

    fn access_list(&mut self, outline: &Outline) -> Vec<Access> {
        let listed = self.random.chance(self.config.profile.shares.listed);
        if !listed || !outline.kind.is_typed() {
            return Vec::new();
        }
        let entries = 1 + self.random.below(ACCESSES_MAX);
        (0..entries).map(|_| self.access()).collect()
    }

    fn access(&mut self) -> Access {
        let address = self.world.contract(&mut self.random).as_address();
        let slots = self.random.below(ACCESSES_MAX + 1);
        Access { address, storage_keys: (0..slots).map(|_| self.random.bytes().into()).collect() }
    }

    /// Init code, or a selector and words.
    fn input(&mut self, outline: &Outline, scene: Scene<'_>) -> Span {
        let bytes = &mut self.body.bytes;
        let start = bytes.len();
        let end = start + outline.input;
        if outline.action == Action::Create {
            bytes.resize(end, 0);
            self.random.fill(bytes.get_mut(start..).unwrap_or_default());
        } else if outline.input > 0 {
            // The calls of a chain have few different selectors, and most have the same.
            let number = self.random.below(20) * self.random.below(20);
            let selector = (number + 1).wrapping_mul(0x9e37_79b9) as u32;
            bytes.extend(selector.to_le_bytes());
            scene.words(end, &mut self.random, bytes);
        }
        start..end
    }

    /// Gas, logs and receipt.
    fn execute(&mut self, transaction: &mut Transaction, outline: &Outline, scene: Scene<'_>) {
        let (profile, random) = (&self.config.profile, &mut self.random);
        let (logs, bloom) = draw_logs::draw(outline.logs, profile, scene, random, &mut self.body);
        let load = self.load(transaction, &logs);
        let (limit, used) = gas(outline, load, self.asynchronous, &mut self.random);
        transaction.gas = limit;
        self.receipt(transaction, outline.succeeds, used, (logs, bloom));
    }

    fn load(&self, transaction: &Transaction, logs: &Range<usize>) -> Load {
        let bytes = self.body.logs.iter().skip(logs.start).map(|log| log.data.len() as u64);
        Load {
            logs: logs.len() as u64,
            log_bytes: bytes.sum(),
            accesses: transaction.access_list.len() as u64,
        }
    }

    fn receipt(
        &mut self,
        transaction: &Transaction,
        succeeded: bool,
        gas_used: u64,
        (logs, bloom): (Range<usize>, Bloom),
    ) {
        let creates = transaction.to.is_none();
        self.body.receipts.push(Receipt {
            succeeded,
            gas_used,
            cumulative_gas_used: self.body.gas_used() + gas_used,
            price: transaction.price_at(self.fees.executed),
            contract: creates.then(|| transaction.from.create(transaction.nonce)),
            logs,
            bloom,
        });
    }

    fn sign(&mut self, account: usize, transaction: &mut Transaction) {
        let (chain_id, signer) = (self.config.chain_id, &self.world.signer);
        let fields = &mut self.fields;
        fields.clear();
        transaction.encode_fields(chain_id, self.body.at(&transaction.input), fields);
        let real = signer.is_real();
        // The hash costs more than all else here, and a filler signature signs nothing.
        let hash = if real { transaction.signing_hash(chain_id, fields) } else { B256::ZERO };
        let signature = signer.sign(account, hash, &mut self.random);
        self.body.encodings.push(|out| transaction.finish(signature, chain_id, fields, out));
    }
}

/// Sender and nonce of the transaction at an index. No pair comes twice, and an
/// account's nonces rise with its transactions, though not by one.
fn turn(height: u64, index: usize) -> (usize, u64) {
    let accounts = ACCOUNTS as u64;
    let place = index as u64;
    // Odd factors, so that no account has two turns before each account had one.
    let account =
        (place % accounts).wrapping_mul(389).wrapping_add(height.wrapping_mul(7)) % accounts;
    let nonce = height.wrapping_mul(TURNS_A_BLOCK).wrapping_add(place / accounts);
    (account as usize, nonce)
}

/// Turns that an account may have in a block: one for each [`ACCOUNTS`] transactions.
const TURNS_A_BLOCK: u64 = 4;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::chain::rules::Profile;

    #[test]
    fn no_turn_comes_twice() {
        assert_eq!(Profile::TRANSACTIONS_MAX, ACCOUNTS * TURNS_A_BLOCK as usize);
        let turns = (5..9).flat_map(|height| {
            (0..Profile::TRANSACTIONS_MAX).map(move |index| turn(height, index))
        });
        assert_eq!(turns.collect::<BTreeSet<_>>().len(), 4 * Profile::TRANSACTIONS_MAX);
    }
}
