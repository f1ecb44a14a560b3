//! `neve import`: lines of `neve export` to a store, each height proven as if an upstream had sent it.

mod command;
mod importer;
mod input;
mod line;

pub use command::run;
