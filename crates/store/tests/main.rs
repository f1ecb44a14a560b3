//! Tests of the store, in one program: it compiles what they share once, and runs them beside each other.

#![cfg(test)]

mod crash;
mod damage;
mod faults;
mod flip;
mod golden;
mod hash_tables;
mod history;
mod incoming;
mod incoming_packed;
mod inject;
mod leftovers;
mod logs;
mod maps;
mod model;
mod packed_names;
mod packing;
mod quarantine;
mod race;
mod scale;
mod slices;
mod splitting;
mod support;
mod unreadable;
mod verify_beside;
