//! Keys of a later release of avalanchego, which an operator may admit.
//!
//! Clients differ in how they read a key that they do not expect: Go's `encoding/json` matches keys
//! without case and takes the last. So an answer has only the keys that the node's releases write.
//! A new release may add one; until neve knows it, its name must be given.

use super::unknown_key::UnknownKey;
use crate::refusal::ProofError;

/// Unknown keys that answers may have all the same: none by default.
///
/// An admitted key may stand at the end of its object, and in a sorted object (blocks, receipts) at
/// its sorted place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmittedKeys(pub(crate) &'static [(&'static str, String)]);

impl AdmittedKeys {
    /// No key besides the known ones.
    pub const NONE: Self = Self(&[]);

    /// Refuses the first key that is not admitted.
    pub(crate) fn check(self, unknown: &[UnknownKey<'_>]) -> Result<(), ProofError> {
        let is_admitted = |unknown: &&UnknownKey<'_>| {
            let is = |(object, key): &(&str, String)| {
                *object == unknown.object && key.as_bytes() == unknown.key
            };
            unknown.like.is_none() && self.0.iter().any(is)
        };
        match unknown.iter().find(|unknown| !is_admitted(unknown)) {
            Some(unknown) => Err(unknown.refusal()),
            None => Ok(()),
        }
    }
}
