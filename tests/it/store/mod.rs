//! Files on disk: damage, kills, packed files, retention, cold pages.

#[cfg(feature = "archive")]
pub(crate) mod archive;
mod cold;
mod damage;
mod inspect;
pub(crate) mod kill;
mod kill_packing;
pub(crate) mod packed;
mod packed_damage;
mod packed_reader;
mod retention;
mod scale;
mod verify;
