//! Requests that a listener takes for JSON-RPC.

use std::sync::Arc;

use super::hosts::Hosts;
use crate::http::clients::Proxies;

/// Paths, hosts and proxies of a listener.
pub(crate) struct Policy {
    /// True if it answers JSON-RPC.
    pub(crate) rpc_here: bool,
    pub(crate) hosts: Hosts,
    /// Proxies that name their clients.
    pub(crate) proxies: Proxies,
    /// Paths of JSON-RPC besides the node's.
    pub(crate) rpc_paths: Arc<[String]>,
}
