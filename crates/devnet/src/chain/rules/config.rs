//! Configuration of a chain. Two chains of the same configuration are the same to the byte.

use super::profile::Profile;

/// Everything that decides a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainConfig {
    /// Another seed, another chain.
    pub seed: u64,
    /// The id that transactions are signed for.
    pub chain_id: u64,
    /// Sizes of blocks.
    pub profile: Profile,
    /// Kind of the signatures of transactions.
    pub signatures: Signatures,
    /// Height at which the chain changes to asynchronous execution.
    pub helicon: Helicon,
    /// The first block after the genesis that exists, as on a node that was synced from a state:
    /// nothing is known of those between. Zero and one are a chain with all of its blocks.
    pub first_height: u64,
    /// Time of the first block, in milliseconds since 1970; the genesis is from 2020.
    pub base_time_ms: u64,
    /// Time from block to block in the mean, in milliseconds: at least one.
    pub interval_ms: u64,
    /// Place where the chain goes on as another seed makes it, by ascending heights.
    pub branches: Vec<Branch>,
}

/// Another continuation of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// First height that differs.
    pub height: u64,
    /// Seed of the differing part.
    pub seed: u64,
}

/// Kind of the signatures of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signatures {
    /// Signatures of keys that follow from the seed: senders can be recovered. `r` repeats every
    /// few blocks, which gives keys away that guard nothing, and makes signing cheap.
    Real,
    /// Random numbers of the right form, as incompressible as signatures are: no sender can be
    /// recovered from them, or a wrong one.
    Filler,
}

/// Height at which the chain changes to asynchronous execution (ACP-194).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helicon {
    /// Not at all: every block is of Granite.
    Never,
    /// Height of the first asynchronous block; the one before it is the transition block, stamped
    /// ten seconds before the fork. Zero and one are [`Helicon::FromGenesis`].
    At(u64),
    /// From block 1 on, and the genesis has the new fields, all zero.
    FromGenesis,
}

impl Helicon {
    /// The first asynchronous height.
    pub fn first(self) -> Option<u64> {
        match self {
            Self::Never => None,
            Self::At(height) => Some(height.max(1)),
            Self::FromGenesis => Some(1),
        }
    }

    /// True if a block of this height is asynchronous.
    pub fn covers(self, height: u64) -> bool {
        self.first().is_some_and(|first| height >= first)
    }

    pub(crate) fn is_from_genesis(self) -> bool {
        self.first() == Some(1)
    }
}

impl ChainConfig {
    /// 2026-01-01 00:00:00 UTC.
    const BASE_TIME_MS: u64 = 1_767_225_600_000;
    /// The C-chain's id on a local network.
    const CHAIN_ID: u64 = 43_112;

    /// A synchronous chain of small blocks with real signatures, a block every two seconds.
    pub fn small(seed: u64) -> Self {
        Self {
            seed,
            chain_id: Self::CHAIN_ID,
            profile: Profile::small(),
            signatures: Signatures::Real,
            helicon: Helicon::Never,
            first_height: 0,
            base_time_ms: Self::BASE_TIME_MS,
            interval_ms: 2_000,
            branches: Vec::new(),
        }
    }

    /// Returns a configuration with blocks of mainnet's size.
    pub fn c_chain(seed: u64) -> Self {
        Self { profile: Profile::c_chain(), ..Self::small(seed) }
    }

    /// The first height that exists besides the genesis, or the genesis.
    pub(crate) fn first(&self) -> u64 {
        if self.first_height > 1 { self.first_height } else { 0 }
    }

    /// Seed of a height.
    pub(crate) fn seed_at(&self, height: u64) -> u64 {
        let last = self.branches.iter().rfind(|branch| height >= branch.height);
        last.map_or(self.seed, |branch| branch.seed)
    }
}
