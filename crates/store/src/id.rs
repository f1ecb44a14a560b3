//! Hashes, and the chain that a store belongs to.

use std::fmt;

/// A 32-byte hash. Keys of the store; it does not care which function made them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The chain that a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The EIP-155 chain id.
    pub chain_id: u64,
    /// The hash of block 0.
    pub genesis: Hash,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chain {} with genesis {}", self.chain_id, self.genesis)
    }
}

/// A number of the caller's that outlives restarts: under which rules the upstream answered last.
pub type Rules = u32;
