//! The libraries that people use, from their own registries: sessions, and the examples that ship.

mod blocks;
mod examples;
mod install;
mod session;
mod sessions;
