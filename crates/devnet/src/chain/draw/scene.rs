//! Subjects of a transaction: the same few accounts and contracts appear in its input and in
//! its logs again and again. Without that, blocks would compress less well than real ones.

use crate::chain::content::{Entry, Indexed, World};
use crate::chain::rules::Random;

/// Chance in a thousand that an account which appeared already appears again.
const AGAIN: u16 = 850;

/// A transaction's surroundings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'w> {
    pub(crate) world: &'w World,
    /// The sender first.
    accounts: [&'w Entry; 3],
    /// The one that is called first.
    contracts: [&'w Entry; 2],
}

impl<'w> Scene<'w> {
    pub(crate) fn new(world: &'w World, sender: usize, random: &mut Random) -> Self {
        Self {
            world,
            accounts: [world.sender(sender), world.account(random), world.account(random)],
            contracts: [world.contract(random), world.contract(random)],
        }
    }

    /// The contract that is called.
    pub(crate) fn called(&self) -> &'w Entry {
        self.contracts[0]
    }

    /// Draws an account of this scene.
    pub(crate) fn account(&self, random: &mut Random) -> &'w Entry {
        if random.chance(AGAIN) {
            return self.accounts[random.index(self.accounts.len())];
        }
        self.world.account(random)
    }

    /// A contract that emits a log.
    pub(crate) fn contract(&self, random: &mut Random) -> &'w Entry {
        if random.chance(AGAIN) {
            return self.contracts[random.index(self.contracts.len())];
        }
        self.world.contract(random)
    }

    /// Value of a topic.
    pub(crate) fn indexed(&self, what: Indexed, random: &mut Random) -> &'w Entry {
        match what {
            Indexed::Account => self.account(random),
            Indexed::Number => self.world.number(random),
        }
    }

    /// Fills up to `end` with words as contracts take and emit them: accounts, flags, amounts.
    pub(crate) fn words(&self, end: usize, random: &mut Random, bytes: &mut Vec<u8>) {
        while bytes.len() < end {
            let mut word = [0; 32];
            match random.below(8) {
                0 | 1 => word = self.account(random).word.0,
                2 | 3 => word[31] = random.below(256) as u8,
                4..=6 => word[28..].copy_from_slice(&random.bytes::<4>()),
                _ => word[24..].copy_from_slice(&random.bytes::<8>()),
            }
            bytes.extend_from_slice(&word);
        }
        bytes.truncate(end);
    }
}
