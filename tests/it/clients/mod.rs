//! Clients of many kinds, directly and behind a front.

mod fronts;
mod idle_connections;
pub(crate) mod keys;
mod libraries;
mod limits;
mod mixed_clients;
mod overload;
mod shipped_nginx;
mod unix_socket;
mod worker_balance;
