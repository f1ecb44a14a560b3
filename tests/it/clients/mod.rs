//! Clients of many kinds, directly and behind a front.

mod fronts;
mod idle_connections;
mod install;
pub(crate) mod keys;
mod libraries;
mod limits;
mod mixed_clients;
mod overload;
mod session;
mod shipped_nginx;
mod unix_socket;
mod worker_balance;
