//! A key that no known release of avalanchego writes.

use super::object::Object;
use crate::refusal::ProofError;

/// Bytes of a key in an error.
const SHOWN_MAX: usize = 64;

/// A key that no known release writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownKey<'a> {
    pub(crate) object: &'static str,
    /// Beginning of the key, graphic ASCII.
    pub(crate) key: &'a [u8],
    /// The known key of this object that differs in case only.
    pub(crate) like: Option<&'static str>,
}

impl<'a> UnknownKey<'a> {
    pub(crate) fn new(object: &'static Object, key: &'a [u8]) -> Self {
        Self { object: object.name, key, like: object.find_ignoring_case(key) }
    }

    pub(crate) fn refusal(&self) -> ProofError {
        // The sender decides how long a key is, and the error goes into logs.
        let shown = self.key.get(..SHOWN_MAX).unwrap_or(self.key);
        let key = String::from_utf8_lossy(shown).into_owned();
        match self.like {
            Some(like) => ProofError::KeyCase { object: self.object, key, like },
            None => ProofError::UnknownKey { object: self.object, key },
        }
    }
}
