//! Writers of an archive: those of `neve serve --archive-push`, the commands, and their death.

mod conditions;
pub(crate) mod kills;
mod served_kills;
mod served_push;
mod upkeep;
