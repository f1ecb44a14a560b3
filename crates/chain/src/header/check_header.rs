//! The proof of a header.

use alloy_primitives::{B256, U256, b256, keccak256};
use alloy_rlp::Encodable;

use super::header::{EXT_DATA_GAS_USED, Header};
use crate::json::Form;
use crate::refusal::ProofError;

/// An answer to `eth_getHeaderByNumber`, or the header in one to `eth_getBlockByNumber`.
/// Not checked: see [`ClaimedHeader::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedHeader {
    /// Header of the block.
    pub header: Header,
    /// The hash that the answer claims for it.
    pub hash: B256,
    /// `totalDifficulty`, which is no part of the header; other tools leave it out.
    pub total_difficulty: Option<U256>,
}

impl ClaimedHeader {
    /// Reads an upstream's answer.
    pub fn parse(json: &[u8]) -> Result<Self, ProofError> {
        Self::parse_as(json, Form::Node)
    }

    /// Proves that the header hashes to the claimed hash, and what else can be said of it alone.
    pub fn check(&self) -> Result<CheckedHeader<'_>, ProofError> {
        TotalDifficulty::of(self.total_difficulty, self.header.number)?;
        CheckedHeader::check(&self.header, self.hash).map(|(header, _)| header)
    }
}

/// A header whose hash was computed.
#[derive(Clone, Copy, Debug)]
pub struct CheckedHeader<'h> {
    header: &'h Header,
    hash: B256,
}

impl<'h> CheckedHeader<'h> {
    /// Computes the hash of a header that was made here.
    pub fn of(header: &'h Header) -> Self {
        Self { header, hash: header.hash() }
    }

    /// Checks a header against a hash, and returns the length of its encoding too.
    pub(crate) fn check(header: &'h Header, claimed: B256) -> Result<(Self, usize), ProofError> {
        let encoding = header.encode();
        let computed = keccak256(&encoding);
        if computed != claimed {
            return Err(ProofError::HeaderHash { claimed, computed });
        }
        check_gaps(header)?;
        check_uncles(header)?;
        check_timestamp(header)?;
        check_settled(header)?;
        Ok((Self { header, hash: computed }, encoding.len()))
    }

    /// Takes a header that [`Self::check`] has passed before.
    pub(crate) fn proven(header: &'h Header, hash: B256) -> Self {
        Self { header, hash }
    }

    /// Header of the block.
    pub fn header(&self) -> &'h Header {
        self.header
    }

    /// Hash of the block.
    pub fn hash(&self) -> B256 {
        self.hash
    }
}

/// Each fork added fields behind those of the forks before it, so none may be absent before a
/// present one. The hash does not say so: absent there, a number is encoded as zero is, and an
/// answer could leave out the one or invent the other.
fn check_gaps(header: &Header) -> Result<(), ProofError> {
    let fields = header.optional();
    let other_chain = header.ext_data_hash.is_none();
    let missing = |(name, field): &&(&str, Option<&dyn Encodable>)| {
        field.is_none() && !(other_chain && *name == EXT_DATA_GAS_USED)
    };
    let present = fields.iter().rposition(|field| field.1.is_some()).unwrap_or(0);
    match fields.iter().take(present).find(missing) {
        Some((key, _)) => Err(ProofError::MissingKey { object: "header", key }),
        None => Ok(()),
    }
}

/// Hash of an empty list of uncles.
const NO_UNCLES: B256 = b256!("0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347");

fn check_uncles(header: &Header) -> Result<(), ProofError> {
    match header.sha3_uncles {
        NO_UNCLES => Ok(()),
        found => Err(ProofError::UnclesHash { found, expected: NO_UNCLES }),
    }
}

/// Both clocks must name the same second (coreth, `plugin/evm/customheader/time.go`; saevm rebuilds
/// each block it verifies from one time). The hash binds them: this refuses no block of the chain.
fn check_timestamp(header: &Header) -> Result<(), ProofError> {
    match header.timestamp_milliseconds {
        Some(milliseconds) if milliseconds / 1000 != header.timestamp => {
            Err(ProofError::Timestamp { seconds: header.timestamp, milliseconds })
        }
        _ => Ok(()),
    }
}

/// An asynchronous block settles a lower one (avalanchego, `vms/saevm/sae/block_builder.go`). The first block of a store
/// is held against no other: what it settles counts as proven.
fn check_settled(header: &Header) -> Result<(), ProofError> {
    match header.settles() {
        Some(settled) if settled >= header.number => {
            Err(ProofError::Settled { settled, number: header.number })
        }
        _ => Ok(()),
    }
}

/// The two ways in which nodes show `totalDifficulty`, which is part of no hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TotalDifficulty {
    /// The block's number: a node that runs coreth.
    Number,
    /// Zero: a node that runs saevm, for every block, since its chain entered Helicon.
    Zero,
    /// Zero, in the genesis, or absent: says nothing about the node.
    Unknown,
}

impl TotalDifficulty {
    /// Form of a response.
    pub fn of(found: Option<U256>, number: u64) -> Result<Self, ProofError> {
        match found {
            None => Ok(Self::Unknown),
            // Before and since Helicon the genesis has zero, so it tells of no rules.
            Some(U256::ZERO) if number == 0 => Ok(Self::Unknown),
            Some(U256::ZERO) => Ok(Self::Zero),
            Some(found) if found == U256::from(number) => Ok(Self::Number),
            Some(found) => Err(ProofError::TotalDifficulty { found, number }),
        }
    }
}
