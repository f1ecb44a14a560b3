//! The objects that methods of execution take: whether a node would read them.

use super::values::{DecodeError, Decoded, address, big, bytes, kind, uint};
use crate::json::{is_key, members};

/// Result of a look at a value without a visible error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked {
    /// The node would read it.
    Fine,
    /// A full node must be asked.
    Unknown,
}

/// An `ethapi.TransactionArgs`. Null is an object without members.
pub(crate) fn transaction(value: &[u8]) -> Decoded<Checked> {
    if !matches!(value.first(), Some(b'{' | b'n')) {
        return Err(DecodeError::kind(kind(value), "ethapi.TransactionArgs"));
    }
    for (key, value) in members(value) {
        // `encoding/json` takes null for an absent member.
        if value != b"null" && member(key, value)? == Checked::Unknown {
            return Ok(Checked::Unknown);
        }
    }
    Ok(Checked::Fine)
}

type Check = fn(&[u8]) -> Decoded<()>;

/// The members that Go refuses at once when they are wrong.
const MEMBERS: &[(&str, Check)] = &[
    ("from", |value| address(value).map(drop)),
    ("to", |value| address(value).map(drop)),
    ("gas", |value| uint(value, "hexutil.Uint64").map(drop)),
    ("gasPrice", big),
    ("maxFeePerGas", big),
    ("maxPriorityFeePerGas", big),
    ("value", big),
    ("nonce", |value| uint(value, "hexutil.Uint64").map(drop)),
    ("data", |value| bytes(value).map(drop)),
    ("input", |value| bytes(value).map(drop)),
    ("chainId", big),
    ("maxFeePerBlobGas", big),
];

/// The members that Go reads on after, or that have members themselves.
const UNKNOWN: &[&str] = &["accesslist", "blobversionedhashes", "blobs", "commitments", "proofs"];

fn member(key: &[u8], value: &[u8]) -> Decoded<Checked> {
    if UNKNOWN.iter().any(|name| is_key(key, name)) {
        return Ok(Checked::Unknown);
    }
    for (name, check) in MEMBERS {
        // `encoding/json` matches keys without case.
        if is_key(key, &name.to_ascii_lowercase()) {
            check(value).map_err(|wrong| wrong.in_field("TransactionArgs", name))?;
        }
    }
    Ok(Checked::Fine)
}

/// A `ethapi.StateOverride` or `ethapi.BlockOverrides`, whichever `into` is. Only an empty one is
/// looked through.
pub(crate) fn overrides(value: &[u8], into: &'static str) -> Decoded<Checked> {
    if value.first() != Some(&b'{') {
        return Err(DecodeError::kind(kind(value), into));
    }
    // What members may say differs from release to release: the node has to judge them.
    let is_empty = members(value).next().is_none();
    Ok(if is_empty { Checked::Fine } else { Checked::Unknown })
}
