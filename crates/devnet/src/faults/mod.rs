//! Faults of an upstream, on demand.

mod edit;
mod fault;
mod forged_block;
mod registry;
mod rule;

pub use fault::{Fault, RetryAfter};
pub use registry::{Faults, Injected};
pub use rule::{Heights, Rule};

pub(crate) use edit::{edit, false_head, forged};
pub(crate) use forged_block::false_block;
pub(crate) use rule::Subject;
