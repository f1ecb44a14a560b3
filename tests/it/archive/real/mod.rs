//! An archive in a real object store, and a real proxy before it that makes the network bad.

mod credentials;
mod disk;
mod field;
mod network;
mod outage;
mod programs;
mod pushing;
mod rare;
mod tls;
