//! State that all connections share.

use std::sync::Arc;

use tokio::sync::watch;

use super::rate_limit::Allowance;
use super::rpc::Rpc;
use crate::counters::Counters;
use crate::faults::Fault;
use crate::node::Node;

/// Open connections; more are closed at once.
pub(super) const CONNECTIONS_MAX: usize = 4_096;

/// State that all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) node: Arc<Node>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) rpc: Rpc,
    pub(super) allowance: Option<Allowance>,
    /// Turns true when everything is to end.
    pub(crate) shutdown: watch::Receiver<bool>,
}

impl Shared {
    pub(crate) fn new(
        node: Arc<Node>,
        counters: Arc<Counters>,
        shutdown: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let rpc = Rpc { node: Arc::clone(&node), counters: Arc::clone(&counters) };
        let allowance = node.config().rate_limit.map(Allowance::new);
        Arc::new(Self { node, counters, rpc, allowance, shutdown })
    }

    pub(super) fn refuses(&self) -> bool {
        self.node.faults.has(&Fault::Refuse)
    }
}
