//! A block as facts, and facts as the symbols and literal bytes of two streams.

pub(crate) mod count;
pub(crate) mod derive;
pub(crate) mod facts;
pub(crate) mod fold_map;
pub(crate) mod header;
pub(crate) mod lanes;
pub(crate) mod tables;
pub(crate) mod unwalk;
pub(crate) mod walk;
pub(crate) mod words;
