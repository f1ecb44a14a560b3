//! Commands of the program, one file each.

#[cfg(feature = "archive")]
pub mod archive;
pub mod config;
pub mod doctor;
pub mod export;
mod following;
pub mod import;
pub mod inspect;
pub mod keys;
pub mod man;
#[cfg(test)]
pub(crate) mod reference;
mod reload;
pub mod repair;
pub mod serve;
mod start;
pub mod status;
pub mod verify;
