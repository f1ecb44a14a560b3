//! Follows the chain: new heights in order into the writer, and values that no block tells.

mod refresh_values;
mod session;
mod value_type;

pub(crate) use refresh_values::run;
pub(crate) use session::{Session, SessionEnd, note_proof, rules_of};
