//! The public networks and their chains.

use clap::ValueEnum;
use neve_store::{Hash, Identity};

/// A public network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// Avalanche mainnet, chain id 43114.
    Mainnet,
    /// The Fuji testnet, chain id 43113.
    Fuji,
}

/// The C-chain's genesis block is the same on mainnet and Fuji: their chain ids differ, which are
/// in no header (avalanchego, `genesis/genesis_mainnet.json` and `genesis_fuji.json`).
const GENESIS: [u8; 32] = [
    0x31, 0xce, 0xd5, 0xb9, 0xbe, 0xb7, 0xf8, 0x78, 0x2b, 0x01, 0x46, 0x60, 0xda, 0x0c, 0xb1, 0x8c,
    0xc4, 0x09, 0xf1, 0x21, 0xf4, 0x08, 0x18, 0x68, 0x86, 0xe1, 0xca, 0x3e, 0x8e, 0xec, 0xa9, 0x6b,
];

impl Network {
    /// Returns the network with a chain id.
    pub fn of_chain(chain_id: u64) -> Option<Self> {
        let mut all = Self::value_variants().iter().copied();
        all.find(|network| network.identity().chain_id == chain_id)
    }

    /// Returns the chain of the network.
    pub fn identity(self) -> Identity {
        let chain_id = match self {
            Self::Mainnet => 43114,
            Self::Fuji => 43113,
        };
        Identity { chain_id, genesis: Hash(GENESIS) }
    }
}
