//! `neve archive`: pushes packed files to an object store, and shows, checks and tidies an archive.

mod command;
mod cost;
mod output;
mod pull;
mod upkeep;

pub use command::run;
