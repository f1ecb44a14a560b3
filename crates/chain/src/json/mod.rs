//! The JSON of a node's answers, read where it lies.

mod admitted_keys;
mod cursor;
mod hex;
mod object;
mod skip;
mod unknown_key;

pub use admitted_keys::AdmittedKeys;
pub use hex::Hex;
pub use object::Form;

pub(crate) use cursor::Cursor;
pub(crate) use object::{Key, Object, Presence};
pub(crate) use unknown_key::UnknownKey;
